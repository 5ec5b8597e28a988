"""Units as people write them (`16Gi`, `500m`, `4h`) and as records hold them (bytes, cores, seconds)."""

from __future__ import annotations

import math
import re
import reprlib
import sys
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

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
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def write_bytes(value: float) -> str:
    """`1409286144` → `"1344Mi"`: rounded up, as a file takes it."""
    return f"{math.ceil(value / MIB)}Mi"


def write_seconds(value: float) -> str:
    """`8400.5` → `"141m"`: rounded up, as a file takes it."""
    return f"{math.ceil(value / 60)}m" if value > 60 else f"{math.ceil(value)}s"


def format_seconds(value: float) -> str:
    """`14400.0` → `"4.0 h"`."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s"


def _written(pattern: str) -> WithJsonSchema:
    """The JSON Schema of a number that may be written with its unit."""
    return WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": pattern}]}, mode="validation")


Bytes = Annotated[int, BeforeValidator(parse_bytes), _written(r"^[0-9.]+ *([KMGT]i?)?B?$")]
Cores = Annotated[float, BeforeValidator(parse_cores), _written(r"^[0-9.]+m?$")]
Seconds = Annotated[float, BeforeValidator(parse_seconds), _written(r"^[0-9.]+ *(ms|s|m|h|d)?$")]


def format_count(count: int, noun: str) -> str:
    """`1 run`, `1,200 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
