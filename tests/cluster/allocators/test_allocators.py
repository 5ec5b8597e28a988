"""The contract of allocators is kept by each of ours, and problems with known answers are solved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.allocators.registry import ALLOCATORS
from sizewright.errors import InputError
from sizewright.testing import AllocatorContract
from sizewright.testing.problems import best_of, problem_of, random_problem

BY_VALUE = ["default", "dynamic", "lagrangian", "mip"]
"""Policies that maximize the utility of the problem."""


class TestEveryAllocator(AllocatorContract):
    @pytest.fixture(params=sorted(ALLOCATORS))
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def allocator(self, name: str) -> Allocator:
        return get_allocator(name)

    def test_registered_name_is_the_allocators_name(self, name: str) -> None:
        assert get_allocator(name).name == name


@pytest.mark.parametrize("name", BY_VALUE)
@pytest.mark.parametrize("seed", range(25))
def test_small_problem_is_solved_within_its_gap(name: str, seed: int) -> None:
    problem = random_problem(seed, 5, 4, 1 if name == "dynamic" or seed % 2 else 3, price=0.2, current=[0, 1, 2, 3, 4])
    best, answer = best_of(problem), get_allocator(name)(problem)
    assert answer.value == pytest.approx(problem.total(answer.choice))
    assert answer.bound is not None
    assert answer.bound >= best - 1e-6 * abs(best)
    if name != "lagrangian":
        assert answer.value >= best * (1 - 1.01e-3)


@pytest.mark.parametrize("name", BY_VALUE)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-12, 1e-6, 1.0, 1e9]), negative=st.booleans())
def test_no_choice_exceeds_the_bound(name: str, seed: int, scale: float, negative: bool) -> None:
    rng = np.random.default_rng(seed)
    current = rng.integers(0, 4, 5)
    problem = random_problem(
        seed, 5, 3, 1 if name == "dynamic" else 1 + seed % 3, current=current, price=0.3,
        stays=(current > 0) & (rng.random(5) < 0.5),
    )  # fmt: skip
    values = (problem.values - (1.0 * negative * (problem.values > 0))) * scale
    problem = replace(problem, values=values, change_price=problem.change_price * scale)
    answer = get_allocator(name)(problem, 2.0)
    if not answer.released:
        best = best_of(problem)
        assert answer.bound is not None
        assert answer.bound >= best - 1e-9 * abs(best)
        assert answer.value <= best + 1e-9 * abs(best)


@pytest.mark.parametrize("name", [*BY_VALUE, "hull", "slope"])
def test_concave_utilities_of_one_resource_are_solved_exactly(name: str) -> None:
    sizes = np.arange(1, 6)
    problem = problem_of(np.tile(sizes, (4, 1)), np.outer([1, 2, 3, 4], np.sqrt(sizes)), [9])
    answer = get_allocator(name)(problem)
    assert answer.value == pytest.approx(best_of(problem))


def test_hull_greedy_passes_a_small_gain_where_slope_greedy_stops() -> None:
    problem = problem_of([[1, 2, 3], [1, 2, 3]], [[1.0, 1.01, 5.0], [1.0, 1.5, 2.0]], [4])
    assert get_allocator("hull")(problem).value == pytest.approx(6.0)
    assert get_allocator("slope")(problem).value < 4


def test_price_equals_the_gain_of_another_unit() -> None:
    sizes = np.arange(1, 9)
    values = np.outer(np.linspace(1, 2, 50), np.sqrt(sizes))
    smaller, larger = (problem_of(np.tile(sizes, (50, 1)), values, [c]) for c in (120, 121))
    answer = get_allocator("lagrangian")(smaller)
    gained = get_allocator("dynamic")(larger).value - get_allocator("dynamic")(smaller).value
    assert answer.prices is not None
    assert answer.prices[0] == pytest.approx(gained, rel=0.05)


def test_change_must_gain_more_than_its_price() -> None:
    expensive = problem_of([[1, 2]], [[1.0, 1.5]], [2], current=[1], price=0.6)
    cheap = problem_of([[1, 2]], [[1.0, 1.5]], [2], current=[1], price=0.4)
    assert [int(get_allocator("default")(p).choice[0]) for p in (expensive, cheap)] == [1, 2]


def test_latest_nonpreemptible_job_is_released_first_where_they_do_not_fit() -> None:
    problem = problem_of([[2, 3]] * 3, [[1, 2]] * 3, [5], current=[1, 1, 1], stays=[True] * 3)
    answer = get_allocator("default")(problem)
    assert answer.released == (2,)
    assert (answer.choice[:2] > 0).all()
    assert problem.fits(answer.choice)


def test_dynamic_programme_ignores_an_abundant_resource() -> None:
    sizes = np.stack([np.tile([1.0, 2.0], (3, 1)), np.tile([0.3, 0.7], (3, 1))], axis=2)
    answer = get_allocator("dynamic")(problem_of(sizes, [[1, 1.5]] * 3, [4, 100]))
    assert answer.value == pytest.approx(3.5)
    assert answer.prices is not None
    assert answer.prices[1] == 0


@pytest.mark.parametrize(
    "wrong", [{"change_price": np.array([np.nan])}, {"change_price": np.array([-1.0])}, {"current": np.array([3])}]
)
def test_invalid_arrays_are_refused(wrong: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError):
        replace(problem_of([[1, 2]], [[1, 2]], [4]), **wrong)


def test_job_that_needs_nothing_competes_like_others() -> None:
    problem = problem_of([[0, 4], [4, 8]], [[1.0, 100.0], [1.0, 2.0]], [8], scheduler_state=True)
    assert get_allocator("default")(problem).choice[0] == 2


def test_policy_without_scheduler_state_names_what_is_missing() -> None:
    with pytest.raises(InputError, match="speeds, remaining work and arrivals"):
        get_allocator("aryl")(random_problem(1))
    with pytest.raises(InputError, match="no policy 'best'"):
        get_allocator("best")


@pytest.mark.parametrize(
    ("needs", "capacity", "note"),
    [
        ([[[1, 2], [2, 3]], [[1, 2], [3, 2]]], [3, 4], "2 resources can run short"),
        ([[np.pi, 5], [1, 6]], [7], "needs of r0 have no common unit"),
        (np.array([[1, 2, 3], [1, 2, 4]]) * 1e17, [5e17], "needs of r0 have no common unit"),
        ([[1000003, 2000029], [3000017, 4000037]], [5000011], "too many units"),
    ],
)
def test_dynamic_programme_falls_back_to_prices_with_a_note(needs: object, capacity: object, note: str) -> None:
    values = np.asarray(needs, float).reshape(2, -1, len(capacity)).sum(axis=2) ** 0.9  # type: ignore[arg-type]
    problem = problem_of(needs, values / values.max(), capacity)
    answer = get_allocator("dynamic")(problem)
    assert problem.fits(answer.choice)
    assert answer.bound is not None
    assert answer.bound >= best_of(problem) - 1e-9
    assert [note in text for text in answer.notes] == [True] * len(answer.notes)
    assert answer.notes or answer.gap == 0.0
    default = get_allocator("default")(problem)
    assert default.value >= best_of(problem) * (1 - 1.01e-3)


def test_resource_of_many_units_is_solved_within_its_gap() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        needs = rng.integers(1_000_000, 9_000_000, (6, 4)).astype(float)
        values = needs ** rng.uniform(0.4, 1, (6, 1)) * rng.uniform(0.7, 1.3, (6, 4))
        problem = problem_of(needs, values / values.max(), [np.floor(needs.mean(axis=1).sum() / 2)])
        answer = get_allocator("default")(problem)
        assert answer.gap is not None
        assert answer.gap <= 1e-3


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
def test_no_job_is_released_where_one_choice_fits_all(name: str) -> None:
    """Neither the smallest candidates nor the current ones fit together; one of each does."""
    problem = problem_of(
        [[[4, 1], [1, 5]]] * 2, [[1, 1]] * 2, [6, 8], current=[2, 2], stays=[True, True], scheduler_state=True
    )  # fmt: skip
    answer = get_allocator(name)(problem)
    assert not answer.released
    assert (answer.choice > 0).all()
    assert problem.fits(answer.choice)


def test_problem_of_many_jobs_has_a_narrow_proven_gap() -> None:
    answer = get_allocator("lagrangian")(random_problem(2, 2000, 8, 3))
    assert answer.gap is not None
    assert answer.gap < 1e-3
