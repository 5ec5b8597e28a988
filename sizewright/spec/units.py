"""Parse quantities: numbers as people write them, with a unit or without.

Every Kubernetes quantity is read (`500m`, `16Gi`, `1G`, `1e3`, `1288490188800m`), and other common forms:
`16 GiB`, `16gb`, `4h`, `1h30m`, `PT1H30M`, `1 day, 2:00:00`, `4.5e7`, `1,000,000`, `45_840_617`. A lower-case `m` is a
thousandth (in a duration a minute) and never a million. Records hold cores, bytes, seconds and plain numbers.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import FiniteFloat, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from sizewright.errors import InputError
from sizewright.formatting import KIB
from sizewright.redaction import shortened

_MAX_BYTES = 2**63 - 1  # as in databases, Kubernetes and file systems

_SCALES = {unit: Fraction(1000) ** power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))}
_SCALES |= {unit: Fraction(1, 1000**power) for power, unit in enumerate("mun", 1)}
_SCALES |= {f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)}
_LOWER = {unit.lower(): scale for unit, scale in _SCALES.items() if unit not in ("M", "E")}
_COUNT_UNITS = _LOWER | _SCALES
_BYTE_UNITS = {
    f"{unit.lower()}b": scale for unit, scale in _SCALES.items() if unit not in ("m", "u", "n")
} | _COUNT_UNITS
_CORE_UNITS = {unit: _SCALES[unit] for unit in ("", "n", "u", "m", "k")}
_TIMES = {1: "s sec secs second seconds", 60: "m min mins minute minutes", 3600: "h hr hrs hour hours",
          86400: "d day days", 604800: "w week weeks"}  # fmt: skip
_SECOND_UNITS: dict[str, Fraction | int] = {"": 1, "ms": Fraction(1, 1000)}
_SECOND_UNITS |= {unit: seconds for seconds, units in _TIMES.items() for unit in units.split()}

_NUMBER = r"[+-]?(?:[0-9][0-9_,'\s]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*")
_DURATION = re.compile(rf"\s*(?=[0-9.])({_NUMBER})\s*([A-Za-z]+)\s*(?:,|and\b)?")
_CLOCK = re.compile(
    r"\s*(?:(\d+)(?:-|\s*d(?:ays?)?,?\s+))?(\d+):([0-5]?\d):([0-5]?\d(?:\.\d+)?)\s*", re.ASCII | re.IGNORECASE
)
_ISO_AMOUNT = r"(\d+(?:[.,]\d+)?)"
_ISO = re.compile(
    rf"\s*P(?=.*\d)(?:{_ISO_AMOUNT}W)?(?:{_ISO_AMOUNT}D)?"
    rf"(?:T(?=\d)(?:{_ISO_AMOUNT}H)?(?:{_ISO_AMOUNT}M)?(?:{_ISO_AMOUNT}S)?)?\s*",
    re.ASCII | re.IGNORECASE,
)
"""ISO 8601 durations, without years and months, whose length varies."""
_DIGITS = re.compile(r"[+-]?(?:[0-9]+(?:_[0-9]+)*|[1-9][0-9]{0,2}([,'\s])[0-9]{3}(?:\1[0-9]{3})*)?(?:\.[0-9]*)?")
_KUBERNETES_QUANTITY = re.compile(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[munkMGTPE]|[KMGTPE]i)?")
_PLAIN = re.compile(r"[0-9]{1,15}(\.[0-9]{1,17})?")
Amount = TypeVar("Amount", int, float)
_MAX_LENGTH = 100
_MAX_EXPONENT = 400


class QuantityError(ValueError):
    """A text or value that is not what is `expected`, such as an amount of memory or a number of cores."""

    def __init__(self, message: str, expected: str) -> None:
        super().__init__(message)
        self.expected = expected


def parse_bytes(value: Any) -> int:
    """Return bytes: `"16Gi"` → 17179869184; plain numbers are bytes. A fraction is rounded up, as in Kubernetes.

    Less memory than a page (4 KiB) is refused, since another unit is meant: `400m` is 0.4 bytes.
    """
    return _parse_bytes(value, minimum=4 * KIB)


def parse_byte_count(value: Any) -> int:
    """Return bytes like `parse_bytes`, for amounts that may be small; less than one byte is refused."""
    return _parse_bytes(value, minimum=1)


def _parse_bytes(value: Any, minimum: int) -> int:
    if type(value) is int and (minimum <= value <= _MAX_BYTES or value == 0):
        return value
    example = "16Gi, 512M or bytes"
    amount = _parse(value, _BYTE_UNITS, "an amount of memory", example)
    if 0 < amount < minimum:
        few = "1 byte" if amount == 1 else f"{float(amount):g} bytes"
        raise ValueError(f"{shortened(value)} is only {few} of memory (write a unit, such as 400Mi or 400M)")
    if amount > _MAX_BYTES:
        raise ValueError(f"{shortened(value)} is not an amount of memory: it is above 8 EiB (write {example})")
    return math.ceil(amount)


def parse_cores(value: Any) -> float:
    """Return cores: `"500m"` → 0.5; plain numbers are cores."""
    if type(value) is float and math.isfinite(value):
        return value
    return float(_parse(value, _CORE_UNITS, "a number of cores", "2, 0.5 or 500m"))


def parse_number(value: Any) -> float:
    """Return a number: `"4.5e7"`, `"45,000,000"` and `"45M"` → 45000000.0."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return float(value)
    return float(_parse(value, _COUNT_UNITS, "a number", "12.5, 1e6 or 1,000,000"))


