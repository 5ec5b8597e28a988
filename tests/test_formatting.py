"""Numbers are rounded for people by one module."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.formatting import (
    describe_interval,
    format_bytes,
    format_interval,
    format_number,
    format_probability,
    format_seconds,
)

NUMBERS = st.floats(-1e300, 1e300)


def read(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize(
    ("value", "text"),
    [(113_571.6, "113,572"), (0.8, "0.800"), (0.0, "0"), (12.345, "12.3"), (1e15, "1e+15"), (2.5e-9, "2.5e-09"),
     (math.inf, "–"), (math.nan, "–")],
)  # fmt: skip
def test_number_keeps_integer_digits_and_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "lower", "upper", "text"),
    [
        (113_572, 78_386, 164_553, "114,000 (78,000 to 165,000)"),
        (31_342, 26_179, 37_524, "31,300 (26,200 to 37,500)"),
        (17_090.4, 16_900, 17_201.2, "17,090 (16,900 to 17,200)"),
        (1.18, 0.812, 1.7, "1.18 (0.81 to 1.70)"),
        (100, 1, 50_000, "100 (1.0 to 50,000)"),
        (12, 12, 12, "12.0 (12.0 to 12.0)"),
    ],
)
def test_interval_decides_the_digits_of_a_value_and_its_ends(
    value: float, lower: float, upper: float, text: str
) -> None:
    assert describe_interval(value, lower, upper) == text


@given(NUMBERS)
def test_number_is_off_by_less_than_half_a_percent(value: float) -> None:
    assert read(format_number(value)) == pytest.approx(value, rel=0.0051, abs=1e-320)


@given(st.lists(NUMBERS, min_size=3, max_size=3).map(sorted))
def test_interval_is_off_by_less_than_five_percent_of_itself_or_of_its_width(numbers: list[float]) -> None:
    lower, value, upper = numbers
    for number, text in zip((value, lower, upper), format_interval(value, lower, upper), strict=True):
        assert abs(read(text) - number) <= max(0.0501 * abs(number), 1e-320)


@given(NUMBERS)
def test_every_quantity_is_formatted_in_a_short_text(value: float) -> None:
    for text in (
        format_number(value),
        format_bytes(value),
        format_seconds(value),
        *format_interval(value, value, value),
    ):
        assert len(text) <= 26, text


def test_seconds_of_any_size_are_formatted() -> None:
    texts = [format_seconds(value) for value in (0.0, 0.0123, 1e-9, 1e300, math.nan)]
    assert texts == ["0.0 s", "12.3 ms", "1.0e-09 s", "1.16e+295 d", "–"]


def test_probability_is_never_rounded_to_certainty() -> None:
    texts = [format_probability(each) for each in (0.0, 0.004, 0.005, 0.956, 0.9949, 0.9951, 1.0)]
    assert texts == ["0 %", "< 1 %", "< 1 %", "96 %", "99 %", "> 99 %", "100 %"]
