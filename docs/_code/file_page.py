"""Generate the reference of all files that Sizewright reads or writes, from its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from sizewright.datasets.trials.trial import Trial
from sizewright.spec import Cluster, ClusterAllocation, Job, Plan, Queue, Rails, Recommendation

_FILES: dict[str, tuple[str, type[BaseModel], bool]] = {
    "Job file": ("the training job and its bounds", Job, True),
    "Cluster file": ("hosts and quota", Cluster, True),
    "Jobs file": ("the jobs that share a cluster in `allocate`", Queue, True),
    "Guardrails": ("limits of plans", Rails, True),
    "Trial table": ("one measurement per row; as CSV, as Parquet and in the store", Trial, False),
    "Plan": ("a change that an executor makes", Plan, False),
    "Recommendation": ("the output of `recommend -o json`", Recommendation, False),
    "ClusterAllocation": ("the output of `allocate -o json`", ClusterAllocation, False),
}
_BEGIN = """# Files

The keys of the files that Sizewright reads and writes. This page is generated from the code; `sizewright schema` prints
the same keys as JSON Schema for editors and pipelines. Sizewright writes plain numbers in cores, bytes, seconds,
samples/s and currency. Unknown and duplicate keys are refused.

## Numbers and units

Every file, table, manifest and option accepts the same numbers:

| quantity | examples | meaning |
|---|---|---|
| memory | `16Gi`, `16GiB`, `16 GB`, `1e9`, `1288490188800m` | bytes; less than 4 KiB is refused: `400m` is 0.4 bytes |
| cores | `2`, `0.5`, `500m` | cores; `m` is a thousandth |
| time | `4h`, `90 min`, `1h30m`, `4:00:00`, `1 day, 2:00:00`, `PT1H30M`, `60` | seconds |
| GPUs | `2`, `a100:2`, `{kind: a100, count: 2}` | of each replica or host |
| counts and other numbers | `45840617`, `45_840_617`, `45,840,617`, `4.5e7`, `45M`, `1Ki` | a count is whole |

Suffixes are those of Kubernetes: `k`, `M`, `G`, `T`, `P`, `E` are powers of 1000, `Ki` to `Ei` of 1024, and `m`, `u`,
`n` are fractions, so `m` is never a million. Other upper and lower case is accepted if it is unambiguous (`16gb`,
`16g`). A manifest must use the suffixes of Kubernetes (`1Gi`, not `1GiB`); in Slurm scripts `K`, `M`, `G` and `T` are
powers of 1024, as in Slurm. Commas, blanks, apostrophes and underscores group digits by three, and the decimal
separator is a point: `1,5` and `1.000.000` are refused. In tables with semicolons or tabs between cells, it may be a
comma. If `1.234` is ambiguous in such a table, the table is refused.

Files are YAML or JSON. `on`, `yes`, `12:30`, `010` and dates are text, as in YAML 1.2, and `010` is 10. The encoding is
UTF-8, or UTF-16 or UTF-32 with a byte order mark. An empty section is the same as an absent one, and choices such as
`cost` may be in upper or lower case. Templates of Helm and Jinja must be rendered first.
"""


def file_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_BEGIN, *(_section(name, *entry) for name, entry in _FILES.items())])


def _section(name: str, about: str, record: type[BaseModel], read: bool) -> str:
    schema = record.model_json_schema(mode="validation" if read else "serialization")
    rows = [f"| `{key}` | {kind} | {default} | {text} |" for key, kind, default, text in _keys(schema, schema, "")]
    head = ["| key | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {name}\n", f"{about[0].upper()}{about[1:]}.\n", *head, *rows, ""])


def _keys(schema: dict[str, Any], root: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield path, type, default and meaning of each key and of the keys below it, at most five levels deep."""
    for key, field in schema.get("properties", {}).items():
        inner, many = _record(field, root)
        path = f"{prefix}{key}"
        about = field.get("description") or (inner or {}).get("description", "").split("\n\n")[0].rstrip(".")
        text = " ".join(str(about).split()).replace("|", "\\|")
        yield path, _kind(field, root), _default(field, key in schema.get("required", ()), inner), text
        if inner and path.count(".") < 4:
            yield from _keys(inner, root, f"{path}{'[]' if many else ''}.")


def _record(field: dict[str, Any], root: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """Return the schema of the record below a key, if any, and True if the key holds a list of records."""
    for option in _options(field):
        if option.get("type") == "array" and isinstance(option.get("items"), dict):
            inner, _ = _record(option["items"], root)
            return inner, True
        if "$ref" in option:
            schema = root["$defs"][option["$ref"].rsplit("/", 1)[1]]
            return (schema, False) if "properties" in schema else (None, False)
    return None, False


def _options(field: dict[str, Any]) -> list[dict[str, Any]]:
    return list(field.get("anyOf") or field.get("allOf") or field.get("oneOf") or [field])


def _kind(field: dict[str, Any], root: dict[str, Any]) -> str:
    if unit := next(
        (unit for part, unit in _UNITS.items() for option in _options(field) if part in option.get("pattern", "")), ""
    ):
        return unit
    options = [option for option in _options(field) if not option.get("pattern", "").endswith(_PLAIN_NUMBER)]
    kinds = (_kind(option, root) if "anyOf" in option else _one_kind(option, root) for option in options)
    return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null")) or "any"


_UNITS = {
    "[bB]": "bytes, or a string like 16Gi",
    "[numk]? *$": "cores, or a string like 500m",
    "[-0-9+:": "seconds, or a string like 4h",
}
"""The type of a quantity, by a part of the pattern that its strings must match."""
_PLAIN_NUMBER = "][iI])? *$"
"""The end of the pattern of a number without a unit."""


def _one_kind(option: dict[str, Any], root: dict[str, Any]) -> str:
    if "enum" in option:
        return ", ".join(f"`{value}`" for value in option["enum"])
    if "const" in option:
        return f"`{option['const']}`"
    if "$ref" in option:
        schema = root["$defs"][option["$ref"].rsplit("/", 1)[1]]
        return "keys" if "properties" in schema else _kind(schema, root)
    if option.get("type") == "array":
        items = option.get("items")
        return f"list of {_kind(items, root)}" if isinstance(items, dict) else "[minimum, maximum]"
    return str({"object": "keys"}.get(option.get("type", ""), option.get("type", "any")))


def _default(field: dict[str, Any], required: bool, inner: dict[str, Any] | None) -> str:
    if required:
        return "*required*"
    default = field.get("default")
    return "" if default is None or inner or default in ([], {}) else f"`{default}`"
