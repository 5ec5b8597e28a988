from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sizewright.spec import Job
from sizewright.training.command.session import CommandSession

MakeSession = Callable[..., CommandSession]


@pytest.fixture
def command_session(tmp_path: Path) -> Iterator[MakeSession]:
    """Yield a factory of sessions that run a Python program; all are stopped at the end."""
    opened: list[CommandSession] = []

    def make(
        program: str, *, trial: bool = False, samples: int = 10**9, device: str = "cpu", **command: object
    ) -> CommandSession:
        path = tmp_path / "program.py"
        path.write_text(program)
        fields = {"run": [sys.executable, str(path)], "rendezvous": "torchrun", "grace_s": 1, **command}
        training = {"batch_size": 32, "samples": samples, "device": device}
        job = Job.model_validate({"name": "own", "command": fields, "training": training})
        opened.append(CommandSession(job, logs=tmp_path / "logs", trial=trial))
        return opened[-1]

    yield make
    for session in opened:
        session.stop()
