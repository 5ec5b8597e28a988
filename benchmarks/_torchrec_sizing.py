"""The sizing of TorchRec scripts: what limits them is named, the answer is near the best, and its samples are right."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import sizewright as sw
from benchmarks._report import choose
from benchmarks._trials import BRIEF, measure_valid
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import TrialError
from sizewright.profiler.measure.host_speed import measure_host_speed
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_command import measure_command
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.space_filling import space_filling_allocations
from sizewright.recommender.sizing.grid import Grid
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import choose as choose_allocation
from sizewright.recommender.sizing.select import fit
from sizewright.spec import Allocation, Job, Recommendation
from sizewright.spec.objective import completion_time_s, cost_of, hourly_price, objective_value
from sizewright.training.command.session import CommandSession
from sizewright.training.session import Session

EXAMPLES = Path(__file__).parents[1] / "examples" / "torchrec"
TIMING = choose(Timing(min_s=6, max_s=12, target_se=0.01), Timing(min_s=4, max_s=8, target_se=0.02), BRIEF)
SLOW_LINK = "100mbit"
MEMORY = 2 * 2**30
PASSES = choose(3, 2, 1)
"""Over the grid of allocations: its host changes its speed by more than the best allocations differ."""
_COUNTED = ((1, 0.4, 512), (2, 0.4, 512), (1, 0.8, 1024), (2, 0.6, 256), (2, 0.8, 1024), (1, 0.6, 256))
"""Workers, cores and batch size."""
COUNTED = choose(_COUNTED, _COUNTED[:3], _COUNTED[:1])

ENGINE_BATCHES = choose((512, 2048), (512, 2048), (512,))
PAIRS = choose(4, 1, 1)
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
_NOTES = (
    ("done = 0\n", 'done = 0\nnotes = open("steps.txt", "w") if rank == 0 else None\n'),
    ("    stop = stop_requested.clone()",
     "    if notes:\n        print(time.monotonic(), done, file=notes, flush=True)\n    stop = stop_requested.clone()"),
)  # fmt: skip
"""What of the example lets it note its samples itself."""
_TIMED = (
    ("    loss_function(model(numbers, ids), labels).backward()\n    optimizer.step()\n",
     "    loss = loss_function(model(numbers, ids), labels)\n    forward = time.perf_counter()\n    loss.backward()\n"
     "    backward = time.perf_counter()\n    optimizer.step()\n"),
    ("data_s=read - start, compute_s=time.perf_counter() - read)",
     "data_s=read - start, pull_s=forward - read, compute_s=backward - forward,"
     " push_s=time.perf_counter() - backward)"),
)  # fmt: skip
"""What of the example reports the phases of a step apart, in the places of those of the engine."""
_ENGINE_PHASES = ("reading", "pulling", "computing", "pushing")
_TORCHREC_PHASES = ("reading", "forward", "backward", "optimizer")
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
    """Measure a grid of allocations of the TorchRec example, and compare what is recommended with the best of all.

    The grid is measured in several passes, each in an order of its own. In turn one pass has the trials, and the truth
    is the mean of all others, each relative to its own mean. The trials are those that the planner of `profile` picks,
    each moved to the nearest allocation of the grid, until they are half of the grid; of the smaller grid of QUICK they
    are three quarters. The answer is that of `recommend` with only the grid to choose from. `regret_of_noise` is that
    of the best of all allocations of the pass, as measured. `regret_time` is that of the same job by time alone.
    """
    rng = np.random.default_rng(0)
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
        grid = grid[:: choose(1, 2, 4)]
        picked = picked_by_planner(job, grid, choose(8, 6, 4))
        passes = [
            {allocation: trial_at(job, allocation) for allocation in (grid[i] for i in rng.permutation(len(grid)))}
            for _ in range(PASSES)
        ]
    rates = np.array([[trials[allocation].throughput or np.nan for allocation in grid] for trials in passes])
    relative = rates / np.exp(np.log(rates).mean(axis=1, keepdims=True))
    rows: list[dict[str, object]] = []
    regrets: dict[str, list[float]] = {"regret": [], "regret_of_noise": [], "regret_time": []}
    errors: list[float] = []
    by_time = job.model_copy(update={"objective": "time"})
    for number, trials in enumerate(passes):
        others = np.delete(relative, number, axis=0) if PASSES > 1 else relative
        truth = np.exp(np.log(others).mean(axis=0))
        for name, each in (("regret", job), ("regret_time", by_time)):
            chosen, predicted = chosen_of_grid(each, grid, [trials[allocation] for allocation in picked])
            regrets[name].append(regret(each, grid, truth, chosen) if chosen is not None else float("inf"))
            if name == "regret" and chosen is not None:
                errors.append(float(np.median(np.abs(predicted / np.median(predicted / truth) / truth - 1))))
                print(f"pass {number}: chosen {grid[chosen].describe()}, regret {regrets[name][-1]:.3f}", flush=True)
                rows += [
                    {"pass": number, "allocation": allocation.describe(), "trial": allocation in picked,
                     "predicted": float(ours), "measured": float(real), "truth": float(share)}
                    for allocation, ours, real, share in zip(grid, predicted, rates[number], truth, strict=True)
                ]  # fmt: skip
        by_noise = int(np.argmin(objectives(job, grid, rates[number])))
        regrets["regret_of_noise"].append(regret(job, grid, truth, by_noise))
    details["answer"] = rows
    return {
        "answer_allocations": float(len(grid)),
        "answer_trials": float(len(picked)),
        **{name: float(np.mean(each)) for name, each in regrets.items()},
        "regret_worst": max(regrets["regret"]),
        "prediction_error": float(np.mean(errors)),
    }


def chosen_of_grid(
    job: Job, grid: Sequence[Allocation], seen: Sequence[Trial]
) -> tuple[int | None, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the number of the allocation that `recommend` chooses of the grid, if any, and the predicted samples/s."""
    fitted = fit(SizingRequest(job, [trial for trial in seen if trial.usable]))
    if isinstance(fitted, Recommendation):
        print(fitted, flush=True)
        return None, np.full(len(grid), np.nan)
    evaluation = fitted.evaluations[0]
    only_grid = evaluation.of(evaluation.scorer.score(rows_of(grid), worker_memory_bytes=MEMORY))
    choice = choose_allocation(fitted._replace(evaluations=[only_grid]))
    if isinstance(choice, Recommendation):
        print(choice, flush=True)
        return None, only_grid.scored.throughput
    target = choice.scored.grid.rows[choice.chosen]
    (chosen,) = np.flatnonzero((rows_of(grid).rows == target).all(axis=1))
    return int(chosen), only_grid.scored.throughput


