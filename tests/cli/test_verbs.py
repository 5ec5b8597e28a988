"""Tests of all verbs: examples work, shared options agree, all can print data, errors suggest corrections."""

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
from sizewright.cluster.simulator.speeds import SPEEDS
from sizewright.datasets.traces import READERS
from sizewright.executors.registry import _EXECUTORS
from sizewright.models.registry import _MODELS
from sizewright.retraining.registry import CHALLENGER, CHAMPION
from sizewright.spec import Job

ROOT = get_command(app)


def commands(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command with its path, groups included."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


COMMANDS = {" ".join(path): command for path, command in commands()}
VERBS = {name: command for name, command in COMMANDS.items() if not hasattr(command, "commands")}


def split_line(line: str) -> list[str]:
    """Split a command line as a shell does, without the program and the redirection."""
    program, *rest = shlex.split(line, comments=True)
    assert program == "sizewright"
    return rest[: rest.index(">")] if ">" in rest else rest


def parsed(command: Any, args: list[str], context: Any = None) -> str:
    """Return the path of the verb in a command line, after the parser accepted all of it."""
    if not hasattr(command, "commands"):
        return str(command.make_context(command.name, args, parent=context).command_path)
    context = typer.Context(command, info_name=command.name, parent=context)
    _, child, rest = command.resolve_command(context, args)
    return parsed(child, rest, context)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_valid_command_lines(name: str) -> None:
    lines = (COMMANDS[name].epilog or "").splitlines()
    assert 2 <= len(lines) <= 3
    assert len(set(lines)) == len(lines)
    for line in lines:
        assert f"{parsed(ROOT, split_line(line))} ".startswith(f"sizewright {name} ".replace("  ", " ")), line


def test_example_with_an_unknown_option_fails_the_check() -> None:
    for wrong in ("sizewright profile job.yaml --trails 3", "sizewright profile", "sizewright trials lst"):
        with pytest.raises(Exception, match=r"No such|Missing"):
            parsed(ROOT, split_line(wrong))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_the_examples_and_fits_80_columns(
    call: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = call(*name.split(), "--help")
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) <= 80
    ends = "".join(f"  {line}\n" for line in COMMANDS[name].epilog.splitlines())
    assert result.out.endswith(f"\n\nExamples:\n{ends}")


NAMES_WITH_SEVERAL_MEANINGS = {
    "--decisions": "written by `run`, `tune` and `simulate`, read by `report`",
    "--job": "what to list; what describes that which is imported",
    "--metrics": "written by `run`, read by `report`",
    "--model": "one in place of the default; which to compare",
    "--plans": "a folder that `tune` writes; how many sharding plans to measure",
    "--resume": "a folder of snapshots; a paused loop; a bank that was begun",
    "--trials": "how many to measure, how many to learn from; a file of them",
}
OTHER_DEFAULTS = {
    "--output": "a JSON Schema is JSON",
    "--policy": "one to divide by, several to compare",
    "--seeds": "a simulation needs one seed, a comparison of models several",
    "--executor": "`apply` has no default",
}


def options() -> dict[str, list[tuple[str, Any]]]:
    """Return the verbs and parameters of each option, by its long name."""
    params_by_name = defaultdict(list)
    for name, command in VERBS.items():
        for param in command.params:
            if param.param_type_name == "option" and param.name != "help":
                params_by_name[max(param.opts, key=len)].append((name, param))
    return params_by_name


def test_options_of_one_name_agree_in_all_verbs() -> None:
    for name, params in options().items():
        if name in NAMES_WITH_SEVERAL_MEANINGS:
            continue
        declarations = {(p.help, tuple(p.opts), str(p.metavar), str(p.envvar), p.is_flag) for _, p in params}
        assert len(declarations) == 1, (name, declarations)
        defaults = {str(p.default) for _, p in params}
        assert len(defaults) == 1 or name in OTHER_DEFAULTS, (name, defaults)
    assert {*NAMES_WITH_SEVERAL_MEANINGS, *OTHER_DEFAULTS} <= options().keys()


def test_every_option_has_help() -> None:
    assert [name for name, params in options().items() if not all(p.help for _, p in params)] == []


def test_every_verb_can_print_data() -> None:
    assert {name for name, _ in options()["--output"]} == VERBS.keys()
    assert {tuple(param.opts) for _, param in options()["--output"]} == {("-o", "--output")}


def test_verbs_that_change_something_have_a_dry_run() -> None:
    assert {name for name, _ in options()["--dry-run"]} == {
        "apply", "history import", "history prometheus", "history sacct", "models promote", "models rollback",
        "retrain", "run", "trials import", "tune", "operator run",
    }  # fmt: skip


def test_choices_equal_the_registered_names() -> None:
    assert set(choices.EXECUTORS) == set(_EXECUTORS.builtin)
    assert list(choices.MODELS) == list(_MODELS.builtin)
    assert list(choices.POLICIES) == list(_ALLOCATORS.builtin)
    assert sorted(choices.RECLAIMS) == sorted(RECLAIMS)
    assert sorted(choices.TRACES) == sorted(READERS)
    assert choices.SPEEDS == SPEEDS
    groups = (_EXECUTORS.group, _MODELS.group, _ALLOCATORS.group)
    assert groups == (choices.EXECUTOR_GROUP, choices.MODEL_GROUP, choices.POLICY_GROUP)
    assert choices.VALUES == VALUES
    assert choices.VERSIONS == (CHAMPION, CHALLENGER)
    assert {name.value for name in ObjectiveName} == set(Job.model_json_schema()["properties"]["objective"]["enum"])


@pytest.mark.parametrize(
    ("line", "message"),
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
def test_mistyped_command_exits_2_and_suggests_a_correction(call: Callable[..., Any], line: str, message: str) -> None:
    result = call(*line.split())
    assert result.code == 2
    assert message in result.err
    assert "--help" in result.err
    assert result.out == ""


def test_group_without_verb_shows_help(call: Callable[..., Any]) -> None:
    for group in ("", "trials", "history", "models", "bank"):
        result = call(*group.split())
        assert result.code in (0, 2)
        assert "Examples:" in result.out + result.err


def test_the_version_is_printed(call):
    result = call("--version")
    assert (result.code, result.out) == (0, f"sizewright {__version__}\n")


@pytest.mark.parametrize("args", [(), ("recommend",), ("trials",), ("trials", "list"), ("models", "compare")])
def test_h_option_prints_the_help(call, args):
    short, long = call(*args, "-h"), call(*args, "--help")
    assert short.code == 0
    assert short.out == long.out
    assert "Usage: sizewright" in short.out