def parse_count(value: Any) -> int:
    """Return a whole number: `"4.5e7"`, `"45,000,000"`, `"45_000_000"` and `"45M"` → 45000000; not a fraction."""
    number = _parse(value, _COUNT_UNITS, "a whole number", "16, 1e6 or 1,000,000")
    if number.denominator != 1:
        hint = ": m is a thousandth, M a million" if str(value).strip().endswith("m") else ""
        raise QuantityError(
            f"{shortened(value)} is not a whole number{hint} (write 16, 1e6 or 1,000,000)", "a whole number"
        )
    return number.numerator


def parse_seconds(value: Any) -> float:
    """Return seconds: `"4h"`, `"3h60m"`, `"4:00:00"` and `"PT4H"` → 14400.0; plain numbers are seconds."""
    what, example = "a duration", "4h, 1h30m, 4:00:00 or seconds"
    if isinstance(value, str) and len(value) <= _MAX_LENGTH:
        if clock := _CLOCK.fullmatch(value):
            days, hours, minutes, seconds = clock.groups()
            return float(int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds))
        if iso := _ISO.fullmatch(value):
            amounts = (Fraction((each or "0").replace(",", ".")) for each in iso.groups())
            return float(sum(a * s for a, s in zip(amounts, (604800, 86400, 3600, 60, 1), strict=True)))
        if re.fullmatch(r"\s*P[\dYMWDTHS.,]+\s*", value, re.ASCII):
            raise ValueError(
                f"{shortened(value)} is not {what}: of ISO 8601, weeks, days and times such as P1DT12H "
                f"(write {example})"
            )
        if re.fullmatch(r"\s*\d+:\d+\s*", value):
            raise ValueError(f"{shortened(value)} is not {what}: it could be hours or minutes (write {example})")
        parts = list(_DURATION.finditer(value))
        if len(parts) > 1 and "".join(part[0] for part in parts) == value.rstrip() and value.rstrip()[-1:] != ",":
            return sum(parse_seconds(f"{part[1]}{part[2]}") for part in parts)
    return float(_parse(value, _SECOND_UNITS, what, example))


def _parse(value: Any, scales: Mapping[str, Fraction | int], what: str, example: str) -> Fraction:
    """Return the exact number. Raises QuantityError with one sentence for other values."""
    why = ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if abs(value) < sys.float_info.max:  # false for infinite and missing numbers
            return Fraction(value) if isinstance(value, int) else Fraction(repr(float(value)))
    elif isinstance(value, str):
        match = _QUANTITY.fullmatch(value) if len(value) <= _MAX_LENGTH else None
        unit = match[2] if match else ""
        scale = scales.get(unit if unit in scales or _is_exact(unit, scales) else unit.lower())
        number = _number(match[1].strip()) if match else None
        if number is not None and scale is not None and abs(number * scale) < sys.float_info.max:
            if number >= 0 or scales is _COUNT_UNITS:
                return number * scale
            why = ": it is negative"
        else:
            why = _why(value.strip(), unit)
    raise QuantityError(f"{shortened(value)} is not {what}{why} (write {example})", what)


def _is_exact(unit: str, scales: Mapping[str, Fraction | int]) -> bool:
    """Return whether the case of a unit matters: `M` is a million, `m` a thousandth (or a minute)."""
    return unit in ("M", "N", "U", "E") and scales is not _SECOND_UNITS


def _number(text: str) -> Fraction | None:
    digits, _, exponent = text.lower().partition("e")
    if not _DIGITS.fullmatch(digits) or not any(each.isdigit() for each in digits):
        return None
    if exponent and abs(int(exponent)) > _MAX_EXPONENT:
        return None
    return Fraction(re.sub(r"[_,'\s]", "", digits)) * Fraction(10) ** int(exponent or 0)