def picked_by_planner(job: Job, grid: Sequence[Allocation], count: int) -> list[Allocation]:
    """Return so many allocations of the grid: those nearest to the ones that the planner of `profile` asks for."""
    cells = rows_of(grid).rows[:, [0, 2, 4, 6]]
    spans = np.ptp(np.log1p(cells), axis=0)
    picked: list[Allocation] = []
    for asked in range(count, 8 * count):
        picked = []
        for allocation in space_filling_allocations(job, 2.0, asked):
            wanted = rows_of([allocation]).rows[:, [0, 2, 4, 6]]
            distances = (np.abs(np.log1p(cells) - np.log1p(wanted)) / np.maximum(spans, 1e-9)).sum(axis=1)
            nearest = grid[int(np.argmin(distances))]
            picked += [nearest] if nearest not in picked and len(picked) < count else []
        if len(picked) == count:
            break
    return picked


def rows_of(allocations: Sequence[Allocation]) -> Grid:
    """Return allocations of workers alone as a grid."""
    workers = [allocation.worker[0] for allocation in allocations]
    columns = (
        [group.replicas for group in workers], np.zeros(len(workers)), [group.cpu for group in workers],
        np.ones(len(workers)), [allocation.batch_size for allocation in allocations], np.zeros(len(workers)),
        [allocation.loaders or 0 for allocation in allocations],
    )  # fmt: skip
    return Grid(*(np.array(column, float) for column in columns))


def counted(details: Details, python: Callable[[], str]) -> Figures:
    """Compare the throughput of trials with the rate that the TorchRec example notes itself, by its own clock.

    Rank 0 of a copy of the script writes the time and the samples of all ranks after each step. Its rate is that of the
    last seconds, as many as the trial measured.
    """
    rows: list[dict[str, object]] = []
    errors: list[float] = []
    with scripts(python()) as folder:
        changed(folder, "noted.py", _NOTES)
        job = Job.model_validate({
            "name": "torchrec",
            "command": {"run": "python noted.py --batch-size {batch_size} --samples {samples}", "folder": str(folder)},
            "training": {"batch_size": 512, "samples": 20_000_000, "sync": "sync"},
        })  # fmt: skip
        for workers, cores, batch in COUNTED:
            trial = trial_at(job, Allocation.of(workers, 0, cores, 1.0, batch, MEMORY))
            at_s, samples = np.loadtxt(folder / "steps.txt", ndmin=2).T
            window = at_s >= at_s[-1] - (trial.duration_s or 0.0)
            own = float(np.ptp(samples[window]) / np.ptp(at_s[window]))
            errors.append(abs((trial.throughput or np.nan) / own - 1))
            rows.append(
                {"workers": workers, "cores": cores, "batch_size": batch, "own": own, "trial": trial.throughput}
            )
            print(f"{rows[-1]}", flush=True)
    details["counted"] = rows
    return {
        "throughput_trials": float(len(errors)),
        "throughput_error": float(np.median(errors)),
        "throughput_error_worst": max(errors),
    }


