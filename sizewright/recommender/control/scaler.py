"""The scale step of a running job: refit the throughput model and compare every allocation with staying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.axes import COUNTS, SIZES
from sizewright.models.factory import make_predictor
from sizewright.recommender.control.action import Action, Choice
from sizewright.recommender.control.auto_scale import CurrentState, Scaling, choose_change
from sizewright.recommender.control.runtime_limits import with_runtime_limits
from sizewright.recommender.sizing.evaluate_grid import GridEvaluation, evaluate_grid, with_defaults
from sizewright.recommender.sizing.pareto import pareto_front, thinned
from sizewright.recommender.sizing.quality import untested_workers_warning
from sizewright.recommender.sizing.scoring import Scored
from sizewright.spec import Allocation, Candidate, Cluster, Job
from sizewright.spec.objective import allocation_price
from sizewright.spec.reason import Reason

MAX_CANDIDATES = 12


class _Fitted(NamedTuple):
    model: BaseThroughputModel
    grid: GridEvaluation


class _Comparison(NamedTuple):
    """The allocations of the grid, compared with the current one."""

    scored: Scored
    allowed: NDArray[np.bool_]
    row: int
    """The row that is nearest to the current allocation."""
    off_grid: dict[str, float]
    """Values of the current allocation on the axes where they differ from that row."""


class AutoScaler:
    """Choose the next allocation of one running job.

    `trials` are those known before the run. `predictor` predicts the throughput; by default it is `make_predictor()`.
    """

    def __init__(
        self,
        job: Job,
        trials: Sequence[Trial] = (),
        predictor: BaseThroughputModel | None = None,
        *,
        cluster: Cluster | None = None,
        scaling: Scaling = Scaling(),  # noqa: B008
        seed: int = 0,
    ) -> None:
        self.job, self.scaling = job, scaling
        self._prior_trials = [with_defaults(job, trial) for trial in trials if trial.usable]
        self._predictor, self._cluster = predictor or make_predictor(), cluster
        self._rng = np.random.default_rng(seed)
        self._fitted: _Fitted | None = None
        self._prior_trials_model: BaseThroughputModel | None = None

    def refit(self, evidence: Sequence[Trial], workers: int | None = None) -> str:
        """Fit to the trials of the run, too; return why the data do not suffice, or an empty string.

        Where the current number of `workers` is known, only allocations within one legal step are scored.
        """
        run_trials = [with_defaults(self.job, trial) for trial in evidence if trial.usable]
        trials = [*self._rescaled_prior_trials(run_trials), *run_trials]
        # A copy is fitted, since `act` may use the last one meanwhile.
        model = self._predictor.within_run() if run_trials else deepcopy(self._predictor)
        try:
            model.fit(trials)
        except NotEnoughDataError as error:
            self._fitted = None
            return error.message
        job = self.job if workers is None else _within_step(self.job, workers, self.scaling.max_added_workers)
        grid = evaluate_grid(job, model, trials, cluster=self._cluster)
        self._fitted = _Fitted(model, grid)
        return ""

    def _rescaled_prior_trials(self, run_trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials from before the run, rescaled to the run's speed: only their ratios carry over.

        Those of an allocation that the run itself has measured are left out.
        """
        if not run_trials or not self._prior_trials:
            return self._prior_trials
        if self._prior_trials_model is None:
            try:
                self._prior_trials_model = deepcopy(self._predictor).fit(self._prior_trials)
            except NotEnoughDataError:
                return []
        observed = np.log([trial.throughput or 1.0 for trial in run_trials])
        scale = float(np.exp(np.median(observed - np.log(self._prior_trials_model.predict(run_trials)))))
        measured = {_allocation_of(trial) for trial in run_trials}
        return [
            trial.model_copy(update={"throughput": (trial.throughput or 0.0) * scale})
            for trial in self._prior_trials
            if _allocation_of(trial) not in measured
        ]

    def act(
        self,
        allocation: Allocation,
        rate: float,
        rate_sd: float,
        samples_left: int,
        change_s: float,
        resize_s: float | None = None,
        ps_needs: Callable[[int], float | None] = lambda _: None,
        changes: int = 0,
    ) -> Action:
        """Return the allocation to move to, or why to stay, for a job at `allocation` after `changes` changes.

        `rate` is the observed throughput in samples/s, `rate_sd` the standard deviation of its logarithm. A change
        takes `change_s` seconds, or `resize_s` where the same replicas stay with other limits. `ps_needs(ps)` returns
        the bytes that each of `ps` servers needs by the run's own measurements, or None where that is unknown.
        """
        if self._fitted is None:
            return Action((Reason.of("other_allocations_unknown"),))
        scored, allowed, row, off_grid = self._comparison(self._fitted, allocation, ps_needs)
        axes = _axes(allocation)
        price = allocation_price(allocation, self.job.prices)
        state = CurrentState(row, off_grid, rate, rate_sd, samples_left, price, changes)
        same_replicas = (scored.grid.workers == axes["workers"]) & (scored.grid.ps == axes["ps"])
        same_replicas &= scored.grid.worker_gpu == axes["worker_gpu"]
        takes_s = np.where(same_replicas, change_s if resize_s is None else resize_s, change_s)
        choice = choose_change(self.job, self._fitted.model, scored, allowed, state, takes_s, self.scaling, self._rng)
        choices = tuple(
            Choice(
                allocation=self.job.with_gpu_kind(_allocation_at(scored, point.row)),
                throughput_times=point.throughput_times,
                price_times=point.price_times,
            )
            for point in choice.front
        )
        if choice.kind == "keep":
            return Action((choice.reason,), choices=choices)
        target = self.job.with_gpu_kind(_allocation_at(scored, choice.row))
        warning = untested_workers_warning(self.job, target.replicas("worker"))
        gain = choice.reason.adding(target=target.describe())
        return Action((gain, warning) if warning else (gain,), target=self.job.with_sides(target), choices=choices)

    def candidates(
        self, allocation: Allocation, rate: float, ps_needs: Callable[[int], float | None] = lambda _: None
    ) -> tuple[Candidate, ...]:
        """Return allocations that a job at `allocation` could have, from the cheapest to the fastest.

        They are at most `MAX_CANDIDATES` of those that no other one beats in both throughput and price. Their samples/s
        are the observed `rate` times the ratio that the model predicts. The result is empty where the data do not
        suffice. `ps_needs` is that of `act`.
        """
        if self._fitted is None or not rate:
            return ()
        scored, allowed, row, off_grid = self._comparison(self._fitted, allocation, ps_needs)
        rows = np.flatnonzero(allowed)
        at_current = {name: column[[row]] for name, column in scored.columns.items()}
        at_current |= {axis: np.array([value]) for axis, value in off_grid.items()}
        rates = scored.throughput[rows] / self._fitted.model.predict(at_current)[0] * rate
        front = pareto_front(rates, scored.price_per_hour[rows])
        return tuple(
            Candidate(
                allocation=self.job.with_sides(self.job.with_gpu_kind(_allocation_at(scored, int(rows[i])))),
                throughput=float(rates[i]),
            )
            for i in thinned(front, MAX_CANDIDATES)
        )

    def _comparison(
        self, fitted: _Fitted, allocation: Allocation, ps_needs: Callable[[int], float | None]
    ) -> _Comparison:
        scored, within_memory = with_runtime_limits(self.job, fitted.grid.scored, allocation, ps_needs)
        axes = _axes(allocation)
        row = _nearest(scored, axes)
        off_grid = {
            axis: value for axis, value in axes.items() if not np.isclose(getattr(scored.grid, axis)[row], value)
        }
        return _Comparison(scored, fitted.grid.allowed & within_memory, row, off_grid)


