"""Real processes under a stand-in for a cluster: memory that grows, and what a resize and a restart take.

The stand-in's node runs pods as processes of this host under control groups. It is no kubelet: its own part of
`resize_s` is small, and a real one takes up to its sync period.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.jobset import JobSetExecutor
from sizewright.operator import labels
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.tuner import TuningSettings
from sizewright.recommender.control.resize import Resizing
from sizewright.runtime.plan_files import adjust_plan, launch_plan
from sizewright.spec import Allocation, Handle, Job

TRAINS = """
import time, torch
from sizewright import log_samples
torch.set_num_threads(1)
weights = torch.randn(64, 64)
while True:
    weights = torch.tanh(weights @ weights)
    log_samples(512)
    time.sleep(0.01)
"""
_PATIENCE_S = 180.0


def growth_figures(jobs: int) -> dict[str, float]:
    """Let jobs grow beyond their limits, of each pair one that is tuned and one that is not."""
    from tests.helpers.growing_job import as_it_is, growing_job, put_suspended
    from tests.helpers.process_node import process_node
    from tests.helpers.stand_in import stand_in

    with tempfile.TemporaryDirectory() as folder, stand_in() as server:
        server.changes_suspended = True
        with process_node(server):
            for number in range(jobs):
                put_suspended(server, "BatchJob", *growing_job(f"tuned-{number}"))
                document, described = growing_job(f"alone-{number}")
                put_suspended(server, "BatchJob", document, described, **{labels.RESIZE: "no"})
            tuning = TuningSettings(every_s=2.0, resizing=Resizing(watch_s=600.0))
            api = KubeApi(kubeconfig=server.kubeconfig(Path(folder)))
            operator = Operator(api, as_it_is, settings=OperatorSettings(tuning=tuning, jobs_per_s=100.0))

            def phases(group: str) -> list[str]:
                return [pod["status"]["phase"] for name, pod in server.pods.items() if name.startswith(group)]

            def all_ended() -> bool:
                operator.turn()
                return "Running" not in (*phases("tuned"), *phases("alone"))

            operator.turn()
            first = {pod["metadata"]["uid"] for pod in server.pods.values()}
            _await(all_ended, every_s=1.0)
            assert {pod["metadata"]["uid"] for pod in server.pods.values()} == first, "a pod was replaced"
            return {
                "oom_avoided": phases("tuned").count("Succeeded") / jobs,
                "oom_without": phases("alone").count("Failed") / jobs,
            }


def change_figures(pairs: int) -> dict[str, float]:
    """Change the cores of a running job in place, and by a restart; each until it trains at the new size."""
    from tests.helpers.process_node import process_node
    from tests.helpers.stand_in import stand_in

    job = Job.model_validate(
        {"name": "trains", "command": {"run": ["python", "-c", TRAINS], "env": {"SIZEWRIGHT_TRIAL": "1"}}}
    )
    sizes = [Allocation.of(1, 0, cores, 1.0, 512, 1 << 30) for cores in (0.8, 0.6)]
    resize_s, restart_s = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder, stand_in() as server, process_node(server):
        api = KubeApi(kubeconfig=server.kubeconfig(Path(folder)))
        executor = JobSetExecutor(api=api)
        handle = executor.launch(launch_plan(job, sizes[0]))
        _await(lambda: executor.observe(handle).samples_trained > 0)
        for _ in range(pairs):
            resize_s.append(_changed_s(executor, handle, job, sizes[0], sizes[1]))
            server.resizes = False
            restarting = JobSetExecutor(api=api)
            restart_s.append(_changed_s(restarting, handle, job, sizes[1], sizes[0]))
            server.resizes = True
            executor = JobSetExecutor(api=api)
        executor.stop(handle)
    return {"resize_s": sorted(resize_s)[pairs // 2], "restart_s": sorted(restart_s)[pairs // 2]}


def _changed_s(executor: JobSetExecutor, handle: Handle, job: Job, before: Allocation, after: Allocation) -> float:
    """Return the seconds from the request for a change until the job has trained on."""
    trained = executor.observe(handle).samples_trained
    began = time.monotonic()
    plan = adjust_plan(job, before, after).model_copy(update={"cooldown_s": 0.0})
    executor.adjust(handle, plan)
    _await(lambda: _trains_at(executor, handle, after, trained))
    return time.monotonic() - began


def _trains_at(executor: JobSetExecutor, handle: Handle, size: Allocation, trained: int) -> bool:
    metrics = executor.observe(handle)
    return metrics.allocation == size and metrics.samples_trained > trained


def _await(holds: Callable[[], Any], every_s: float = 0.05) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise SystemExit("The processes of the stand-in take too long.")
        time.sleep(every_s)
