from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.spec.units import (
    GIB,
    MIB,
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_cores,
    parse_seconds,
    write_bytes,
    write_seconds,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16Gi", 16 * GIB),
        ("512Mi", 512 * MIB),
        ("1.5Gi", 1536 * MIB),
        ("1Ki", 1024),
        ("2Ti", 2 * 1024 * GIB),
        ("2G", 2_000_000_000),
        ("3K", 3000),
        ("16 GiB", 16 * GIB),
        ("16GB", 16_000_000_000),
        ("7B", 7),
        ("1e3", 1000),
        (".5Ki", 512),
        (4096, 4096),
        (0.6, 1),
    ],
)
def test_memory(text: object, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(("text", "value"), [("500m", 0.5), ("2", 2.0), (0.25, 0.25), ("0.1", 0.1), (3, 3.0)])
def test_cores(text: object, value: float) -> None:
    assert parse_cores(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("4h", 14400), ("30m", 1800), ("90s", 90), ("250ms", 0.25), ("1d", 86400), ("1.5h", 5400), (60, 60)],
)
def test_durations(text: object, value: float) -> None:
    assert parse_seconds(text) == pytest.approx(value)


BAD = ["", "x", "4x", "-1", "Gi", "1 2", "1,5Gi", "nan", "inf", "1e999", None, True, False, [], {}, [4],
       float("inf"), float("-inf"), float("nan"), 10**400]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=lambda value: str(value)[:8])
@pytest.mark.parametrize("parse", [parse_bytes, parse_cores, parse_seconds])
def test_what_is_no_quantity_is_refused_with_an_example(parse: object, value: object) -> None:
    with pytest.raises(ValueError, match=r"is not .* \(write ") as caught:
        parse(value)  # type: ignore[operator]
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(("parse", "text"), [(parse_cores, "4Gi"), (parse_bytes, "4h"), (parse_seconds, "4Gi")])
def test_units_of_another_quantity_are_refused(parse: object, text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse(text)  # type: ignore[operator]


@given(st.floats(1, 1e15))
def test_what_is_written_for_a_file_is_enough_and_hardly_more(value: float) -> None:
    assert value <= parse_bytes(write_bytes(value)) < value + MIB + 1e-3
    assert value <= parse_seconds(write_seconds(value)) < value + 60 + 1e-3


def test_quantities_for_people() -> None:
    assert [format_bytes(v) for v in (16 * GIB, 1.5 * MIB, 12)] == ["16.0 GiB", "1.5 MiB", "12 B"]
    assert [format_seconds(v) for v in (14400, 90, 2, 172800)] == ["4.0 h", "1.5 min", "2.0 s", "2.0 d"]
