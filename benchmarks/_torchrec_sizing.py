"""The sizing of TorchRec scripts: what limits them is named, the answer is near the best, and its samples are right."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sizewright as sw
from benchmarks._report import choose
from benchmarks._trials import BRIEF, measure_valid
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import TrialError
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_command import measure_command
from sizewright.profiler.series._base import TrialPoint
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend_with_model
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation, Job
from sizewright.spec.objective import completion_time_s, cost_of, hourly_price, objective_value
from sizewright.training.command.session import CommandSession
from sizewright.training.session import Session

EXAMPLES = Path(__file__).parents[1] / "examples" / "torchrec"
_FULL = Timing(min_s=6, max_s=12, target_se=0.01)
TIMING = choose(_FULL, _FULL, BRIEF)
SLOW_LINK = "100mbit"
MEMORY = 2 * 2**30
TRIALS = choose(8, 5, 3)
REPEATS = choose(2, 1, 1)
COUNTED_SAMPLES = choose(100_000, 60_000, 5_000)

ENGINE_BATCHES = choose((512, 2048), (512, 2048), (512,))
PAIRS = choose(4, 2, 1)
_SHAPE = (
    ('TABLES = {"user": (200_000, 32, 1), "item": (50_000, 32, 1), "history": (50_000, 16, 20), "tags": (1_000, 8, 5)}',
     'TABLES = {f"t{i}": (110_000, 16, 1) for i in range(26)}'),
    ("NUMBERS, WIDTH = 13, 32", "NUMBERS, WIDTH = 13, 16"),
    ("nn.Linear(dim, WIDTH) for", "nn.Identity() for"),
    ("nn.Linear(NUMBERS, 128), nn.ReLU(), nn.Linear(128, WIDTH)",
     "nn.Linear(NUMBERS, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, WIDTH)"),
    ("nn.Linear(WIDTH + pairs, 256), nn.ReLU(), nn.Linear(256, 1)",
     "nn.Linear(WIDTH + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)"),
)  # fmt: skip
"""What of the example becomes another shape."""
_ENGINE: Mapping[str, Any] = {
    "name": "engine-shape",
    "model": {
        "family": "dlrm", "tables": {"count": 26, "rows": 110_000, "dim": 16}, "bottom_mlp": [512, 256],
        "top_mlp": [512, 256], "optimizer": "rowwise_adagrad",
    },
}  # fmt: skip
Details = dict[str, object]
Figures = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Case:
    """A script with one limit, which is told apart by `kinds` of reasons."""

    name: str
    script: str
    options: str
    limit: str
    kinds: tuple[str, ...]
    points: tuple[tuple[int, float], ...]
    """Workers and cores of each trial."""
    loaders: tuple[int, int] | None = None
    slow_link: bool = False


_READING = ("bottleneck_reading", "bottleneck_reading_unsized", "bottleneck_reading_cores")
CASES = (
    Case("loader-parses", "loader.py", "--loaders {loaders} --work 6", "reading", _READING,
         ((1, 1.6), (2, 0.8), (1, 1.2)), (1, 1)),
    Case("rank-computes", "loader.py", "--loaders {loaders}", "computing", ("bottleneck_computing",),
         ((1, 0.5), (2, 0.5), (1, 0.8)), (2, 2)),
    Case("slow-link", "loader.py", "--loaders {loaders}", "communication", ("bottleneck_communication",),
         ((2, 0.8), (2, 0.6), (3, 0.5)), (1, 1), slow_link=True),
    Case("rank-parses", "loader.py", "--loaders 0 --work 6", "reading", _READING, ((1, 0.8), (2, 0.8), (1, 0.5))),
    Case("torchrec-computes", "dlrm.py", "", "computing", ("bottleneck_computing",), ((1, 0.5), (2, 0.5), (1, 0.8))),
    Case("torchrec-slow-link", "dlrm.py", "", "communication", ("bottleneck_communication",),
         ((2, 0.8), (2, 0.6), (3, 0.5)), slow_link=True),
)  # fmt: skip


def bottlenecks(details: Details, python: Callable[[], str]) -> Figures:
    """Profile scripts of known limits, and ask what limits them."""
    rows: list[dict[str, object]] = []
    with scripts(python()) as folder:
        for case in CASES[: choose(6, 3, 1)]:
            job = described(case, folder)
            with slow_link() if case.slow_link else contextlib.nullcontext():
                trials = [measured(job, point, case) for point in case.points]
            answer = sw.recommend(job, trials=trials)
            kinds = [reason.kind for reason in answer.reason_details]
            named = [kind for kind in kinds if kind.startswith("bottleneck_")]
            rows.append({
                "case": case.name, "limit": case.limit, "named": named, "right": named[:1] and named[0] in case.kinds,
                "reasons": [text for text in answer.reasons if "limits the throughput" in text],
                "trials": [trial.model_dump(mode="json", exclude_none=True) for trial in trials],
            })  # fmt: skip
            print(f"{case.name}: limited by {case.limit}, named {named}: {rows[-1]['reasons']}", flush=True)
    details["bottlenecks"] = rows
    return {"bottleneck_cases": float(len(rows)), "bottleneck_named": float(np.mean([bool(r["right"]) for r in rows]))}


def answer(details: Details, python: Callable[[], str]) -> Figures:
    """Measure allocations of the TorchRec example, and compare the answer from half of them with the best of all.

    The half is a fractional factorial: each value of each axis is in four of its eight allocations.

    The answer is the measured allocation whose predicted objective is lowest. The truth is the mean of the repeats, of
    which no model has seen any.
    """
    with scripts(python()) as folder:
        words = "python dlrm.py --batch-size {batch_size} --samples {samples}"
        job = Job.model_validate({
            "name": "torchrec", "command": {"run": f"{words} --loaders {{loaders}}", "folder": str(folder)},
            "training": {"batch_size": 512, "samples": 20_000_000, "sync": "sync"},
            "bounds": {"worker": {"replicas": [1, 2], "cpu": [0.4, 0.8], "memory": ["512Mi", "2Gi"]},
                       "batch_size": [256, 1024], "loaders": [0, 1]},
        })  # fmt: skip
        grid = [
            Allocation.of(workers, 0, cores, 1.0, batch, MEMORY, loaders=loaders)
            for workers in (1, 2) for cores in (0.4, 0.8) for loaders in (0, 1) for batch in (256, 1024)
        ]  # fmt: skip
        grid = grid[:: choose(1, 2, 8)]
        half = [allocation for i, allocation in enumerate(grid) if len(grid) <= 4 or i.bit_count() % 2 == 0]
        seen = [trial_at(job, allocation) for allocation in half]
        truth = [
            float(np.mean([trial_at(job, allocation).throughput or 0.0 for _ in range(REPEATS)])) for allocation in grid
        ]
    known = [trial for trial in seen if trial.usable]
    _, model = recommend_with_model(SizingRequest(job, known))
    if model is None:
        return {"answer_allocations": float(len(grid)), "regret": float("inf")}
    predicted = np.asarray(model.predict(grid), float)
    chosen = int(np.argmin(objectives(job, grid, predicted)))
    true = objectives(job, grid, np.array(truth))
    details["answer"] = [
        {"allocation": allocation.describe(), "predicted": float(ours), "measured": real}
        for allocation, ours, real in zip(grid, predicted, truth, strict=True)
    ]
    return {
        "answer_allocations": float(len(grid)),
        "regret": float(true[chosen] / true.min() - 1),
        "prediction_error": float(np.median(np.abs(predicted / np.array(truth) - 1))),
    }


def counted(details: Details, python: Callable[[], str]) -> Figures:
    """Run the TorchRec example, and compare the samples that Sizewright counted with those that the script printed."""
    with scripts(python()) as folder:
        job = Job.model_validate({
            "name": "torchrec",
            "command": {"run": "python dlrm.py --batch-size {batch_size} --samples {samples}", "folder": str(folder)},
            "training": {"batch_size": 512, "samples": COUNTED_SAMPLES, "sync": "sync"},
        })  # fmt: skip
        own = os.getcwd()
        os.chdir(folder)  # where the logs go
        try:
            outcome = sw.run(launch_plan(job, Allocation.of(2, 0, 0.6, 1.0, 512, MEMORY)), record=False)
        finally:
            os.chdir(own)
        texts = [log.read_text() for log in Path(folder, "sizewright-logs").rglob("worker-0.log")]
        (printed,) = [int(match[1]) for text in texts if (match := re.search(r"^trained (\d+) samples$", text, re.M))]
    details["counted"] = {"script": printed, "sizewright": outcome.samples}
    return {"throughput_error": abs(outcome.samples / printed - 1)}


def engine(details: Details, python: Callable[[], str]) -> Figures:
    """Compare the samples per CPU second of the built-in engine and of TorchRec on one shape, in pairs.

    The shape is 26 tables of 110,000 rows and 16 dimensions with MLPs of 512 and 256. A CPU second counts wherever it
    is spent: by the worker, the PS, or the rank, each limited to one core.
    """
    rows: list[dict[str, object]] = []
    ratios: list[float] = []
    with scripts(python()) as folder:
        text = (folder / "dlrm.py").read_text()
        for before, after in _SHAPE:
            assert before in text, before
            text = text.replace(before, after)
        (folder / "shape.py").write_text(text)
        for batch in ENGINE_BATCHES:
            ours = Job.model_validate({**_ENGINE, "training": {"batch_size": batch, "samples": 10**9}})
            run = "python shape.py --batch-size {batch_size} --samples {samples}"
            training = {"batch_size": batch, "samples": 10**9, "sync": "sync"}
            theirs = Job.model_validate({"command": {"run": run, "folder": str(folder)}, "training": training})
            for _ in range(PAIRS):
                with Session(ours) as session:
                    own = measure_valid(session, TrialPoint(Allocation.of(1, 1, 1.0, 1.0, batch)), TIMING)
                other = trial_at(theirs, Allocation.of(1, 0, 1.0, 1.0, batch, MEMORY))
                per_core = [(trial.throughput or 0.0) / (trial.cores_used or 1.0) for trial in (own, other)]
                ratios.append(per_core[0] / per_core[1])
                rows.append({
                    "batch_size": batch, "samples_per_core_s": per_core,
                    "trials": [each.model_dump(mode="json", exclude_none=True) for each in (own, other)],
                })  # fmt: skip
                print(f"batch {batch}: {per_core[0]:,.0f} and {per_core[1]:,.0f} samples per CPU second", flush=True)
    details["engine"] = rows
    half = len(ratios) // len(ENGINE_BATCHES)
    return {
        "engine_over_torchrec": float(np.exp(np.mean(np.log(ratios)))),
        **{
            f"engine_over_torchrec_{batch}": float(np.exp(np.mean(np.log(ratios[i * half : (i + 1) * half]))))
            for i, batch in enumerate(ENGINE_BATCHES)
        },
    }


def objectives(job: Job, allocations: list[Allocation], rates: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """Return the job's objective at each allocation."""
    prices = [
        float(hourly_price(job.prices, cores=a.cores(), memory_bytes=a.memory_bytes(), gpus=0)) for a in allocations
    ]
    time_s = completion_time_s(job.samples or 1, rates)
    return np.asarray(objective_value(job.objective, time_s, cost_of(time_s, np.array(prices))))


