"""Amounts as Kubernetes writes them: `500m` and `2` cores, `512Mi`, `1G` and `1e9` bytes."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any, NamedTuple

from sizewright.errors import InputError
from sizewright.spec.units import KIB, MIB

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {f"{unit}i": power for power, unit in enumerate("KMGTPE", 1)}
_SCALES = {unit: Fraction(10) ** power for unit, power in _DECIMAL.items()} | {
    unit: Fraction(1024) ** power for unit, power in _BINARY.items()
}
_QUANTITY = re.compile(r"(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i))?")
_OF_CORES = ("n", "u", "m", "")
_LEAST_BYTES = 4 * KIB  # a page: less was meant to be something else


class _Quantity(NamedTuple):
    amount: Fraction
    unit: str


def cpu_quantity(cores: float, step_m: int = 1) -> str:
    """Cores as Kubernetes writes them (`500m`, `2`), rounded up to whole steps of `step_m` millicores.

    Raises InputError for an infinite number.
    """
    if not math.isfinite(cores):
        raise InputError(f"{cores} is not a number of cores.", "Give a finite number, such as 2 or 500m.")
    # Rounding first, or 0.07 cores (70.00000000000001 millicores) would become 71m.
    steps = max(1, math.ceil(round(cores * 1000 / step_m, 6)))
    millicores = steps * step_m
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def memory_quantity(memory_bytes: int) -> str:
    """Bytes in whole Mi, rounded up."""
    return f"{-(-memory_bytes // MIB)}Mi"


def read_cores(value: Any, field: str) -> float:
    """`400m` → 0.4. Raises InputError that names the field of what is no number of cores above 0."""
    found = _read(value)
    if found is None or found.amount <= 0 or found.unit not in _OF_CORES:
        what = "an amount of memory" if found and found.unit not in _OF_CORES else "not a number of cores above 0"
        raise InputError(f"{field} is '{value}', which is {what}.", "Write cores such as 2, 0.4 or 400m.")
    return float(found.amount)


def read_bytes(value: Any, field: str) -> int:
    """`1Gi` → 1073741824, `1G` → 1000000000. Raises InputError that names the field of what is no amount of memory, or
    so little that another unit was meant (`400m` are 0.4 bytes)."""
    found = _read(value)
    if found is None:
        raise InputError(f"{field} is '{value}', which is not an amount of memory.", "Write 512Mi, 1Gi, 1G or bytes.")
    if found.amount < _LEAST_BYTES:
        raise InputError(
            f"{field} is '{value}', which is {float(found.amount):g} bytes.",
            "Write the unit of what you mean: 400Mi (1048576 bytes each), 400M (1000000), 1Gi or 1G.",
        )
    return math.ceil(found.amount)


def _read(value: Any) -> _Quantity | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    match = _QUANTITY.fullmatch(str(value).strip())
    if not match:
        return None
    number, exponent, unit = match.groups()
    return _Quantity(Fraction(number) * Fraction(10) ** int(exponent or 0) * _SCALES[unit or ""], unit or "")
