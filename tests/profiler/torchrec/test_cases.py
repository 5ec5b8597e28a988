"""Drawn sharding plans: halves that share no tables, all sharding types, and steps that stay short."""

from __future__ import annotations

import json

import pytest

from sizewright.profiler.torchrec.cases import KINDS, draw_cases


def test_plans_are_the_same_each_time_and_other_seeds_have_other_tables() -> None:
    assert draw_cases(24, 2) == draw_cases(24, 2)
    assert {case.tables for case in draw_cases(24, 2)}.isdisjoint(case.tables for case in draw_cases(24, 2, seed=1))


def test_no_tables_of_held_out_plans_enter_the_fit() -> None:
    cases = draw_cases(48, 2)
    held_out = {case.tables for case in cases if case.held_out}
    training = {case.tables for case in cases if not case.held_out}
    assert held_out.isdisjoint(training)
    assert len(held_out) == len(training) == 8


@pytest.mark.parametrize("count", [12, 24, 48])
def test_both_halves_have_all_sharding_types(count: int) -> None:
    for held_out in (False, True):
        half = [case for case in draw_cases(count, 2) if case.held_out is held_out]
        assert {way for case in half for way in case.types} >= {"table_wise", "row_wise", "column_wise"}
        assert {case.kind for case in half} <= {*KINDS, "mixed"}
    assert any(case.ranks == 1 and not case.held_out for case in draw_cases(count, 2))


def test_a_batch_of_every_plan_is_small() -> None:
    for case in draw_cases(60, 4):
        assert len(case.tables) == len(case.types)
        assert case.batch * sum(table.pooling for table in case.tables) <= 100_000
        assert all(table.rows * table.dim <= 200_000 * 128 for table in case.tables)


def test_tasks_are_json() -> None:
    task = json.loads(json.dumps(draw_cases(12, 2)[0].to_task()))
    assert task["types"]
    assert task["seed"] == 0
