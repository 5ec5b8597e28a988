"""The documentation does what it says: every block is run, written to a file or marked as output; no link is dead."""

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

FILES = sorted([
    *ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if not path.is_relative_to(ROOT / "docs/_made")),
])  # fmt: skip
PAGES = [read_page(path) for path in FILES]
RUN = {"console", "python"}
CLUSTER = "<!-- a cluster is at hand -->"
"""On pages that need one."""
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


def commands(page: Page) -> list[Command]:
    return [command for block in page.of("console") for command in block.commands]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_run_or_written_or_marked_as_output(page: Page) -> None:
    for block in page.blocks:
        where = f"{name(page)}:{block.line}: {block.kind or 'a block of no kind'}"
        assert block.file or block.kind in RUN | {"text"} or block.kind.startswith("{"), where
        assert block.kind != "console" or block.commands, f"{where}: no command"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_those_that_there_are(page: Page) -> None:
    """Each is parsed by the verb itself; `make` and `pip install` name what there is."""
    for command in commands(page):
        for words in calls(command.text):
            where = f"{name(page)}:{command.line}: {' '.join(words)}"
            if words[0] == "sizewright":
                parsed(words[1:], where)
            elif words[0] == "make":
                known = (ROOT / "Makefile").read_text()
                assert all(f"\n{word}:" in known for word in words[1:] if "=" not in word), where
                if (bench := [word[5:] for word in words if word.startswith("NAME=")]) and "bench" in words:
                    assert (ROOT / "benchmarks" / f"{bench[0]}.py").exists(), where
            elif words[:2] == ["pip", "install"]:
                named = [found for word in words for found in re.findall(r"\[(.*)\]", word)]
                extras = {extra for found in named for extra in found.split(",")}
                assert extras <= set(metadata("sizewright").get_all("Provides-Extra") or ()), where


def calls(text: str) -> list[list[str]]:
    """The words of each command of a line, without redirections and variables."""
    plain = re.sub(r"\$\([^)]*\)", "x", text.replace("\\\n", " "))
    words, found = shlex.split(plain, comments=True), [list[str]()]
    for word in words:
        if word in ("|", "&&", "||", ";", "&"):
            found.append([])
        elif word in (">", ">>", "<", "2>"):
            found[-1].append(word)
        elif found[-1] and found[-1][-1] in (">", ">>", "<", "2>"):
            found[-1].pop()
        elif found[-1] or not re.fullmatch(r"[A-Z_]+=.*", word):
            found[-1].append(word)
    return [each for each in found if each]


def parsed(words: list[str], where: str) -> None:
    """Raises AssertionError for what the verb would not understand."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("sizewright", words[:1], resilient_parsing=True)
    while hasattr(command, "get_command"):
        below = command.get_command(context, words[0]) if words else None
        assert below is not None, f"{where}: no such verb"
        command, words = below, words[1:]
        if hasattr(command, "get_command"):
            context = command.make_context("group", words[:1], parent=context, resilient_parsing=True)
    try:
        command.make_context("verb", list(words), parent=context)
    except Exception as error:
        if type(error).__name__ != "Exit":  # as --help does
            raise AssertionError(f"{where}: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Page) -> None:
    for link in LINK.findall(page.path.read_text(encoding="utf-8")):
        target = link.partition("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            there = (page.path.parent / target).resolve()
            assert there.exists(), f"{name(page)}: {link}"


RUNNABLE = [page for page in PAGES if any(True for kind in RUN for _ in page.of(kind))]


@pytest.mark.long
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_a_page_runs_from_top_to_bottom(page: Page, tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "SIZEWRIGHT_STORE": ""}
    folder = clone(tmp_path / "clone")
    if CLUSTER not in page.path.read_text(encoding="utf-8"):
        run_page(page, folder, env)
        return
    with stand_in() as cluster:
        run_page(page, folder, env | {"KUBECONFIG": cluster.kubeconfig(tmp_path)})
