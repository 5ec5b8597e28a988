"""Run a command line in this process, as the installed command would."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from sizewright.cli.ending import ending
from sizewright.cli.main import run


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def invoke(*args: object) -> Result:
        monkeypatch.setattr(ending, "begin", lambda: None)  # pytest handles the signals of this process
        monkeypatch.setattr("sys.argv", ["sizewright", *map(str, args)])
        with pytest.raises(SystemExit) as exit_info:
            run()
        out, err = capsys.readouterr()
        return Result(int(exit_info.value.code or 0), out, err)

    return invoke
