"""Errors of usage, which typer prints itself, show no secret and no control character."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sizewright.redaction import shortened
from sizewright.spec.units import parse_bytes, parse_cores, parse_count, parse_seconds

SECRET = "S3cr3tQx9z"
URL = f"postgresql://u:{SECRET}@localhost:1/x"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("recommend", "job.yaml", "-o", URL), "'postgresql://u:***@localhost:1/x' is not one of 'table', 'json'"),
        (
            ("recommend", "job.yaml", f"--output=postgresql://u:a {SECRET}@h/x"),
            "'postgresql://u:***@h/x' is not one of",
        ),
        (("recommend", "job.yaml", f"--output=--password=a {SECRET}"), "'--password=***' is not one of"),
        (("recommend", "job.yaml", "--objective", URL), "is not one of"),
        (("trials", URL), "No such command 'postgresql://u:***@localhost:1/x'"),
        ((URL,), "No such command 'postgresql://u:***@localhost:1/x'"),
        ((f"API_KEY={SECRET} 'a' \"{SECRET}\"",), "No such command"),
        (("recommend", "a", "b", URL), "b postgresql://u:***@localhost:1/x"),
        (("recommend", "a", "--", "--password", f"a {SECRET}"), "(--password ***)"),
        (("recommend", "a", "--", f"--password=a {SECRET}"), "(--password=***)"),
        (("recommend", "a", f"--{URL}"), "No such option: --postgresql://u:***@localhost:1/x"),
        (("recommend", "a", f"--pasword={SECRET}"), "No such option: --pasword"),
        (("run", "job.yaml", "--hang-limit", f"--password={SECRET}"), "'--password=***' is not a duration"),
        (("run", "job.yaml", "--hang-limit", f"--password=a {SECRET}"), "'--password=***' is not a duration"),
        (("run", "job.yaml", "--hang-limit", URL), "is not a duration"),
        (("run", "job.yaml", "--samples", f"postgresql://user:{SECRET}@h/x"), "is not a whole number"),
        (("run", "job.yaml", "--metrics-port", URL), "must be a whole number"),
        (("profile", "job.yaml", "--trials", f"TOKEN={SECRET}"), "TOKEN=***"),
        (("schema", URL), "'postgresql://u:***@localhost:1/x' is not job"),
    ],
)
def test_usage_error_shows_no_secret(call: Callable[..., Any], args: tuple[str, ...], message: str) -> None:
    result = call(*args)
    assert result.code == 2
    assert message in result.err
    assert result.err.startswith("Usage: sizewright")
    assert not [part for part in (SECRET, SECRET[3:], SECRET[-4:], SECRET[:4]) if part in result.err + result.out]


@pytest.mark.parametrize(
    "args",
    [("recommend", "a", "-o"), ("recommend", "a"), ("trials",), (), ("run", "a", "--hang-limit"), ("schema",)],
)
def test_usage_error_has_no_control_character(call: Callable[..., Any], args: tuple[str, ...]) -> None:
    result = call(*args, "x\x1b]0;o\x07\x1b[2J\x9b31m\u202e")
    assert result.code == 2
    assert "]0;o" in result.err
    assert not [each for each in "\x1b\x07\x9b\u202e" if each in result.err]


@pytest.mark.parametrize("group", ["", "trials", "history", "models", "bank"])
def test_group_without_verb_shows_its_whole_help(call: Callable[..., Any], group: str) -> None:
    alone = call(*group.split())
    assert (alone.out + alone.err).strip() == call(*group.split(), "--help").out.strip()


@pytest.mark.parametrize("parse", [parse_bytes, parse_cores, parse_count, parse_seconds])
def test_secret_is_removed_from_a_quantity_before_it_is_shortened(parse: Callable[[object], object]) -> None:
    for text in (f"postgresql://user:{SECRET}@h/x", f"--password=a {SECRET}", f"{100 * ' '}API_KEY={SECRET}"):
        with pytest.raises(ValueError, match=r"is not|must be") as caught:
            parse(text)
        assert not [part for part in (SECRET[3:], SECRET[-4:], SECRET[:4]) if part in str(caught.value)]


def test_values_are_shortened_like_before() -> None:
    assert shortened("x" * 40) == f"'{12 * 'x'}...{13 * 'x'}'"
    assert (shortened(3), shortened([1, "a\x1b"])) == ("3", r"[1, 'a\x1b']")
    assert SECRET[-4:] not in shortened({"urls": [f"postgresql://user:{SECRET}@h/x"]})
