from __future__ import annotations

from pathlib import Path

import pytest

from sizewright.spec.command import Progress
from sizewright.training.command.reports import Reports


def reports(tmp_path: Path, **progress: object) -> Reports:
    return Reports(Progress.model_validate(progress), 32, tmp_path)


def told(found: Reports) -> list[int]:
    return [report.samples for report in found.told]


@pytest.mark.parametrize(
    ("pattern", "lines", "samples"),
    [
        (r"seen=(?P<samples>[\d,]+)", ["x", "seen=1,024", "seen=2048 y"], [1024, 2048]),
        (r"step (?P<steps>\d+)/", ["step 1/9", "loss 3", "step 3/9"], [32, 96]),
        (r"\+(?P<more>[\d.e]+)", ["+10", "+5", "+1e2"], [10, 15, 115]),
    ],
)
def test_a_pattern_counts_what_its_group_is_named(
    tmp_path: Path, pattern: str, lines: list[str], samples: list[int]
) -> None:
    found = reports(tmp_path, source="regex", pattern=pattern)
    for i, line in enumerate(lines):
        found.line(line, float(i))
    assert told(found) == samples
    assert found.told[-1].at_s == len(lines) - 1
    assert not found.nonsense


def test_json_lines_are_read_amid_others_and_may_tell_phases(tmp_path: Path) -> None:
    found = reports(tmp_path, source="json")
    for line in ["loading", '{"loss": 1}', '{"samples": 64, "data_s": 0.5}', "{broken", '{"steps": 4, "data_s": 1.5}']:
        found.line(line, 1.0)
    assert told(found) == [64, 128]
    assert found.last.data_s == 1.5


@pytest.mark.parametrize("value", ['"many"', "-5", "null", "1e400", "[1]"])
def test_nonsense_is_kept_for_the_message_and_counts_nothing(tmp_path: Path, value: str) -> None:
    found = reports(tmp_path, source="json")
    found.line('{"samples": 10}', 1.0)
    found.line(f'{{"samples": {value}}}', 2.0)
    assert told(found) == [10]
    assert value in found.nonsense


def test_counts_that_go_back_are_nonsense(tmp_path: Path) -> None:
    found = reports(tmp_path, source="json")
    found.line('{"samples": 10}', 1.0)
    found.line('{"samples": 9}', 2.0)
    assert told(found) == [10]
    assert found.nonsense
