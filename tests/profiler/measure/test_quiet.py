from __future__ import annotations

from collections.abc import Callable

import pytest

from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.quiet import QuietMeasure
from sizewright.profiler.series._base import TrialPoint
from sizewright.spec import Allocation, Job
from tests.helpers.fake_trainer import AT_ONCE, SteadyTrainer

# Two workers of 0.9 × 0.5 cores, one PS of 0.5 × 0.2, and an engine of 0.2.
POINT = TrialPoint(Allocation.of(2, 1, 0.5, 0.2, 512))
OWN = 2 * 0.45 + 0.1 + 0.2


def host(cores: float) -> Callable[[], float]:
    """A host whose cores are so busy, by the clock of the test."""
    import time

    began = time.monotonic()
    return lambda: cores * (time.monotonic() - began)


@pytest.fixture
def timing() -> object:
    from dataclasses import replace

    return replace(AT_ONCE, block_s=0.01)


def test_trial_without_interference_is_kept(timing) -> None:
    trial = QuietMeasure(host(OWN))(SteadyTrainer(Job()), POINT, timing)
    assert trial.usable
    assert trial.workers == 2


def test_trial_with_interference_is_void(timing) -> None:
    with pytest.raises(TrialVoidError, match="Other work"):
        QuietMeasure(host(OWN + 1.0))(SteadyTrainer(Job()), POINT, timing)
