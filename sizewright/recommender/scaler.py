"""Stage two while a job runs: what is known of it is fitted anew, and every allocation weighed against staying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.default import ThroughputModel
from sizewright.models.foretold import ForetoldModel
from sizewright.models.prior import JobCurve
from sizewright.recommender.action import Action, Choice
from sizewright.recommender.as_it_runs import as_it_runs
from sizewright.recommender.auto_scale import Scaling, Standing, weigh
from sizewright.recommender.consider import Considered, consider, filled
from sizewright.recommender.quality import untested
from sizewright.recommender.scoring import Scored
from sizewright.spec import Allocation, Cluster, Job
from sizewright.spec.objective import allocation_price

_WITHIN_A_RUN = {"noise": (float(np.log(0.02)), 0.5)}
"""Allocations of one run are compared under one mood of its hosts; trials of several days differ by more."""


class _Fitted(NamedTuple):
    model: ThroughputModel | ForetoldModel
    considered: Considered


class AutoScaler:
    """Of one job; `trials` are what was known before it ran, `foretold` what a learned prior tells of it."""

    def __init__(
        self,
        job: Job,
        trials: Sequence[Trial] = (),
        foretold: JobCurve | None = None,
        *,
        cluster: Cluster | None = None,
        scaling: Scaling = Scaling(),  # noqa: B008
        seed: int = 0,
    ) -> None:
        self.job, self.scaling = job, scaling
        self._known = [filled(job, trial) for trial in trials if trial.usable]
        self._foretold, self._cluster = foretold, cluster
        self._rng = np.random.default_rng(seed)
        self._fitted: _Fitted | None = None
        self._before: ThroughputModel | None = None
        """Fitted to what was known before it ran."""

    def refit(self, evidence: Sequence[Trial], workers: int | None = None) -> str:
        """Learn from what the run has told so far, too; the answer is why that is not enough, if it is not.

        Of a job with so many workers now, only allocations that are a legal step away are scored.
        """
        own = [filled(self.job, trial) for trial in evidence if trial.usable]
        trials = [*self._known_at_its_speed(own), *own]
        prior = _WITHIN_A_RUN if own else None
        model: ThroughputModel | ForetoldModel = ThroughputModel(prior, foretold=self._foretold)
        if not trials and self._foretold:
            model = ForetoldModel(self._foretold)
        try:
            fitted: BaseThroughputModel = model.fit(trials)
        except NotEnoughDataError as error:
            self._fitted = None
            return error.message
        job = self.job if workers is None else _within_reach(self.job, workers, self.scaling.most_workers_more)
        told = consider(job, fitted, trials, foretold=self._foretold, cluster=self._cluster)
        self._fitted = _Fitted(model, told)
        return ""

    def _known_at_its_speed(self, own: Sequence[Trial]) -> list[Trial]:
        """What was known before, as fast as this run is where both tell: only ratios carry over."""
        if not own or not self._known:
            return self._known
        if self._before is None:
            try:
                self._before = ThroughputModel(foretold=self._foretold).fit(self._known)
            except NotEnoughDataError:
                return []
        told = np.log([trial.throughput or 1.0 for trial in own])
        faster = float(np.exp(np.median(told - np.log(self._before.predict(own)))))
        return [trial.model_copy(update={"throughput": (trial.throughput or 0.0) * faster}) for trial in self._known]

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
        """Where to go from an allocation at which so many samples/s are seen, after so many changes, or why to stay.
        A change takes so many seconds, or `resize_s` where the same replicas stay with other limits.

        `ps_needs` tells how many bytes each of so many PS is to have by what was seen while it ran, if that is known.
        """
        if self._fitted is None:
            return Action("Too little is known of other allocations.")
        scored, within = as_it_runs(self.job, self._fitted.considered.scored, allocation, ps_needs)
        axes = _axes(allocation)
        row = _nearest(scored, axes)
        elsewhere = {
            axis: value for axis, value in axes.items() if not np.isclose(getattr(scored.grid, axis)[row], value)
        }
        price = allocation_price(allocation, self.job.prices)
        standing = Standing(row, elsewhere, rate, rate_sd, samples_left, price, changes)
        allowed = self._fitted.considered.allowed & within
        stay = (scored.grid.workers == axes["workers"]) & (scored.grid.ps == axes["ps"])
        takes_s = np.where(stay, change_s if resize_s is None else resize_s, change_s)
        found = weigh(self.job, self._fitted.model, scored, allowed, standing, takes_s, self.scaling, self._rng)
        choices = tuple(
            Choice(allocation=_at(scored, row), throughput_times=faster, price_times=dearer)
            for row, faster, dearer in found.front
        )
        if found.kind == "keep":
            return Action(f"It stays: {found.reason}.", choices=choices)
        target = _at(scored, found.row)
        warning = untested(self.job, target.replicas("worker"))
        told = " ".join(filter(None, (f"{target.describe()}: {found.reason}.", warning)))
        return Action(told, target=self.job.with_sides(target), choices=choices)


def _within_reach(job: Job, workers: int, step: int) -> Job:
    """With bounds that leave it so many workers more or fewer."""
    low, high = job.bounds.worker.replicas
    nearest = min(max(workers, low), high)
    replicas = max(low, nearest - step), min(high, nearest + step)
    bounds = job.bounds.model_copy(update={"worker": job.bounds.worker.model_copy(update={"replicas": replicas})})
    return job.model_copy(update={"bounds": bounds})


def _at(scored: Scored, row: int) -> Allocation:
    """A row of the grid."""
    return scored.grid.allocation(row, scored.worker_memory_bytes[row], scored.ps_memory_bytes[row])


def _axes(allocation: Allocation) -> dict[str, float]:
    """What it has on the axes of the grid."""
    workers, ps = allocation.replicas("worker"), allocation.replicas("ps")
    of_ps = {"ps": float(ps), "ps_cpu": allocation.cores("ps") / ps} if ps else {"ps": 0.0}
    of_workers = {
        "workers": float(workers),
        "worker_cpu": allocation.cores("worker") / workers,
        "worker_gpu": allocation.gpus("worker") / workers,
    }
    return of_workers | of_ps | {"batch_size": float(allocation.batch_size)}


def _nearest(scored: Scored, axes: Mapping[str, float]) -> int:
    """The row of the grid that is most like an allocation, by the logarithms of its axes."""
    grid = scored.grid
    far: NDArray[np.float64] = np.zeros(len(grid))
    for axis, value in axes.items():
        column = getattr(grid, axis)
        far += np.log(np.maximum(column, 1e-9) / max(value, 1e-9)) ** 2 if value else (column > 0) * 1e3
    return int(np.argmin(far))
