"""The settings from the environment, and what the command line and its page say about them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sizewright.settings import EnvironmentSettings

VARIABLES = {variable.name: variable for variable in EnvironmentSettings.variables().values()}
ROOT = Path(__file__).resolve().parents[1]


def test_settings_of_an_empty_environment_are_none() -> None:
    assert EnvironmentSettings.from_environment({}) == EnvironmentSettings()
    assert EnvironmentSettings.from_environment(dict.fromkeys(VARIABLES, "")) == EnvironmentSettings()


def test_each_setting_is_read_from_its_variable() -> None:
    settings = EnvironmentSettings.from_environment({variable: f"value of {variable}" for variable in VARIABLES})
    for name, variable in EnvironmentSettings.variables().items():
        assert getattr(settings, name) == f"value of {variable.name}"


def test_settings_are_read_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWRIGHT_LEDGER", "plans.jsonl")
    assert EnvironmentSettings.from_environment().ledger == "plans.jsonl"
    monkeypatch.delenv("SIZEWRIGHT_LEDGER")
    assert EnvironmentSettings.from_environment().ledger is None


def test_the_cache_folder_is_below_xdg_cache_home_else_below_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert EnvironmentSettings(cache_home="~/odd").cache_folder == Path("~/odd/sizewright")
    assert EnvironmentSettings().cache_folder == Path("/home/someone/.cache/sizewright")


def test_the_command_line_page_names_and_explains_the_same_variables() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"\| ([^|]*) \[env var: (\w+)\] \|", page))
    assert rows == {(each.meaning, name) for name, each in VARIABLES.items() if name.startswith("SIZEWRIGHT_")}
