"""Units as people write them (`16Gi`, `500m`, `4h`) and as records hold them (bytes, cores, seconds)."""

from __future__ import annotations

import math
import re
import reprlib
import sys
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

if TYPE_CHECKING:
    from sizewright.spec.job import Prices

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4

_BYTES = {"": 1, "B": 1}
for _power, _unit in enumerate("KMGT", 1):
    _BYTES |= {_unit: 1000**_power, f"{_unit}B": 1000**_power, f"{_unit}I": 1024**_power, f"{_unit}IB": 1024**_power}
_SECONDS = {"": 1.0, "MS": 1e-3, "S": 1.0, "M": 60.0, "H": 3600.0, "D": 86400.0}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: Any) -> int:
    """`"16Gi"` → 17179869184; plain numbers are bytes. A fraction of a byte is rounded."""
    return round(_parse(value, _BYTES, "memory", "16Gi, 512Mi or bytes"))


def parse_cores(value: Any) -> float:
    """`"500m"` → 0.5; plain numbers are cores."""
    return _parse(value, {"": 1.0, "M": 1e-3}, "cores", "2, 0.5 or 500m")


def parse_seconds(value: Any) -> float:
    """`"4h"` → 14400.0; plain numbers are seconds."""
    return _parse(value, _SECONDS, "a duration", "4h, 30m or seconds")


def _parse(value: Any, scale: dict[str, Any], what: str, example: str) -> float:
    number = _number(value, scale)
    if number is None or not math.isfinite(number):
        raise ValueError(f"{reprlib.repr(value)} is not {what} (write {example})")
    return number


def _number(value: Any, scale: dict[str, Any]) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < sys.float_info.max else math.inf
    match = _NUMBER.fullmatch(str(value))
    unit = match.group(2).upper() if match else None
    return float(match.group(1)) * float(scale[unit]) if match and unit in scale else None


def format_bytes(value: float) -> str:
    """`17179869184` → `"16.0 GiB"`."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(value) >= size:
            return f"{_tenths(value / size)} {unit}"
    return f"{value:.0f} B"


def write_bytes(value: float) -> str:
    """`1409286144` → `"1344Mi"`: rounded up, as a file takes it."""
    return f"{math.ceil(value / MIB)}Mi"


def write_seconds(value: float) -> str:
    """`8400.5` → `"141m"`: rounded up, as a file takes it."""
    return f"{math.ceil(value / 60)}m" if value > 60 else f"{math.ceil(value)}s"


def format_seconds(value: float) -> str:
    """`14400.0` → `"4.0 h"`, `0.0123` → `"12.3 ms"`; a dash for what is not finite."""
    if not math.isfinite(value):
        return "–"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(value) >= size:
            return f"{_tenths(value / size)} {unit}"
    if 0 < abs(value) < 0.1:
        return f"{value * 1e3:.1f} ms" if abs(value) >= 1e-4 else f"{value:.1e} s"
    return f"{value:.1f} s"


def _tenths(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < _SCIENTIFIC else f"{value:.2e}"


def _written(pattern: str) -> WithJsonSchema:
    """The JSON Schema of a number that may be written with its unit."""
    return WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": pattern}]}, mode="validation")


Bytes = Annotated[int, BeforeValidator(parse_bytes), _written(r"^[0-9.]+ *([KMGT]i?)?B?$")]
Cores = Annotated[float, BeforeValidator(parse_cores), _written(r"^[0-9.]+m?$")]
Seconds = Annotated[float, BeforeValidator(parse_seconds), _written(r"^[0-9.]+ *(ms|s|m|h|d)?$")]


def format_count(count: int, noun: str) -> str:
    """`1 run`, `1,200 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_SCIENTIFIC = 1e12
"""Numbers from here on are written with an exponent."""
_MOST_DIGITS = 6
"""Of a value, however narrow its interval is."""


def format_number(value: float, digits: int = 3) -> str:
    """Return `113571.6` as `"113,572"` and `0.8` as `"0.800"`: all whole digits, and at least `digits` digits.

    This and `format_interval` are the only places that round throughput, cost and counts for people to read.
    """
    return _rounded(value, min(0, _exponent(value) - digits + 1)) if value else "0"


def format_interval(value: float, lower: float, upper: float) -> tuple[str, str, str]:
    """Round a value and the ends of its interval alike: `"114,000", "78,000", "165,000"`.

    They are rounded to two digits of half the width of the interval, as more would claim what is not known. Each
    keeps two digits of its own, and without a width they are written by `format_number`.
    """
    half = (upper - lower) / 2
    if not (math.isfinite(half) and half > 0):
        return format_number(value), format_number(lower), format_number(upper)
    place = max(_exponent(half) - 1, _exponent(value) - _MOST_DIGITS + 1 if value else -_MOST_DIGITS)
    value_, lower_, upper_ = (_rounded(each, min(place, _exponent(each) - 1) if each else place)
                              for each in (value, lower, upper))  # fmt: skip
    return value_, lower_, upper_


def describe_interval(value: float, lower: float, upper: float) -> str:
    """Return `"114,000 (78,000 to 165,000)"`."""
    value_, lower_, upper_ = format_interval(value, lower, upper)
    return f"{value_} ({lower_} to {upper_})"


def format_cost(cost: float, rate: float, rate_lower: float, rate_upper: float) -> str:
    """Round the cost of all samples as the interval of the samples/s says, which it falls with."""
    if not (rate_lower > 0 and rate_upper > 0):
        return format_number(cost)
    return format_interval(cost, cost * rate / rate_upper, cost * rate / rate_lower)[0]


def describe_prices(prices: Prices, *, gpus: bool = False) -> str:
    """Return `"1 a core-hour and 0.13 a GiB-hour (the default prices)"`: the unit of every cost that is shown."""
    parts = [f"{prices.core_hour:g} a core-hour", f"{prices.gib_hour:g} a GiB-hour"]
    parts += [f"{prices.gpu_hour:g} a GPU-hour"] if gpus else []
    default = " (the default prices)" if prices == type(prices)() else ""
    return f"{', '.join(parts[:-1])} and {parts[-1]}{default}"


def _exponent(value: float) -> int:
    """Return the power of ten of the first digit."""
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def _rounded(value: float, place: int) -> str:
    """Round to the power of ten `place`; a dash for what is not finite."""
    if not math.isfinite(value):
        return "–"
    if value and not 1e-4 <= abs(value) < _SCIENTIFIC:
        return f"{value:.{min(_MOST_DIGITS, max(1, _exponent(value) - place + 1))}g}"
    return f"{round(value, -place):,.{max(0, -place)}f}"
