"""YAML and JSON texts of users: what a person would take them for, and no key twice."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any, ClassVar

import yaml

_MERGE = "tag:yaml.org,2002:merge"


class KeyTwiceError(ValueError):
    """A mapping has a key twice, of which a reader would lose one."""


class NoDuplicates:
    """Of loaders of PyYAML: refuses a key that a mapping has twice. A key that overrides a merged one is none."""

    def get_single_node(self) -> Any:
        """The whole document, checked before merges change it."""
        return _checked(super().get_single_node())  # type: ignore[misc]

    def get_node(self) -> Any:
        """The next document, checked before merges change it."""
        return _checked(super().get_node())  # type: ignore[misc]


def _checked(root: Any) -> Any:
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys([key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE])
            waiting += [each for pair in node.value for each in pair]
        else:
            waiting += node.value
    return root


def _check_keys(keys: list[yaml.ScalarNode]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key in keys:
        line, name = key.start_mark.line + 1, (key.tag, key.value)
        if name in lines:
            places = f"at line {lines[name]} and at line {line}" if lines[name] != line else f"both at line {line}"
            raise KeyTwiceError(f"the key '{key.value}' is given twice, {places}")
        lines[name] = line


class _PlainLoader(NoDuplicates, yaml.SafeLoader):
    """Of YAML 1.1, without what surprises people: `on`, `yes`, `12:30`, `010` and dates stay text, as YAML 1.2 has it.

    Records read text as their field needs it: `on` is true for a switch, and `010` is 10 for a count.
    """

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {}  # type: ignore[misc]

    def construct_float(self, node: Any) -> Any:
        """A number that a float would change stays text, which records read exactly."""
        number = self.construct_yaml_float(node)
        text = self.construct_scalar(node)
        if not text.strip("+-.0123456789eE") and Fraction(text) != Fraction(repr(number)):
            return text
        return number


_PLAIN = {
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    "tag:yaml.org,2002:null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    _MERGE: (r"<<", "<"),
}
for _tag, (_pattern, _first) in _PLAIN.items():
    _PlainLoader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), list(_first))
_PlainLoader.add_constructor("tag:yaml.org,2002:float", _PlainLoader.construct_float)


def read_yaml(text: str) -> Any:
    """The value of a YAML or JSON text. Raises KeyTwiceError, yaml.YAMLError, ValueError or RecursionError."""
    return yaml.load(text, _PlainLoader)


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, KeyTwiceError among them, or RecursionError."""
    return json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, text))


def _object(pairs: list[tuple[str, Any]], text: str) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        read_yaml(text)  # tells the lines
        key = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise KeyTwiceError(f"the key '{key}' is given twice")
    return made