def _why(text: str, unit: str) -> str:
    """Return what is wrong with the digits of a number, for common mistakes."""
    if re.match(r"\d+,\d", text) or (text.count(",") and text.count(".")):
        return ": a point goes before decimals, commas group digits by three"
    if re.match(r"\d+\.\d+\.\d", text):
        return ": it has more than one decimal point"
    if re.match(r"0[xob]", text, re.IGNORECASE):
        return ": digits are decimal"
    if unit and unit != text:
        return f": it has no unit {unit}" if unit != "e" else ": no exponent follows its e"
    return ""


def read_cores(value: Any, field: str) -> float:
    """Return the cores in a field of a manifest: `400m` → 0.4. Raises InputError for what Kubernetes refuses."""
    return _read_manifest(value, field, parse_cores, "Write cores such as 2, 0.4 or 400m.")


def read_bytes(value: Any, field: str) -> int:
    """Return the bytes in a field of a manifest: `1Gi` → 1073741824. Raises InputError for what Kubernetes refuses."""
    return _read_manifest(value, field, parse_bytes, "Write 512Mi, 1Gi, 1G or bytes.")


def _read_manifest(value: Any, field: str, parse: Callable[[Any], Amount], remedy: str) -> Amount:
    written = f"{field} is '{value}'"
    try:
        amount = parse(value)
    except ValueError as error:
        why = str(error).removeprefix(shortened(value)).partition(" (write")[0]
        raise InputError(f"{written}, which{why}.", remedy) from None
    if amount <= 0:
        raise InputError(f"{written}, but it must be above 0.", remedy)
    if isinstance(value, str) and not _KUBERNETES_QUANTITY.fullmatch(value.strip()):
        raise InputError(f"{written}, which Kubernetes does not accept.", remedy)
    return amount


@dataclass(frozen=True)
class Quantity:
    """An annotation for a number that may be written as text: `parse` reads it, `pattern` is its JSON Schema."""

    parse: Callable[[Any], Any]
    pattern: str
    text_only: bool = False
    """True if plain numbers are validated by pydantic instead of `parse`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        read = self._text if self.text_only else self.parse
        return no_info_before_validator_function(read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        number = handler(schema)
        if handler.mode == "serialization":
            return number
        return {"anyOf": [number, {"type": "string", "pattern": self.pattern}]}

    def _text(self, value: Any) -> Any:
        return self.parse(value) if isinstance(value, (str, bool)) else value


_WRITTEN = r"^ *\+?([0-9][0-9_,' ]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)? *"
_BYTES_WRITTEN = _WRITTEN + r"([numkKMGTPEgtp]|[KMGTPEkmgtpe]([iI]?[bB]|[iI])|[bB])? *$"
_CORES_WRITTEN = _WRITTEN + r"[numk]? *$"
_SECONDS_WRITTEN = r"^ *[0-9+.Pp][-0-9+:.,_' a-zA-Z]*$"
_COUNT_WRITTEN = _WRITTEN + r"([numkKMGTPEgtp]|[KMGTPEkmgtpe][iI])? *$"

Bytes = Annotated[int, Quantity(parse_bytes, _BYTES_WRITTEN)]
ByteCount = Annotated[int, Quantity(parse_byte_count, _BYTES_WRITTEN)]
Cores = Annotated[float, Quantity(parse_cores, _CORES_WRITTEN)]
Seconds = Annotated[float, Quantity(parse_seconds, _SECONDS_WRITTEN)]
Count = Annotated[int, Quantity(parse_count, _COUNT_WRITTEN, text_only=True)]
Number = Annotated[FiniteFloat, Quantity(parse_number, _COUNT_WRITTEN, text_only=True)]

# For measurements, where any plain number is accepted.
MeasuredBytes = Annotated[int, Quantity(parse_bytes, _BYTES_WRITTEN, text_only=True)]
MeasuredByteCount = Annotated[int, Quantity(parse_byte_count, _BYTES_WRITTEN, text_only=True)]
MeasuredCores = Annotated[float, Quantity(parse_cores, _CORES_WRITTEN, text_only=True)]
MeasuredSeconds = Annotated[float, Quantity(parse_seconds, _SECONDS_WRITTEN, text_only=True)]
MeasuredNumber = Annotated[float, Quantity(parse_number, _COUNT_WRITTEN, text_only=True)]


def is_count(text: str) -> bool:
    """Return whether a text is a whole number that fits into a 64-bit integer."""
    return text.isascii() and text.isdecimal() and len(text) < 19
