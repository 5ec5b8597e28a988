"""Time, cost and deadline of jobs on hosts that are taken away: the closed form compared with the simulator.

Each setting has a number of hosts, a rate at which one is taken away, an interval between checkpoints, a restart and a
length of the job. The cluster simulator runs the job thousands of times with its own rules of failures and checkpoints.
`time_error` and `cost_error` are the largest relative difference of the mean over the settings, `deadline_error` the
largest difference of the probability to complete by a deadline, over three deadlines a setting; `time_se` and
`deadline_se` are the largest standard errors of the simulated means and probabilities. `young_error` is the largest
error of Young's first-order formula (half an interval and a restart are lost at each interruption).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks._report import choose, finish
from sizewright.cluster.allocators.registry import get_allocator
from sizewright.cluster.simulator.capacity import Capacity
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.workload import Workload
from sizewright.recommender.machines.interruptions import Checkpoints, WorkTimes, probability_within, time_quantiles

SETTINGS, MIN_RUNS, ERROR = choose((60, 12_000, 0.004), (50, 8_000, 0.005), (3, 500, 0.05))
"""Number of settings, and the runs and the relative standard error of the mean up to which each is simulated."""
MAX_RUNS = 2 * MIN_RUNS
BATCH = 250  # jobs that run side by side in one simulation
DEADLINES = np.array([0.3, 0.7, 0.95])  # shares of the closed form's distribution
TARGETS = {"time_error": "≤ 0.02", "cost_error": "≤ 0.02", "deadline_error": "≤ 0.02"}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """A job on spot hosts; times in seconds."""

    hosts: int
    interruptions_hour: float
    every_s: float
    restart_s: float
    work_s: float

    @property
    def rate(self) -> float:
        """Interruptions of the job per second."""
        return self.hosts * self.interruptions_hour / 3600


def draw(count: int, seed: int = 0) -> list[Setting]:
    """Draw settings in which the job is interrupted 0.05 to 10 times on average, at most once in an interval."""
    rng, settings = np.random.default_rng(seed), list[Setting]()
    while len(settings) < count:
        setting = Setting(
            hosts=int(rng.choice([1, 2, 4, 8, 16, 32])),
            interruptions_hour=float(10 ** rng.uniform(-3, -0.3)),
            every_s=float(10 ** rng.uniform(2, 4.3)),
            restart_s=float(10 ** rng.uniform(0.5, 3.2)),
            work_s=float(10 ** rng.uniform(3, 5.3)),
        )
        lost_s = min(setting.every_s, setting.work_s) + setting.restart_s
        if 0.05 <= setting.rate * setting.work_s <= 10 and setting.rate * lost_s <= 1:
            settings.append(setting)
    return settings


def simulate(setting: Setting, runs: int, seed: int) -> tuple[Floats, float]:
    """Return the completion times of equal jobs (runs,) in seconds, and the mean hours of hosts that one was given."""
    size = (runs, 1)
    workload = Workload(
        jobs=[str(number) for number in range(runs)],
        resources=["host"],
        arrived_s=np.zeros(runs),
        work=np.full(runs, setting.work_s),
        known_work=np.full(runs, setting.work_s),
        speed=np.tile([0.0, 1.0], size),
        needs=np.tile([[0.0], [float(setting.hosts)]], (runs, 1, 1)),
        offered=np.ones((runs, 2), bool),
        requested=np.ones(runs, np.intp),
        replicas=np.tile(np.array([0, setting.hosts], np.intp), size),
        base=np.full(runs, setting.hosts),
        change_s=np.zeros(runs),
        restart_s=np.full(runs, setting.restart_s),
        start_up_s=np.zeros(runs),
    )
    settings = Settings(
        every_s=1e12,  # every job starts at once, so that one decision is enough
        failures_a_day=24 * setting.interruptions_hour,
        saved_every_s=setting.every_s,
        seed=seed,
    )
    room = Capacity(np.array([float(runs * setting.hosts)]))
    result = Simulation(workload, room, get_allocator("fifo"), settings).run()
    return result.finished_s - result.arrived_s, float(result.allocated[0]) / runs / 3600


def compare(setting: Setting) -> dict[str, float]:
    """Return the errors of the closed form in one setting, and the standard errors of the simulation."""
    times_s, host_hours = np.zeros(0), list[float]()
    while len(times_s) < MIN_RUNS or (_relative_error(times_s) > ERROR and len(times_s) < MAX_RUNS):
        more_s, hours = simulate(setting, BATCH, seed=len(host_hours))
        times_s = np.concatenate([times_s, more_s])
        host_hours.append(hours)
    checkpoints = Checkpoints(setting.every_s, setting.restart_s)
    work_s = np.array([setting.work_s])
    mean_s = float(checkpoints.expected_time_s(work_s, setting.rate)[0])
    works = WorkTimes(work_s, np.array([1e-6]), np.array([1e-6]))  # the work is known
    deadlines_s = np.maximum(time_quantiles(DEADLINES, works, setting.rate, checkpoints), 1.001 * setting.work_s)
    rate = np.array([setting.rate])
    probability = np.array([probability_within(float(each), works, rate, checkpoints)[0] for each in deadlines_s])
    simulated = np.array([(times_s <= each).mean() for each in deadlines_s])
    young_s = setting.work_s * (1 + setting.rate * (min(setting.every_s, setting.work_s) / 2 + setting.restart_s))
    return {
        **vars(setting),
        "runs": len(times_s),
        "mean_s": mean_s,
        "simulated_s": float(times_s.mean()),
        "time_error": abs(mean_s / float(times_s.mean()) - 1),
        "cost_error": abs(setting.hosts * mean_s / 3600 / float(np.mean(host_hours)) - 1),
        "deadline_error": float(np.abs(probability - simulated).max()),
        "young_error": abs(young_s / float(times_s.mean()) - 1),
        "time_se": _relative_error(times_s),
        "deadline_se": float(np.sqrt(simulated * (1 - simulated) / len(times_s)).max()),
    }


def _relative_error(times_s: Floats) -> float:
    """Return the standard error of the mean, as a share of it."""
    return float(times_s.std() / np.sqrt(len(times_s)) / times_s.mean())


def main() -> None:
    rows = []
    for number, setting in enumerate(draw(SETTINGS), 1):
        row = compare(setting)
        rows.append(row)
        errors = "  ".join(f"{name} {row[f'{name}_error']:.4f}" for name in ("time", "cost", "deadline"))
        print(f"{number:3d}  {setting.hosts:2d} hosts  {row['runs']:6,} runs  {errors}", flush=True)
    names = ("time_error", "cost_error", "deadline_error", "young_error", "time_se", "deadline_se")
    figures = {name: max(row[name] for row in rows) for name in names}
    figures |= {"settings": len(rows), "runs": sum(row["runs"] for row in rows)}
    finish("spot", figures, TARGETS, {"settings": rows})


if __name__ == "__main__":
    main()
