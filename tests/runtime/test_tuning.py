"""Tuning sets up the observer that runs the loop."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from sizewright.runtime.tuning import Tuning, controller_factory
from sizewright.testing import FakeExecutor
from tests.helpers.fake_runs import JOB


def threads() -> set[int]:
    """Return the thread limits of all libraries that compute in threads."""
    return {library["num_threads"] for library in threadpool_info()}


def test_tuning_limits_the_threads_of_this_process() -> None:
    with threadpool_limits(2):
        if threads() != {2}:
            pytest.skip("libraries here compute in one thread at most")
        with controller_factory(JOB, FakeExecutor(), Tuning()) as observer:
            assert threads() == {1}
            assert observer
        assert threads() == {2}
