"""What holds for all verbs: examples that would work, options that mean the same, data out, and help for mistakes."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from sizewright import __version__
from sizewright.cli import choices
from sizewright.cli.app import app
from sizewright.cli.options import ObjectiveName
from sizewright.cluster.allocators.registry import _ALLOCATORS
from sizewright.cluster.problem.tables import VALUES
from sizewright.cluster.reclaim import RECLAIMS
from sizewright.datasets.traces import READERS
from sizewright.executors.registry import _EXECUTORS
from sizewright.models.registry import _MODELS
from sizewright.retraining.registry import CHALLENGER, CHAMPION
from sizewright.spec import Job

ROOT = get_command(app)


def commands(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command with its path, groups included."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


ALL = {" ".join(path): command for path, command in commands()}
VERBS = {name: command for name, command in ALL.items() if not hasattr(command, "commands")}


def words(line: str) -> list[str]:
    """A command line as a shell takes it apart, without the program and what goes into a file."""
    program, *rest = shlex.split(line, comments=True)
    assert program == "sizewright"
    return rest[: rest.index(">")] if ">" in rest else rest


def parsed(command: Any, args: list[str], context: Any = None) -> str:
    """The path of the verb that a command line is of, after its own parser took all of it."""
    if not hasattr(command, "commands"):
        return str(command.make_context(command.name, args, parent=context).command_path)
    context = typer.Context(command, info_name=command.name, parent=context)
    _, child, rest = command.resolve_command(context, args)
    return parsed(child, rest, context)


@pytest.mark.parametrize("name", ALL)
def test_examples_are_real_command_lines(name: str) -> None:
    lines = (ALL[name].epilog or "").splitlines()
    assert 2 <= len(lines) <= 3
    assert len(set(lines)) == len(lines)
    for line in lines:
        assert f"{parsed(ROOT, words(line))} ".startswith(f"sizewright {name} ".replace("  ", " ")), line


def test_an_example_with_an_option_that_is_not_there_would_be_found() -> None:
    for wrong in ("sizewright profile job.yaml --trails 3", "sizewright profile", "sizewright trials lst"):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parsed(ROOT, words(wrong))


@pytest.mark.parametrize("name", ALL)
def test_help_ends_with_the_examples_and_fits_80_columns(
    call: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = call(*name.split(), "--help")
    assert told.code == 0
    assert max(map(len, told.out.splitlines())) <= 80
    ends = "".join(f"  {line}\n" for line in ALL[name].epilog.splitlines())
    assert told.out.endswith(f"\n\nExamples:\n{ends}")


NAMES_WITH_SEVERAL_MEANINGS = {
    "--decisions": "written by `run`, `tune` and `simulate`, read by `report`",
    "--job": "what to list; what describes that which is imported",
    "--metrics": "written by `run`, read by `report`",
    "--model": "one in place of the default; which to compare",
    "--resume": "a folder of snapshots; a paused loop; a bank that was begun",
    "--trials": "how many to measure, how many to learn from; a file of them",
}
OTHER_DEFAULTS = {
    "--output": "a JSON Schema is JSON",
    "--policy": "one to divide by, several to compare",
    "--seeds": "a simulation is told once, models are compared over several",
    "--executor": "`apply` must be told it",
}


def options() -> dict[str, list[tuple[str, Any]]]:
    """By their long name: of which verbs."""
    found = defaultdict(list)
    for name, command in VERBS.items():
        for param in command.params:
            if param.param_type_name == "option" and param.name != "help":
                found[max(param.opts, key=len)].append((name, param))
    return found


def test_options_of_one_name_are_the_same_option() -> None:
    for name, found in options().items():
        if name in NAMES_WITH_SEVERAL_MEANINGS:
            continue
        told = {(p.help, tuple(p.opts), str(p.metavar), str(p.envvar), p.is_flag) for _, p in found}
        assert len(told) == 1, (name, told)
        defaults = {str(p.default) for _, p in found}
        assert len(defaults) == 1 or name in OTHER_DEFAULTS, (name, defaults)
    assert {*NAMES_WITH_SEVERAL_MEANINGS, *OTHER_DEFAULTS} <= options().keys()


def test_every_option_has_help() -> None:
    assert [name for name, found in options().items() if not all(p.help for _, p in found)] == []


def test_every_verb_gives_data() -> None:
    assert {name for name, _ in options()["--output"]} == VERBS.keys()
    assert {tuple(param.opts) for _, param in options()["--output"]} == {("-o", "--output")}


def test_what_changes_something_that_is_there_has_a_dry_run() -> None:
    assert {name for name, _ in options()["--dry-run"]} == {
        "apply", "history import", "history prometheus", "models promote", "models rollback", "retrain", "run",
        "trials import", "tune",
    }  # fmt: skip


def test_choices_are_those_that_there_are() -> None:
    assert set(choices.EXECUTORS) == set(_EXECUTORS.builtin)
    assert list(choices.MODELS) == list(_MODELS.builtin)
    assert list(choices.POLICIES) == list(_ALLOCATORS.builtin)
    assert sorted(choices.RECLAIMS) == sorted(RECLAIMS)
    assert sorted(choices.TRACES) == sorted(READERS)
    groups = (_EXECUTORS.group, _MODELS.group, _ALLOCATORS.group)
    assert groups == (choices.EXECUTOR_GROUP, choices.MODEL_GROUP, choices.POLICY_GROUP)
    assert choices.VALUES == VALUES
    assert choices.VERSIONS == (CHAMPION, CHALLENGER)
    assert {name.value for name in ObjectiveName} == set(Job.model_json_schema()["properties"]["objective"]["enum"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("recomend job.yaml", "Did you mean 'recommend'?"),
        ("trials lst", "Did you mean 'list'?"),
        ("profile job.yaml --trails 3", "--trials"),
        ("recommend job.yaml --objektive time", "--objective"),
        ("profile", "Missing argument 'JOB'"),
        ("apply plan.yaml", "Missing option '--executor'"),
        ("profile job.yaml --trials 0", "--trials"),
        ("memory job.yaml -o xml", "json"),
        ("recommend job.yaml --objective fast", "balanced"),
        ("schema jop", "job"),
        ("profile job.yaml other.yaml", "unexpected extra argument"),
    ],
)
def test_a_mistyped_line_exits_2_and_says_what_there_is(call: Callable[..., Any], line: str, told: str) -> None:
    result = call(*line.split())
    assert result.code == 2
    assert told in result.err
    assert "--help" in result.err
    assert result.out == ""


def test_without_a_verb_help_is_shown(call: Callable[..., Any]) -> None:
    for group in ("", "trials", "history", "models", "bank"):
        told = call(*group.split())
        assert told.code in (0, 2)
        assert "Examples:" in told.out + told.err


def test_the_version_is_printed(call):
    result = call("--version")
    assert (result.code, result.out) == (0, f"sizewright {__version__}\n")


@pytest.mark.parametrize("words", [(), ("recommend",), ("trials",), ("trials", "list"), ("models", "compare")])
def test_h_is_help(call, words):
    short, long = call(*words, "-h"), call(*words, "--help")
    assert short.code == 0
    assert short.out == long.out
    assert "Usage: sizewright" in short.out
