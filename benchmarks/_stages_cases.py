"""The cases of the three-stage proof: what the job asks for, and which fault occurs."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks._report import SMOKE, choose
from benchmarks._stages_data import SHAPE, SkewedLater
from benchmarks._stages_run import Fault, Setting, cut_cpu, kill, train
from sizewright.spec import Allocation, Job

Runs = list[dict[str, Any]]
WORKERS, WORKER_CPU = choose(4, 4, 1), 0.25
PS = {"wide_deep": choose(3, 3, 1), "xdeepfm": 1}
"""Numbers of PS that use UTILIZATION of at least a tenth of a core each; xDeepFM has little work for them."""
UTILIZATION = 0.75
HOT_BATCH, HOT_LAYERS, HOT_UTILIZATION = 2048, (32, 16), 0.95
"""The case `hot_ps`. Else most of the work of a PS does not depend on ids: it handles messages and dense weights."""
_FAULT_AT, _KILL_AT = 0.2, 0.5
_FIFTH = 0.2
_CALIBRATION_S, _RUN_S = choose(20.0, 10.0, 1.0), choose(95.0, 20.0, 2.0)
_STATIC_TOO = ("static", "auto")
_AUTO = ("auto",)  # the static run of the same fault without a delay serves for comparison


class Case(NamedTuple):
    """A case: its name, the number of pairs, the ways to run it, and the extra seconds that every change takes."""

    name: str
    pairs: int = 1
    hows: tuple[str, ...] = _STATIC_TOO
    family: str = "wide_deep"
    change_s: float = 0.0
    hot: bool = False
    """Whether it has the batch, the small dense layers and the busy PS of `hot_ps`."""

    @property
    def calibration(self) -> str:
        """The name of the calibration that it needs."""
        return "calibration of hot_ps" if self.hot else f"calibration of {self.family}"

    @property
    def batch_size(self) -> int:
        """The samples of a step of one worker."""
        return HOT_BATCH if self.hot else 512

    @property
    def utilization(self) -> float:
        """The share of their cores that PS use."""
        return HOT_UTILIZATION if self.hot else UTILIZATION


CASES = (
    Case("healthy", 8),
    Case("over_asked"),
    Case("under_asked"),
    Case("slow_worker", hows=("static", "queue", "auto")),
    Case("slow_ps"),
    Case("slow_ps_30s", hows=_AUTO, change_s=30.0),
    Case("slow_ps_90s", hows=_AUTO, change_s=90.0),
    Case("hot_ps", hows=("static", "queue", "auto"), hot=True),
    Case("hot_ps_30s", hows=_AUTO, change_s=30.0, hot=True),
    Case("hot_ps_90s", hows=_AUTO, change_s=90.0, hot=True),
    Case("memory"),
    Case("killed"),
    Case("halved", 3, hows=("queue",)),
    Case("healthy_30s", change_s=30.0),
    Case("healthy_90s", change_s=90.0),
    Case("xdeepfm_healthy", family="xdeepfm"),
    Case("xdeepfm_slow_worker", family="xdeepfm"),
    Case("xdeepfm_slow_ps", family="xdeepfm"),
)
QUICK_CASES = choose((), ("over_asked", "slow_ps", "hot_ps"), ("healthy",))


def calibrated(case: Case) -> dict[str, float]:
    """Return the cores at which a PS is as busy as a case wants, its samples/s and its memory peak, from queue runs.

    A PS gets a tenth of a core (`ps_cpu`) even if it needs less (`needed_cpu`).
    """
    job, cores, measured = _job(case), 0.15, dict[str, float]()
    samples = 300_000 if case.family == "wide_deep" else 60_000
    if SMOKE:
        samples //= 40
    for _ in range(choose(2, 2, 1)):
        ran = train(Setting(job, _sized(case, cores), samples), "queue")
        used = (ran.ps_utilization or case.utilization) * cores
        measured = {"rate": ran.samples / ran.jct_s, "used": used / cores, "ps_peak_bytes": float(ran.ps_peak_bytes)}
        samples = round(measured["rate"] * _CALIBRATION_S)
        needed = round(used / case.utilization, 3)
        cores = max(0.1, needed)
    return measured | {"ps_cpu": cores, "needed_cpu": needed}


def setting_of(case: Case, calibration: dict[str, Any]) -> Setting:
    """Return the setting of a case. The allocation is the best within the bounds unless the case says otherwise."""
    ps_cpu, rate = calibration["ps_cpu"], calibration["rate"]
    job, allocation = _bounded(_job(case), ps_cpu), _sized(case, ps_cpu)
    samples = round(rate * _RUN_S)
    plain = Setting(job, allocation, samples, change_s=case.change_s)
    kind = case.name.removeprefix("xdeepfm_").removesuffix("_30s").removesuffix("_90s")
    if kind == "over_asked":
        return _over_asked(plain)
    if kind == "under_asked":
        return plain._replace(allocation=Allocation.of(1, 1, 0.1, 0.1, 512), samples=samples // 8)
    if kind == "slow_worker":
        return plain._replace(fault=Fault(_FAULT_AT, cut_cpu("worker-1", _FIFTH * WORKER_CPU)))
    if kind == "slow_ps":
        cut = cut_cpu(f"ps-{PS[case.family] - 1}", _FIFTH * calibration["needed_cpu"])
        return plain._replace(fault=Fault(_FAULT_AT, cut))
    if kind == "hot_ps":
        begin = round(_FAULT_AT * samples)
        return plain._replace(program=SkewedLater(begin), fault=Fault(_FAULT_AT, lambda _: None))
    if kind == "memory":
        return _short_of_memory(plain, calibration)
    if kind == "halved":
        return plain._replace(halves=True)
    if kind == "killed":
        return plain._replace(fault=Fault(_KILL_AT, kill("worker-1", "ps-1")), checkpoints=True)
    return plain


def _over_asked(plain: Setting) -> Setting:
    """Return workers with three times the cores that the one small PS can serve; the bounds allow no larger PS."""
    job = plain.job.model_copy(update={"objective": "balanced"})
    bounds = job.bounds.model_copy(
        update={
            "worker": job.bounds.worker.model_copy(update={"cpu": (0.1, 0.35)}),
            "ps": job.bounds.ps.model_copy(update={"replicas": (1, 1), "cpu": (0.15, 0.15)}),
        }
    )
    return plain._replace(
        job=job.model_copy(update={"bounds": bounds}),
        allocation=Allocation.of(4, 1, 0.35, 0.15, 512),
        samples=plain.samples // 2,
    )


def _short_of_memory(plain: Setting, calibration: dict[str, Any]) -> Setting:
    """Return tables that exceed the memory limit of their PS after about a fifth of the run."""
    limit = int(calibration["ps_peak_bytes"])
    groups = tuple(group.model_copy(update={"memory_bytes": limit}) for group in plain.allocation.ps)
    return plain._replace(allocation=plain.allocation.model_copy(update={"ps": groups}))


def _sized(case: Case, ps_cpu: float) -> Allocation:
    return Allocation.of(WORKERS, PS[case.family], WORKER_CPU, ps_cpu, case.batch_size)


def _bounded(job: Job, ps_cpu: float) -> Job:
    ps = job.bounds.ps.model_copy(update={"cpu": (0.1, ps_cpu)})
    return job.model_copy(update={"bounds": job.bounds.model_copy(update={"ps": ps})})


def _job(case: Case) -> Job:
    job = Job.load(SHAPE)
    layers = {"bottom_mlp": HOT_LAYERS, "top_mlp": HOT_LAYERS} if case.hot else {}
    model = job.model.model_copy(update={"family": case.family, **layers})
    training = job.training.model_copy(update={"batch_size": case.batch_size})
    return job.model_copy(update={"name": case.family.replace("_", "-"), "model": model, "training": training})
