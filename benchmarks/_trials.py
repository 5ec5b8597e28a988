"""Trials of a benchmark, measured again if the host did not keep its limits."""

from __future__ import annotations

from collections.abc import Iterable

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.measure import Timing, measure
from sizewright.profiler.series._base import TrialPoint
from sizewright.training.session import Session

_ATTEMPTS = 5
BRIEF = Timing(warm_up_s=0.1, first_warm_up_s=0.2, min_s=0.3, max_s=0.6, block_s=0.1)
"""Timing for trials that only check that the benchmark runs."""


def measure_valid(session: Session, point: TrialPoint, timing: Timing) -> Trial:
    """Measure a trial as `measure` does. Raises TrialVoidError if each of five attempts is void."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return measure(session, point, timing)
        except TrialVoidError as error:
            print(f"Measuring again: {error.message}", flush=True)
    return measure(session, point, timing)


def load_ahead(session: Session, points: Iterable[TrialPoint]) -> None:
    """Load as many replicas as the points have at most, so that measuring them starts none."""
    allocations = [point.allocation for point in points]
    workers, ps = (max(each.replicas(role) for each in allocations) for role in ("worker", "ps"))
    session.load_ahead(workers=workers, ps=ps)
