"""The keys of every file that Sizewright reads or writes, made from the records themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from sizewright.datasets.trials.trial import Trial
from sizewright.spec import Cluster, ClusterAllocation, Job, Plan, Queue, Rails, Recommendation

_FILES: dict[str, tuple[str, type[BaseModel], bool]] = {
    "Job file": ("what to train, within which bounds", Job, True),
    "Cluster file": ("hosts and quota", Cluster, True),
    "Jobs file": ("the jobs that `allocate` divides a cluster over", Queue, True),
    "Guard rails": ("what plans are held to", Rails, True),
    "Trial table": ("a row is one measurement; CSV, Parquet and the store are views of it", Trial, False),
    "Plan": ("what an executor is to do", Plan, False),
    "Recommendation": ("what `recommend -o json` prints", Recommendation, False),
    "ClusterAllocation": ("what `allocate -o json` prints", ClusterAllocation, False),
}
_BEGIN = """# Files

The keys of what Sizewright reads and writes, made from its records; `sizewright schema` prints them as JSON Schema for
editors and pipelines. What is written is plain numbers in cores, bytes, seconds, samples/s and currency. Unknown keys
are refused, and so is a key that is given twice.

## Numbers and units

A number is read alike in every file, table, manifest and option:

| of | such as | means |
|---|---|---|
| memory | `16Gi`, `16GiB`, `16 GB`, `1e9`, `1288490188800m` | bytes; less than 4 KiB is refused: `400m` is 0.4 bytes |
| cores | `2`, `0.5`, `500m` | cores; `m` is a thousandth |
| time | `4h`, `90 min`, `1h30m`, `4:00:00`, `1 day, 2:00:00`, `PT1H30M`, `60` | seconds |
| GPUs | `2`, `a100:2`, `{kind: a100, count: 2}` | of each replica or host |
| counts and other numbers | `45840617`, `45_840_617`, `45,840,617`, `4.5e7`, `45M`, `1Ki` | a count is whole |

Suffixes are those of Kubernetes: `k`, `M`, `G`, `T`, `P`, `E` are powers of 1000, `Ki` to `Ei` of 1024, and `m`, `u`,
`n` are fractions, so that `m` is never a million. Other cases are read where they can mean one thing only (`16gb`,
`16g`). A manifest must have what Kubernetes itself reads (`1Gi`, not `1GiB`); in Slurm's scripts `K`, `M`, `G` and `T`
are powers of 1024, as Slurm has them. Commas, blanks, apostrophes and underscores group digits by three, and decimals
follow a point: `1,5` and `1.000.000` are refused. Where semicolons or tabs separate the cells of a table, decimals may
follow a comma. Where `1.234` could be either there, the table is refused.

Files are YAML or JSON. `on`, `yes`, `12:30`, `010` and dates are text, as in YAML 1.2, and `010` is 10. They are in
UTF-8, or in UTF-16 or UTF-32 with a byte order mark. A section without anything below it is as one that is left out,
and choices such as `cost` are taken in any case. Templates of Helm and Jinja are rendered first.
"""


def file_page() -> str:
    """All files as one page of Markdown."""
    return "\n".join([_BEGIN, *(_section(name, *told) for name, told in _FILES.items())])


def _section(name: str, about: str, record: type[BaseModel], read: bool) -> str:
    schema = record.model_json_schema(mode="validation" if read else "serialization")
    rows = [f"| `{key}` | {kind} | {default} | {text} |" for key, kind, default, text in _keys(schema, schema, "")]
    head = ["| key | is | default | means |", "|---|---|---|---|"]
    return "\n".join([f"## {name}\n", f"{about[0].upper()}{about[1:]}.\n", *head, *rows, ""])


def _keys(schema: dict[str, Any], root: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Each key with those below it, indented by its path; a record that holds itself is followed once."""
    for key, told in schema.get("properties", {}).items():
        inner, many = _record(told, root)
        path = f"{prefix}{key}"
        about = told.get("description") or (inner or {}).get("description", "").split("\n\n")[0].rstrip(".")
        text = " ".join(str(about).split()).replace("|", "\\|")
        yield path, _kind(told, root), _default(told, key in schema.get("required", ()), inner), text
        if inner and path.count(".") < 4:
            yield from _keys(inner, root, f"{path}{'[]' if many else ''}.")


def _record(told: dict[str, Any], root: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """The record that a key holds, and whether it holds a list of them."""
    for option in _options(told):
        if option.get("type") == "array" and isinstance(option.get("items"), dict):
            inner, _ = _record(option["items"], root)
            return inner, True
        if "$ref" in option:
            found = root["$defs"][option["$ref"].rsplit("/", 1)[1]]
            return (found, False) if "properties" in found else (None, False)
    return None, False


def _options(told: dict[str, Any]) -> list[dict[str, Any]]:
    return list(told.get("anyOf") or told.get("allOf") or told.get("oneOf") or [told])


def _kind(told: dict[str, Any], root: dict[str, Any]) -> str:
    if unit := next(
        (unit for sign, unit in _UNITS.items() for each in _options(told) if sign in each.get("pattern", "")), ""
    ):
        return unit
    options = [option for option in _options(told) if not option.get("pattern", "").endswith(_PLAIN_NUMBER)]
    kinds = (_kind(option, root) if "anyOf" in option else _one_kind(option, root) for option in options)
    return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null")) or "any"


_UNITS = {
    "[bB]": "bytes, or such as 16Gi",
    "[numk]? *$": "cores, or such as 500m",
    "[-0-9+:": "seconds, or such as 4h",
}
"""By what a string must look like to be one."""
_PLAIN_NUMBER = "][iI])? *$"
"""So ends the pattern of a number without a unit."""


def _one_kind(option: dict[str, Any], root: dict[str, Any]) -> str:
    if "enum" in option:
        return ", ".join(f"`{value}`" for value in option["enum"])
    if "const" in option:
        return f"`{option['const']}`"
    if "$ref" in option:
        found = root["$defs"][option["$ref"].rsplit("/", 1)[1]]
        return "keys" if "properties" in found else _kind(found, root)
    if option.get("type") == "array":
        items = option.get("items")
        return f"list of {_kind(items, root)}" if isinstance(items, dict) else "least and greatest"
    return {"object": "keys"}.get(option.get("type", ""), option.get("type", "any"))


def _default(told: dict[str, Any], required: bool, inner: dict[str, Any] | None) -> str:
    if required:
        return "*must be given*"
    default = told.get("default")
    return "" if default is None or inner or default in ([], {}) else f"`{default}`"
