"""Read text files of users: their encoding, unrendered templates, and YAML and JSON without duplicate keys."""

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
from sizewright.spec._paths import absolute

_MERGE = "tag:yaml.org,2002:merge"
_ENCODING_BY_MARK = (  # the longer mark first, since that of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MAX_VALUES = 1_000_000
"""Limit of a YAML text with all its documents, and with everything that aliases repeat."""
MAX_DEPTH = 100
"""Limit of a YAML text's lists and mappings within each other; a million would overflow the stack of the C library."""
MAX_MIB = 4
"""Limit of a YAML text."""
MAX_JSON_MIB = 64
"""Limit of a JSON file that Sizewright writes for later use, such as a prior or the card of a bank."""
_MAX_DIGITS = 300
TAG_ERRORS = (IndexError, KeyError, TypeError, AttributeError, OverflowError, AssertionError)
"""The errors that PyYAML and ruamel.yaml raise for a value that does not match its tag, such as !!int ''."""
_ONLY_THE_PART = "Pass only the part that is needed."
_NO_ALIASES = "Pass only the part that is needed, and write the values out instead of using aliases."
_COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{\{|\{%")
_CODE_KEYS = frozenset({"command", "args", "env", "annotations", "entrypoint", "run", "pattern", "reason"})
"""Keys below which double braces are code or prose, not a template."""


class TooLongFileError(ValueError):
    """A file is longer than its reader allows."""

    def __init__(self, max_mib: int) -> None:
        super().__init__(f"it is longer than {max_mib} MiB")


def read_file(path: str | Path, max_mib: int) -> bytes:
    """Return the content of a file, which may be a pipe. Raises OSError, and TooLongFileError before it reads more."""
    with open(absolute(path), "rb") as file:
        data = file.read((max_mib << 20) + 1)
    if len(data) > max_mib << 20:
        raise TooLongFileError(max_mib)
    return data


def read_text(path: str | Path, what: str) -> str:
    """Return the text of a file with its line breaks.

    Raises OSError, and InputError for what is not text or is longer than a YAML text may be.
    """
    try:
        return decode(read_file(path, MAX_MIB), f"The {what} {path}")
    except TooLongFileError as error:
        raise InputError(f"{path}: {error}.", _ONLY_THE_PART) from None


def decode(data: bytes, name: str) -> str:
    """Decode text as UTF-8, or as its byte order mark says. Raises InputError for other bytes."""
    if data.startswith(_COMPRESSED):
        raise InputError(f"{name} is compressed.", "Unpack it first.")
    encoding = next((encoding for mark, encoding in _ENCODING_BY_MARK if data.startswith(mark)), "utf-8-sig")
    if encoding == "utf-8-sig" and b"\0" in data:
        raise InputError(
            f"{name} is not UTF-8: it holds NULs, as UTF-16 without a byte order mark does.", "Save it as UTF-8."
        )
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig":
            raise InputError(
                f"{name} has the byte order mark of {encoding.upper()} but is not in this encoding.",
                "Save it as UTF-8.",
            ) from None
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at line {line}.",
            "Save it as UTF-8, such as by: iconv -f latin1 -t utf-8 OLD > NEW.",
        ) from None


def check_rendered(data: Any, name: str) -> None:
    """Raise InputError if the data still contains a template of Helm or Jinja."""
    for text in _templates_in(data):
        raise _unrendered(name, text)


def check_text_rendered(text: str, name: str) -> None:
    """Raise InputError if a text that cannot be parsed contains a template of Helm or Jinja."""
    for number, line in enumerate(text.splitlines(), 1):
        if (template := _TEMPLATE.search(line)) and not line.lstrip().startswith("#"):
            raise _unrendered(f"{name}, line {number},", template[0])


def _unrendered(name: str, text: str) -> InputError:
    return InputError(
        f"{name} is a template of Helm or Jinja: it holds {' '.join(text.split()):.60}.",
        "Render the template first (helm template CHART > manifest.yaml, or jinja2), and pass the result.",
    )


def _templates_in(data: Any) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(key, Mapping):  # `{{ x }}` without quotes is a mapping whose key is a mapping
                yield "{{ " + ", ".join(map(str, key)) + " }}"
            elif key not in _CODE_KEYS:
                yield from _templates_in(value)
    elif isinstance(data, (list, tuple)):
        for item in data:
            yield from _templates_in(item)
    elif isinstance(data, str) and "\n" not in data and (template := _TEMPLATE.search(data)):
        yield template[0]


class KeyTwiceError(ValueError):
    """A mapping has a duplicate key, of which a reader would drop one."""


class UniqueKeysMixin:
    """A mixin for loaders of PyYAML that refuses duplicate keys; a key that overrides a merged one is allowed."""

    def __init__(self, text: str) -> None:
        """Raise TooLargeError as `check_size` does."""
        check_size(text)
        super().__init__(text)  # type: ignore[call-arg]

    def get_single_node(self) -> Any:
        """Return the document, checked before merges change it."""
        return _checked(super().get_single_node())  # type: ignore[misc]

    def get_node(self) -> Any:
        """Return the next document, checked before merges change it."""
        return _checked(super().get_node())  # type: ignore[misc]


class TooLargeError(yaml.MarkedYAMLError):
    """A text that is too long or too deep, directly or by its aliases, or whose aliases refer to themselves."""

    def __init__(self, problem: str, remedy: str, mark: Any = None) -> None:
        """`remedy` says what to do."""
        super().__init__(problem=problem, problem_mark=mark)
        self.problem, self.remedy = problem, remedy


BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of plain objects that is fastest. It is recursive, so a text needs `check_size` before."""


def check_size(*parts: str, max_values: int = MAX_VALUES) -> None:
    """Raise TooLargeError for a YAML text, in one or more parts, that takes too much time or memory to read.

    Only the parser's events are read, which takes neither. The loader raises the errors of a text that is not YAML.
    """
    if sum(map(len, parts)) > MAX_MIB << 20:
        raise TooLargeError(f"it is longer than {MAX_MIB} MiB", _ONLY_THE_PART)
    size = 0
    for part in parts:
        try:
            size = _size_with(part, size, max_values)
        except TooLargeError:
            raise
        except yaml.YAMLError:
            continue


def _size_with(text: str, size: int, max_values: int) -> int:
    """Return `size` plus the number of values in a text, each counted as often as aliases repeat it."""
    sizes: dict[str | None, int | None] = {}
    """The values of each anchor; None until its list or mapping ends."""
    open_values: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, BaseLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            sizes.clear()
        elif isinstance(event, yaml.AliasEvent):
            repeated = sizes.get(event.anchor, 1)
            if repeated is None:
                raise TooLargeError("an alias refers to a value that contains it", _NO_ALIASES, event.start_mark)
            size += repeated
        elif isinstance(event, yaml.NodeEvent):
            sizes[event.anchor] = None
            open_values.append((event.anchor, size))
            size += 1
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionEndEvent):
            anchor, size_before = open_values.pop()
            sizes[anchor] = size - size_before
        if size > max_values:
            problem = f"with its aliases expanded it has more than {max_values:,} values"
            raise TooLargeError(problem, _NO_ALIASES, event.start_mark)
        if len(open_values) > MAX_DEPTH:
            problem = f"its lists and mappings are nested more than {MAX_DEPTH} levels deep"
            raise TooLargeError(problem, "Write it with fewer levels.", event.start_mark)
    return size


def _checked(root: Any) -> Any:
    waiting, visited = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in visited or not isinstance(node, yaml.CollectionNode):
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys([key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE])
            waiting += [child for pair in node.value for child in pair]
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


class _PlainLoader(UniqueKeysMixin, BaseLoader):  # type: ignore[misc]
    """A loader in which `on`, `yes`, `12:30`, `010` and dates stay text, as in YAML 1.2.

    Records read text as their field needs it: `on` is true for a switch, and `010` is 10 for a count.
    """

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {}

    def construct_int(self, node: Any) -> Any:
        """Return an integer. Raises ValueError for more digits than Python converts."""
        if len(str(node.value)) > _MAX_DIGITS:
            raise ValueError(f"a number has more than {_MAX_DIGITS} digits")
        return self.construct_yaml_int(node)

    def construct_float(self, node: Any) -> Any:
        """Return a float, or the text where a float would be inexact, since records read text exactly."""
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
    """Return the value of a YAML or JSON text. Raises KeyTwiceError, yaml.YAMLError or ValueError."""
    try:
        return yaml.load(text, _PlainLoader)
    except TAG_ERRORS as error:
        raise ValueError(f"a value does not match its tag ({type(error).__name__})") from None


def read_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError, including KeyTwiceError."""
    return loads(text, lambda pairs: _object(pairs, text))


def _object(pairs: list[tuple[str, Any]], text: str) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        read_yaml(text)  # raises with the lines of the key
        key = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise KeyTwiceError(f"the key '{key}' is given twice")
    return mapping