def described(case: Case, folder: Path) -> Job:
    """Return the job of a case."""
    run = f"python {case.script} --batch-size {{batch_size}} --samples {{samples}} {case.options}"
    cores, workers = [c for _, c in case.points], [w for w, _ in case.points]
    worker = {"replicas": [min(workers), max(workers)], "cpu": [min(cores), max(cores)], "memory": ["256Mi", "2Gi"]}
    bounds: dict[str, object] = {"worker": worker}
    if case.loaders:
        bounds["loaders"] = list(case.loaders)
    return Job.model_validate({
        "name": case.name, "command": {"run": run, "folder": str(folder)}, "bounds": bounds,
        "training": {"batch_size": 512, "samples": 20_000_000, "sync": "sync"},
    })  # fmt: skip


def measured(job: Job, point: tuple[int, float], case: Case) -> Trial:
    """Return the trial of a case at a point."""
    loaders = case.loaders[1] if case.loaders else None
    return trial_at(job, Allocation.of(point[0], 0, point[1], 1.0, 512, MEMORY, loaders=loaders))


def trial_at(job: Job, allocation: Allocation) -> Trial:
    """Return a trial; other work on the host may spoil one, so it is tried three times."""
    for _ in range(2):
        with contextlib.suppress(TrialError), CommandSession(job, trial=True) as session:
            return measure_command(session, TrialPoint(allocation), TIMING)
    with CommandSession(job, trial=True) as session:
        return measure_command(session, TrialPoint(allocation), TIMING)


