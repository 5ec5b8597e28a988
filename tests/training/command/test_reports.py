from __future__ import annotations

from pathlib import Path

import pytest

from sizewright.spec.command import Progress
from sizewright.training.command.reports import Reports, read_count


def reports(tmp_path: Path, **progress: object) -> Reports:
    return Reports(Progress.model_validate(progress), 32, tmp_path)


def sample_counts(parsed: Reports) -> list[int]:
    return [report.samples for report in parsed.history]


@pytest.mark.parametrize(
    ("pattern", "lines", "samples"),
    [
        (r"seen=(?P<samples>[\d,]+)", ["x", "seen=1,024", "seen=2048 y"], [1024, 2048]),
        (r"step (?P<steps>\d+)/", ["step 1/9", "loss 3", "step 3/9"], [32, 96]),
        (r"\+(?P<more>[\d.e]+)", ["+10", "+5", "+1e2"], [10, 15, 115]),
    ],
)
def test_pattern_counts_by_the_name_of_its_group(
    tmp_path: Path, pattern: str, lines: list[str], samples: list[int]
) -> None:
    read = reports(tmp_path, source="regex", pattern=pattern)
    for i, line in enumerate(lines):
        read.line(line, float(i))
    assert sample_counts(read) == samples
    assert read.history[-1].at_s == len(lines) - 1
    assert not read.nonsense


def test_json_lines_among_others_are_read_with_phases(tmp_path: Path) -> None:
    read = reports(tmp_path, source="json")
    for line in ["loading", '{"loss": 1}', '{"samples": 64, "data_s": 0.5}', "{broken", '{"steps": 4, "data_s": 1.5}']:
        read.line(line, 1.0)
    assert sample_counts(read) == [64, 128]
    assert read.last.data_s == 1.5


@pytest.mark.parametrize("value", ['"many"', "-5", "null", "1e400", "[1]"])
def test_invalid_value_is_kept_for_the_message_and_not_counted(tmp_path: Path, value: str) -> None:
    read = reports(tmp_path, source="json")
    read.line('{"samples": 10}', 1.0)
    read.line(f'{{"samples": {value}}}', 2.0)
    assert sample_counts(read) == [10]
    assert value in read.nonsense


def test_decreasing_count_is_invalid(tmp_path: Path) -> None:
    read = reports(tmp_path, source="json")
    read.line('{"samples": 10}', 1.0)
    read.line('{"samples": 9}', 2.0)
    assert sample_counts(read) == [10]
    assert read.nonsense


def test_count_continues_when_a_bar_restarts_with_each_epoch(tmp_path: Path) -> None:
    read = reports(tmp_path, source="regex", pattern=r"(?P<steps>\d+)/100")
    for i, step in enumerate([50, 100, 10, 60, 55, 100, 0, 40]):
        read.line(f"Epoch: {step}/100", float(i))
    assert sample_counts(read) == [50 * 32, 100 * 32, 110 * 32, 160 * 32, 200 * 32, 240 * 32]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,024", 1024),
        ("1_024", 1024),
        ("1'234'567", 1_234_567),
        ("1 234 567", 1_234_567),
        ("1\u202f234", 1234),
        ("1.234.567", 1_234_567),
        ("12.3k", 12_300),
        ("45.8M", 45_800_000),
        (" 1.5 G", 1.5e9),
        ("1e5", 1e5),
        ("4.58E+7", 4.58e7),
        ("12.5", 12.5),
        (7, 7),
    ],
)
def test_printed_number_formats_are_read(text: str | int, number: float) -> None:
    assert read_count(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "1,2", "12 34", "12kk", "1.2.3", "nan", "inf", "-3", True, None, 1e300, [1]])
def test_invalid_count_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="number"):
        read_count(text)


@pytest.mark.parametrize(
    "line",
    [
        '2026-11-25T03:44:00.123Z stdout F {"samples": 64, "loss": 0.5}',
        'INFO:root:{"samples": 64}',
        '[rank0]: {"samples": 64} (took 3 s)',
        '{rank 0} {"loss": 1} {"samples": 64}',
        "{'samples': 64, 'loss': 0.1, 'lr': 1e-3}",
        "step {'samples': 64}",
        '{"samples": "64"}',
        '{"loss": NaN, "samples": 64.0}',
    ],
)
def test_json_within_other_text_is_read(tmp_path: Path, line: str) -> None:
    read = reports(tmp_path, source="json")
    read.line(line, 1.0)
    assert sample_counts(read) == [64]


@pytest.mark.parametrize("line", ['{"a": {"samples": 9}}', "{" * 10_000, "{'samples': open('x')}", '["samples"]', "}{"])
def test_unrelated_json_is_not_counted(tmp_path: Path, line: str) -> None:
    read = reports(tmp_path, source="json")
    read.line(line, 1.0)
    assert sample_counts(read) == []
