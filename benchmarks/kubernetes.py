"""Kubernetes: manifests, an operator with many waiting jobs, and resizes of running pods: `make bench NAME=kubernetes`.

Random plans are written as manifests of every kind, validated and read back; others are written into random base
manifests with odd fields, of which all but sizes must be kept. RayJobs of several descriptions wait at once on a
stand-in for an API server, which runs in a process of its own, and one operator sizes them from the shipped prior.
`suspended_to_patched_s` is the 99th percentile of the seconds from the operator's start until a job has its sizes. Jobs
whose memory grows beyond their limits run as processes: `oom_avoided` is the share of those that end well where the
operator resizes them, `oom_without` the share of others that break. `resize_s` and `restart_s` are the seconds from the
request for other cores until the job trains with them; its progress is seen once a second.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks._base_manifests import kept_fields
from benchmarks._report import choose, finish
from benchmarks._resizing import change_figures, growth_figures
from benchmarks.executors import KINDS, written_and_read

CASES, BASES, GROWING, CHANGES = choose(10_000, 1_000, 30), choose(100, 20, 1), choose(4, 2, 1), choose(5, 3, 1)
JOBS, DESCRIPTIONS = choose(1000, 200, 6), choose(50, 10, 2)
TARGETS = {
    "round_trips": "all of the cases",
    "cases": "≥ 10,000",
    "invalid_manifests": "0",
    "render_ms": "≤ 20",
    "kept_fields": "1.0",
    "oom_avoided": "1.0",
    "jobs_sized_per_s": "≥ 5",
    "suspended_to_patched_s": "≤ 120 (99 % of the jobs)",
    "operator_memory_mib": "≤ 300",
    "api_calls_per_job": "≤ 6",
}
_FAMILIES = ("dlrm", "wide_deep", "dcn", "xdeepfm")


def description(number: int) -> str:
    """Return one of the job files."""
    model = {"family": _FAMILIES[number % 4], "top_mlp": [128 + 16 * (number // 4), 64]}
    bounds = {"worker": {"replicas": [1, 8]}, "ps": {"replicas": [1, 4]}}
    return yaml.safe_dump({"name": f"job-{number}", "model": model, "bounds": bounds})


def serve(folder: str, pipe: Connection) -> None:
    """Hold the waiting jobs until a message comes, then send when each was patched, and the number of requests."""
    from tests.helpers.stand_in import stand_in
    from tests.helpers.suspended_jobs import suspended_with_ps

    patched: dict[str, float] = {}

    def note(method: str, path: str, answer: Any) -> Any:
        if method == "PATCH":
            patched.setdefault(path, time.time())
        return answer

    with stand_in() as server:
        server.odd = note
        for number in range(JOBS):
            document = suspended_with_ps(f"ctr-{number}", description(number % DESCRIPTIONS))
            server.create("RayJob", "default", document)
        pipe.send(server.kubeconfig(Path(folder)))
        pipe.recv()
        waiting = sum(
            bool(each["spec"].get("suspend")) for (kind, *_), each in server.objects.items() if kind == "RayJob"
        )
        pipe.send((list(patched.values()), len(server.asked), waiting))


def main() -> None:
    figures = manifest_figures() | operator_figures() | growth_figures(GROWING) | change_figures(CHANGES)
    finish("kubernetes", figures, TARGETS | {"left_waiting": "0"}, {"descriptions": DESCRIPTIONS})


def manifest_figures() -> dict[str, float]:
    made = written_and_read(CASES, list(KINDS))
    kept = [kept_fields(name, kind, BASES, seed=1) for name, kind in KINDS.items()]
    return {
        "cases": float(made.cases),
        "round_trips": float(made.round_trips),
        "invalid_manifests": float(made.invalid),
        "render_ms": max(made.render_ms.values()),
        "kept_fields": sum(each for each, _ in kept) / sum(total for _, total in kept),
        "base_fields": float(sum(total for _, total in kept)),
    }


def operator_figures() -> dict[str, float]:
    """Size many waiting jobs."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipe, theirs = context.Pipe()
        server = context.Process(target=serve, args=(folder, theirs), daemon=True)
        server.start()
        kubeconfig = pipe.recv()
        command = [sys.executable, "-m", "sizewright.cli.main", "operator", "run", "--once", "--jobs-per-s", "1000"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        began = time.time()
        subprocess.run(
            [*command, "--kubeconfig", kubeconfig], env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        duration_s = time.time() - began
        memory_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        pipe.send("done")
        patched, calls, waiting = pipe.recv()
        server.join()
    return {
        "jobs": float(JOBS),
        "left_waiting": float(waiting),
        "jobs_sized_per_s": JOBS / duration_s,
        "suspended_to_patched_s": float(np.percentile(np.array(patched) - began, 99)),
        "operator_memory_mib": memory_mib,
        "api_calls_per_job": calls / JOBS,
    }


if __name__ == "__main__":
    main()