@contextlib.contextmanager
def scripts(python: str) -> Iterator[Path]:
    """Yield a folder with copies of the scripts; `python` is on the path meanwhile."""
    path = os.environ["PATH"]
    with tempfile.TemporaryDirectory(prefix="szw-bench-") as folder:
        for script in EXAMPLES.glob("*.py"):
            shutil.copy(script, folder)
        os.environ["PATH"] = f"{Path(python).parent}:{path}"
        try:
            yield Path(folder)
        finally:
            os.environ["PATH"] = path


@contextlib.contextmanager
def slow_link() -> Iterator[None]:
    """Let all processes that start meanwhile communicate over a loopback of `SLOW_LINK`, in a network of their own."""
    name = f"szwbench-{os.getpid()}"
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "lo", "mtu", "65535")
        _tc("-n", name, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", SLOW_LINK, "burst", "256k", "latency", "2s")
        _enter(Path("/run/netns", name))
        yield
    finally:
        _enter(own)
        os.close(own)
        _ip("netns", "delete", name)


def _enter(namespace: Path | int) -> None:
    import ctypes

    file = namespace if isinstance(namespace, int) else os.open(namespace, os.O_RDONLY)
    failed = ctypes.CDLL(None, use_errno=True).setns(file, 0x40000000)
    if file is not namespace:
        os.close(file)
    if failed:
        raise OSError(ctypes.get_errno(), "this process cannot enter the network namespace")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _tc(*words: str) -> None:
    subprocess.run(["tc", *words], check=True)


PARTS: Mapping[str, Callable[[Details, Callable[[], str]], Figures]] = {
    "bottlenecks": bottlenecks, "answer": answer, "counted": counted, "engine": engine,
}  # fmt: skip