def engine(details: Details, python: Callable[[], str]) -> Figures:
    """Compare the samples/s of the built-in engine and of TorchRec on one shape, each on one pinned core, in pairs.

    The shape is 26 tables of 110,000 rows and 16 dimensions with MLPs of 512 and 256. Worker and PS of the engine share
    the core; TorchRec has one rank on it. The shares say where the time of a step goes: for the engine reading, pulling
    rows, computing and pushing gradients; for TorchRec reading, the forward pass, the backward pass with the update of
    the tables, and the optimizer of the dense weights.
    """
    rows: list[dict[str, object]] = []
    ratios: list[float] = []
    figures: Figures = {}
    with scripts(python()) as folder:
        changed(folder, "shape.py", (*_SHAPE, *_TIMED))
        for batch in ENGINE_BATCHES:
            ours = Job.model_validate({**_ENGINE, "training": {"batch_size": batch, "samples": 10**9}})
            run = "python shape.py --batch-size {batch_size} --samples {samples}"
            training = {"batch_size": batch, "samples": 10**9, "sync": "sync"}
            theirs = Job.model_validate({"command": {"run": run, "folder": str(folder)}, "training": training})
            pairs: list[tuple[Trial, Trial]] = []
            for _ in range(PAIRS):
                with Session(ours) as session, pinned("ray::"):
                    own = measure_valid(session, TrialPoint(Allocation.of(1, 1, 1.0, 1.0, batch)), TIMING)
                with pinned("shape.py"):
                    pairs.append((own, trial_at(theirs, Allocation.of(1, 0, 1.0, 1.0, batch, MEMORY))))
                rates = [trial.throughput or 0.0 for trial in pairs[-1]]
                ratios.append(rates[0] / rates[1])
                rows.append({
                    "batch_size": batch, "samples_per_s": rates,
                    "trials": [each.model_dump(mode="json", exclude_none=True) for each in pairs[-1]],
                })  # fmt: skip
                print(f"batch {batch}: {rates[0]:,.0f} and {rates[1]:,.0f} samples/s on one core", flush=True)
            figures[f"engine_over_torchrec_{batch}"] = float(np.exp(np.mean(np.log(ratios[-PAIRS:]))))
            for side, of_side in zip(("engine", "torchrec"), zip(*pairs, strict=True), strict=True):
                for phase, share in shares(of_side, _ENGINE_PHASES if side == "engine" else _TORCHREC_PHASES).items():
                    figures[f"{side}_{phase}_share_{batch}"] = share
    details["engine"] = rows
    return {"engine_over_torchrec": float(np.exp(np.mean(np.log(ratios)))), **figures}


def shares(trials: Sequence[Trial], phases: Sequence[str]) -> Figures:
    """Return the mean share of each phase in the steps of some trials."""
    seconds = np.array([
        [t.phase_data_s or 0.0, t.phase_pull_s or 0.0, t.phase_compute_s or 0.0, t.phase_push_s or 0.0] for t in trials
    ])  # fmt: skip
    of_steps = (seconds / seconds.sum(axis=1, keepdims=True)).mean(axis=0)
    return dict(zip(phases, map(float, of_steps), strict=True))


@contextlib.contextmanager
def pinned(name: str) -> Iterator[None]:
    """Keep the processes that start under this one, and whose command line has a name, on the last core.

    Raises RuntimeError if there was none.
    """
    core, over, seen = max(os.sched_getaffinity(0)), threading.Event(), set[int]()

    def keep() -> None:
        while not over.wait(0.1):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if any(name in word for word in process.cmdline()):
                        for thread in process.threads():
                            os.sched_setaffinity(thread.id, {core})
                        seen.add(process.pid)

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
    if not seen:
        raise RuntimeError(f"no process with {name} was pinned")


def changed(folder: Path, name: str, changes: Sequence[tuple[str, str]]) -> None:
    """Write a copy of the TorchRec example with other text in some places."""
    text = (folder / "dlrm.py").read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    (folder / name).write_text(text)


def regret(job: Job, grid: Sequence[Allocation], rates: np.ndarray[Any, np.dtype[np.float64]], chosen: int) -> float:
    """Return by what share the objective at the chosen allocation of a grid exceeds the best."""
    values = objectives(job, grid, rates)
    return float(values[chosen] / values.min() - 1)


def objectives(job: Job, allocations: Sequence[Allocation], rates: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
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
    """Return a trial, with the host's speed as `profile` has it; what other work on the host spoils is tried again."""
    speed = {"host_speed": measure_host_speed()}
    for _ in range(2):
        with contextlib.suppress(TrialError), CommandSession(job, trial=True) as session:
            return measure_command(session, TrialPoint(allocation), TIMING).model_copy(update=speed)
    with CommandSession(job, trial=True) as session:
        return measure_command(session, TrialPoint(allocation), TIMING).model_copy(update=speed)


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
