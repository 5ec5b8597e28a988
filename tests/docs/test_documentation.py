"""The documentation is correct: every block is run, written to a file or marked as output; no link is dead."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import typer

from sizewright.cli.app import app
from tests.helpers.page_blocks import Command, Page, read_page
from tests.helpers.page_runner import ROOT, clone, run_page
from tests.helpers.stand_in import stand_in
from tests.helpers.torchrec_environment import shared_environment

FILES = sorted([
    *ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if not path.is_relative_to(ROOT / "docs/_made")),
])  # fmt: skip
PAGES = [read_page(path) for path in FILES]
RUN = {"console", "python"}
CLUSTER = "<!-- a cluster is at hand -->"
"""On pages that need one."""
TORCHREC = "<!-- torchrec is at hand -->"
"""On pages whose commands run in an environment with TorchRec."""
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


def commands(page: Page) -> list[Command]:
    return [command for block in page.of("console") for command in block.commands]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_written_or_marked_as_output(page: Page) -> None:
    for block in page.blocks:
        location = f"{name(page)}:{block.line}: {block.kind or 'a block of no kind'}"
        assert block.file or block.kind in RUN | {"text"} or block.kind.startswith("{"), location
        assert block.kind != "console" or block.commands, f"{location}: no command"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_of_a_page_exist(page: Page) -> None:
    """Each verb parses its commands; targets of `make` and extras of `pip install` exist."""
    for command in commands(page):
        for args in calls(command.text):
            location = f"{name(page)}:{command.line}: {' '.join(args)}"
            if args[0] == "sizewright":
                parsed(args[1:], location)
            elif args[0] == "make":
                makefile = (ROOT / "Makefile").read_text()
                assert all(f"\n{arg}:" in makefile for arg in args[1:] if "=" not in arg), location
                if (bench := [arg[5:] for arg in args if arg.startswith("NAME=")]) and "bench" in args:
                    assert (ROOT / "benchmarks" / f"{bench[0]}.py").exists(), location
            elif args[:2] == ["pip", "install"]:
                named = [match for arg in args for match in re.findall(r"\[(.*)\]", arg)]
                extras = {extra for match in named for extra in match.split(",")}
                assert extras <= set(metadata("sizewright").get_all("Provides-Extra") or ()), location


def calls(text: str) -> list[list[str]]:
    """Return the words of each command of a line, without redirections and variables."""
    plain = re.sub(r"\$\([^)]*\)", "x", text.replace("\\\n", " "))
    args, commands = shlex.split(plain, comments=True), [list[str]()]
    for arg in args:
        if arg in ("|", "&&", "||", ";", "&"):
            commands.append([])
        elif arg in (">", ">>", "<", "2>"):
            commands[-1].append(arg)
        elif commands[-1] and commands[-1][-1] in (">", ">>", "<", "2>"):
            commands[-1].pop()
        elif commands[-1] or not re.fullmatch(r"[A-Z_]+=.*", arg):
            commands[-1].append(arg)
    return [each for each in commands if each]


def parsed(args: list[str], location: str) -> None:
    """Raise AssertionError if the verb would not accept these arguments."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("sizewright", args[:1], resilient_parsing=True)
    while hasattr(command, "get_command"):
        below = command.get_command(context, args[0]) if args else None
        assert below is not None, f"{location}: no such verb"
        command, args = below, args[1:]
        if hasattr(command, "get_command"):
            context = command.make_context("group", args[:1], parent=context, resilient_parsing=True)
    try:
        command.make_context("verb", list(args), parent=context)
    except Exception as error:
        if type(error).__name__ != "Exit":  # `--help` exits
            raise AssertionError(f"{location}: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_have_existing_targets(page: Page) -> None:
    for link in LINK.findall(page.path.read_text(encoding="utf-8")):
        target = link.partition("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            destination = (page.path.parent / target).resolve()
            assert destination.exists(), f"{name(page)}: {link}"


RUNNABLE = [page for page in PAGES if any(True for kind in RUN for _ in page.of(kind))]


@pytest.mark.long
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_a_page_runs_from_top_to_bottom(page: Page, tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "SIZEWRIGHT_STORE": ""}
    env["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # seven processes that no page needs
    folder, text = clone(tmp_path / "clone"), page.path.read_text(encoding="utf-8")
    programs = [shared_environment()] if TORCHREC in text else []
    if CLUSTER not in text:
        run_page(page, folder, env, programs)
        return
    with stand_in() as cluster:
        run_page(page, folder, env | {"KUBECONFIG": cluster.kubeconfig(tmp_path)})
