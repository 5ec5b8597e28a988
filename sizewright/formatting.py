"""Write quantities: rounded for people, exact enough for files, and as Kubernetes reads them.

Nothing here reads a quantity, and nothing here needs pydantic: the command line starts fast.
"""

from __future__ import annotations

import math

from sizewright.errors import InputError

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4

_SCIENTIFIC = 1e12
"""Numbers from this one are written with an exponent."""
_MAX_DIGITS = 6
"""Maximum of significant digits, for any width of the interval."""


def cpu_quantity(cores: float, step_m: int = 1) -> str:
    """Return cores as a Kubernetes quantity (`500m`, `2`), rounded up to whole steps of `step_m` millicores.

    Raises InputError for an infinite number.
    """
    if not math.isfinite(cores):
        raise InputError(f"{cores} is not a number of cores.", "Give a finite number, such as 2 or 500m.")
    # Rounding first, or 0.07 cores (70.00000000000001 millicores) would become 71m.
    steps = max(1, math.ceil(round(cores * 1000 / step_m, 6)))
    millicores = steps * step_m
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def memory_quantity(memory_bytes: float) -> str:
    """Return bytes as whole Mi, rounded up: `1409286144` → `"1344Mi"`."""
    return f"{-(-math.ceil(memory_bytes) // MIB)}Mi"


def write_bytes(value: float) -> str:
    """Return bytes for a file, rounded up: `1409286144` → `"1344Mi"`, `274877906944` → `"256Gi"`."""
    mebibytes = -(-math.ceil(value) // MIB)
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"


def format_bytes(value: float) -> str:
    """Return bytes for people: `17179869184` → `"16.0 GiB"`."""
    for unit, size in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(value) >= size:
            return f"{_tenths(value / size)} {unit}"
    return f"{value:.0f} B"


def write_seconds(value: float) -> str:
    """Return seconds for a file, rounded up: `8400.5` → `"141m"`."""
    return f"{math.ceil(value / 60)}m" if value > 60 else f"{math.ceil(value)}s"


def format_seconds(value: float) -> str:
    """Return seconds for people: `14400.0` → `"4.0 h"`, `0.0123` → `"12.3 ms"`; a dash if not finite."""
    if not math.isfinite(value):
        return "–"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(value) >= size:
            return f"{_tenths(value / size)} {unit}"
    if 0 < abs(value) < 0.1:
        return f"{value * 1e3:.1f} ms" if abs(value) >= 1e-4 else f"{value:.1e} s"
    return f"{value:.2g} s" if 0 < abs(value) < 1 else f"{value:.1f} s"


def format_count(count: float, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: `1 run`, `1,200 runs`, `0.5 cores`."""
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun if count == 1 else plural or f'{noun}s'}"


def _tenths(value: float) -> str:
    return f"{value:,.1f}" if abs(value) < _SCIENTIFIC else f"{value:.2e}"


def format_number(value: float, digits: int = 3) -> str:
    """Return `113571.6` as `"113,572"` and `0.8` as `"0.800"`: all whole digits, and at least `digits` digits.

    Only this function and `format_interval` round throughput, cost and counts for people.
    """
    return _rounded(value, min(0, _exponent(value) - digits + 1)) if value else "0"


def format_percent(share: float, digits: int = 0) -> str:
    """Return a share in percent, such as `"31 %"`, with some digits after the point."""
    return f"{share:.{digits}%}".replace("%", " %")


def format_probability(probability: float) -> str:
    """Return a probability in percent: `"96 %"`, and `"> 99 %"` or `"< 1 %"` near the ends."""
    if 0.995 <= probability < 1:
        return "> 99 %"
    return "< 1 %" if 0 < probability <= 0.005 else format_percent(probability)


def format_interval(value: float, lower: float, upper: float) -> tuple[str, str, str]:
    """Round a value and the ends of its interval alike: `"114,000", "78,000", "165,000"`.

    They are rounded to two digits of half the width of the interval, since more would claim too much precision. Each
    keeps at least two digits; without a width they are written by `format_number`.
    """
    half = (upper - lower) / 2
    if not (math.isfinite(half) and half > 0):
        return format_number(value), format_number(lower), format_number(upper)
    place = max(_exponent(half) - 1, _exponent(value) - _MAX_DIGITS + 1 if value else -_MAX_DIGITS)

    def rounded(number: float) -> str:
        return _rounded(number, min(place, _exponent(number) - 1) if number else place)

    return rounded(value), rounded(lower), rounded(upper)


def describe_interval(value: float, lower: float, upper: float) -> str:
    """Return `"114,000 (78,000 to 165,000)"`."""
    value_text, lower_text, upper_text = format_interval(value, lower, upper)
    return f"{value_text} ({lower_text} to {upper_text})"


def format_cost(cost: float, rate: float, rate_lower: float, rate_upper: float) -> str:
    """Return the cost of all samples, rounded by its interval, which follows from that of the samples/s."""
    if not (rate_lower > 0 and rate_upper > 0):
        return format_number(cost)
    return format_interval(cost, cost * rate / rate_upper, cost * rate / rate_lower)[0]


def _exponent(value: float) -> int:
    """Return the power of ten of the first digit."""
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def _rounded(value: float, place: int) -> str:
    """Round to the power of ten `place`; a dash if not finite."""
    if not math.isfinite(value):
        return "–"
    if value and not 1e-4 <= abs(value) < _SCIENTIFIC:
        return f"{value:.{min(_MAX_DIGITS, max(1, _exponent(value) - place + 1))}g}"
    return f"{round(value, -place):,.{max(0, -place)}f}"
