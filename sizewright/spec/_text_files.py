"""Texts of users: their encoding, templates among them, and YAML and JSON as a person reads it, with no key twice."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import yaml

from sizewright.errors import InputError
from sizewright.spec._json import loads

_MERGE = "tag:yaml.org,2002:merge"
_BY_MARK = (  # the longer mark first: that of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MOST_NODES = 1_000_000
"""Of a YAML document, with all that its aliases repeat."""
MOST_MIB = 4
"""Of a YAML text: more takes minutes."""
_MOST_DIGITS = 300
OF_TAGS = (IndexError, KeyError, TypeError, AttributeError, OverflowError)
"""What PyYAML raises for values that are not of the kind of their tag, such as !!int ''."""
_COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{\{|\{%")
_OF_CODE = frozenset({"command", "args", "env", "annotations", "entrypoint", "run", "pattern", "reason"})
"""Keys below which double braces are code or prose and no template."""


def read_text(path: str | Path, what: str) -> str:
    """All of a text file, with its line breaks. Raises OSError, and InputError for what is not text."""
    return decode(Path(path).read_bytes(), f"The {what} {path}")


def decode(data: bytes, name: str) -> str:
    """Text in UTF-8, or in what its byte order mark says. Raises InputError for bytes that are no such text."""
    if data.startswith(_COMPRESSED):
        raise InputError(f"{name} is compressed.", "Unpack it first.")
    encoding = next((encoding for mark, encoding in _BY_MARK if data.startswith(mark)), "utf-8-sig")
    if encoding == "utf-8-sig" and b"\0" in data:
        raise InputError(
            f"{name} is not UTF-8: it holds NULs, as UTF-16 without a byte order mark does.", "Save it as UTF-8."
        )
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise InputError(f"{name} begins like {encoding.upper()} and is not.", "Save it as UTF-8.") from None
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at line {line}.",
            "Save it as UTF-8, such as by: iconv -f latin1 -t utf-8 OLD > NEW.",
        ) from None


def check_rendered(found: Any, name: str) -> None:
    """Raises InputError where a value that was read is still a template of Helm or Jinja."""
    for text in _templated(found):
        raise _unrendered(name, text)


def check_text_rendered(text: str, name: str) -> None:
    """The same for a text that cannot be read."""
    for number, line in enumerate(text.splitlines(), 1):
        if (template := _TEMPLATE.search(line)) and not line.lstrip().startswith("#"):
            raise _unrendered(f"{name}, line {number},", template[0])


def _unrendered(name: str, text: str) -> InputError:
    return InputError(
        f"{name} is a template of Helm or Jinja: it holds {' '.join(text.split()):.60}.",
        "Render the template first (helm template CHART > manifest.yaml, or jinja2), and pass the result.",
    )


def _templated(found: Any) -> Iterator[str]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            if isinstance(key, Mapping):  # `{{ x }}` without quotes is a mapping whose key is a mapping
                yield "{{ " + ", ".join(map(str, key)) + " }}"
            elif key not in _OF_CODE:
                yield from _templated(value)
    elif isinstance(found, (list, tuple)):
        for each in found:
            yield from _templated(each)
    elif isinstance(found, str) and "\n" not in found and (template := _TEMPLATE.search(found)):
        yield template[0]


class KeyTwiceError(ValueError):
    """A mapping has a key twice, of which a reader would lose one."""


class NoDuplicates:
    """Of loaders of PyYAML: refuses a key that a mapping has twice. A key that overrides a merged one is none."""

    def __init__(self, text: str) -> None:
        """Raises TooLargeError for a text of more than MOST_MIB."""
        if len(text) > MOST_MIB << 20:
            raise TooLargeError(f"it is longer than {MOST_MIB} MiB", "Pass the part of it that is meant.")
        super().__init__(text)  # type: ignore[call-arg]

    def get_single_node(self) -> Any:
        """The whole document, checked before merges change it."""
        return _checked(super().get_single_node())  # type: ignore[misc]

    def get_node(self) -> Any:
        """The next document, checked before merges change it."""
        return _checked(super().get_node())  # type: ignore[misc]


class TooLargeError(yaml.MarkedYAMLError):
    """A document that is longer than anybody writes, or whose aliases stand for more, or for themselves."""

    def __init__(self, problem: str, remedy: str, mark: Any = None) -> None:
        """`remedy` says what to do."""
        super().__init__(problem=problem, problem_mark=mark)
        self.problem, self.remedy = problem, remedy


def check_expansion(text: str) -> None:
    """Raises TooLargeError for a YAML text that another reader would expand without end."""
    loader = _PlainLoader(text)
    try:
        while loader.check_node():
            loader.get_node()
    except TooLargeError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    finally:
        loader.dispose()


def _checked(root: Any) -> Any:
    _check_size(root)
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


def _check_size(root: Any) -> None:
    """Each node counts as often as aliases and merges repeat it."""
    sizes: dict[int, int] = {}
    open_nodes, waiting = set[int](), [(root, False)]
    while waiting:
        node, is_counted = waiting.pop()
        inner = _inner(node)
        if is_counted:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(each)] for each in inner)
            if sizes[id(node)] > MOST_NODES:
                raise _too_large(node, f"it stands, with its aliases, for more than {MOST_NODES:,} values")
        elif id(node) in open_nodes:
            raise _too_large(node, "an alias stands for what it is part of")
        elif id(node) not in sizes:
            open_nodes.add(id(node))
            waiting += [(node, True), *((each, False) for each in inner)]


def _inner(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _too_large(node: Any, problem: str) -> TooLargeError:
    return TooLargeError(problem, "Write out what the aliases stand for.", node.start_mark)


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

    def construct_int(self, node: Any) -> Any:
        """Raises ValueError for a number of more digits than Python writes."""
        if len(str(node.value)) > _MOST_DIGITS:
            raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
        return self.construct_yaml_int(node)

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
_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_int)
_PlainLoader.add_constructor("tag:yaml.org,2002:float", _PlainLoader.construct_float)


def read_yaml(text: str) -> Any:
    """The value of a YAML or JSON text. Raises KeyTwiceError, yaml.YAMLError, ValueError or RecursionError."""
    try:
        return yaml.load(text, _PlainLoader)
    except OF_TAGS as error:
        raise ValueError(f"a value is not of the kind that its tag says ({type(error).__name__})") from None


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, KeyTwiceError among them."""
    return loads(text, lambda pairs: _object(pairs, text))


def _object(pairs: list[tuple[str, Any]], text: str) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        read_yaml(text)  # tells the lines
        key = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise KeyTwiceError(f"the key '{key}' is given twice")
    return made