def _allocation_of(trial: Trial) -> tuple[object, ...]:
    return tuple(getattr(trial, axis) for axis in (*COUNTS, *SIZES))


def _within_step(job: Job, workers: int, step: int) -> Job:
    """Return the job with bounds that allow at most `step` workers more or fewer than `workers`.

    Where these are no longer allowed (a worker is missing, say), the step is one from the nearest number that is.
    """
    nearest = min(job.worker_counts, key=lambda count: abs(count - workers))
    counts = [count for count in job.worker_counts if abs(count - nearest) <= step]
    replicas = counts[0], counts[-1]
    bounds = job.bounds.model_copy(update={"worker": job.bounds.worker.model_copy(update={"replicas": replicas})})
    return job.model_copy(update={"bounds": bounds})


def _allocation_at(scored: Scored, row: int) -> Allocation:
    return scored.grid.allocation(row, scored.worker_memory_bytes[row], scored.ps_memory_bytes[row])


def _axes(allocation: Allocation) -> dict[str, float]:
    """Return an allocation's values on the axes of the grid."""
    workers, ps = allocation.replicas("worker"), allocation.replicas("ps")
    worker_axes = {
        "workers": float(workers),
        "worker_cpu": allocation.cores("worker") / workers,
        "worker_gpu": allocation.gpus("worker") / workers,
    }
    ps_axes = {"ps": float(ps), "ps_cpu": allocation.cores("ps") / ps} if ps else {"ps": 0.0}
    rest = {"batch_size": float(allocation.batch_size)}
    return worker_axes | ps_axes | rest | ({} if allocation.loaders is None else {"loaders": float(allocation.loaders)})


def _nearest(scored: Scored, axes: Mapping[str, float]) -> int:
    """Return the row of the grid that is nearest to an allocation in the logarithms of its axes."""
    grid = scored.grid
    distance: NDArray[np.float64] = np.zeros(len(grid))
    for axis, value in axes.items():
        column = getattr(grid, axis)
        distance += np.log(np.maximum(column, 1e-9) / max(value, 1e-9)) ** 2 if value else (column > 0) * 1e3
    return int(np.argmin(distance))
