from __future__ import annotations

import pytest
from hypothesis import given, settings

from sizewright.errors import InputError, JobError
from sizewright.executors.file import FileExecutor
from sizewright.spec import Plan
from tests.helpers.random_plans import plans


@settings(max_examples=100, deadline=None)
@given(plans(max_groups=3))
def test_rendered_plan_is_read_back(plan: Plan) -> None:
    for executor in (FileExecutor(), FileExecutor(format="json")):
        assert executor.parse(executor.render(plan)) == plan


@pytest.mark.parametrize("text", ["{", "a: [", "[" * 10_000])
def test_text_that_is_not_a_plan_is_refused(text: str) -> None:
    for executor in (FileExecutor(), FileExecutor(format="json")):
        with pytest.raises(InputError, match="The plan is not") as caught:
            executor.parse(text)
        assert caught.value.remedy


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(JobError):
        FileExecutor().parse("run: rm")


def test_unknown_format_is_refused() -> None:
    with pytest.raises(InputError, match="'toml' is not a format"):
        FileExecutor(format="toml")  # type: ignore[arg-type]
