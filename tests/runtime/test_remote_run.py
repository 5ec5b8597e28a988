"""A running job is observed and changed from another process."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
from pathlib import Path

import pytest

from sizewright.errors import EngineError, InputError
from sizewright.runtime.control_protocol import folder
from sizewright.runtime.plan_files import adjust_plan
from sizewright.runtime.remote_run import find_run
from sizewright.runtime.watched import attached_to
from sizewright.spec import Allocation
from tests.helpers.fake_runs import JOB, ONE, running_job

TWO = Allocation.of(2, 1, 1.0, 1.0, 512)


def sockets() -> list[Path]:
    return list(folder().iterdir())


def connect_as(uid: int, path: Path) -> int:
    """Connect to a socket in a child process of another user, and return the number of the error, or 0."""
    child = os.fork()
    if child == 0:  # only system calls, since other threads may have held locks
        code = 255
        try:
            with socket.socket(socket.AF_UNIX) as client:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                code = client.connect_ex(str(path))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_remote_run_is_observed_and_changed_without_leftovers() -> None:
    with running_job() as fake, find_run("ctr") as run:
        handle = run.status.handle
        assert (run.status.job, run.status.allocation, run.status.tuned) == (JOB, ONE, False)
        assert run.observe(handle).allocation == ONE
        plan = adjust_plan(JOB, ONE, TWO)
        assert run.change_cost(plan) == fake.cost
        run.adjust(handle, plan)
        assert run.observe(handle).allocation == TWO
        assert not run.wait(handle, 0)
        assert stat.S_IMODE(folder().stat().st_mode) == 0o700
        with find_run(handle.id), find_run("ctr"), attached_to(JOB):
            assert len(sockets()) == 1
    assert sockets() == []


def test_memory_forecast_is_passed_to_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    forecasts: list[int] = []
    with running_job() as fake, find_run("ctr") as run:
        monkeypatch.setattr(fake, "expect_memory", lambda _, needed: forecasts.append(needed))
        run.expect_memory(run.status.handle, 700)
    assert forecasts == [700]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_cannot_connect(tmp_path: Path) -> None:
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(0o755)  # so that only the folder of the sockets keeps others out
    before = os.umask(0)  # so that the mode of the socket itself protects nothing
    try:
        with running_job(), find_run("ctr") as run:
            (path,) = sockets()
            assert connect_as(0, path) == 0
            assert connect_as(65534, path) == errno.EACCES
            assert run.look_up().allocation == ONE
    finally:
        os.umask(before)


def test_errors_are_passed_on_unchanged() -> None:
    with running_job() as fake, find_run("ctr") as run:
        with pytest.raises(InputError, match=r"was made for 2 workers.*Make a new plan"):
            run.adjust(run.status.handle, adjust_plan(JOB, TWO, ONE))
        fake.fail_next("change_cost", EngineError("The cluster does not answer.", "Wait."))
        with pytest.raises(EngineError, match=r"The cluster does not answer\. Wait\."):
            run.change_cost(adjust_plan(JOB, ONE, TWO))


@pytest.mark.parametrize(
    "junk", [b"junk\n", b"\xff\n", b"{}\n", b'{"do": "stop"}\n', b'{"do": "adjust"}\n', b"[" * 9999 + b"\n"]
)
def test_invalid_request_is_answered_and_the_job_runs_on(junk: bytes) -> None:
    with running_job():
        (path,) = sockets()
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(path))
            other.sendall(junk)
            assert json.loads(other.makefile().readline())["error"] == "InputError"
        with socket.socket(socket.AF_UNIX) as half:
            half.connect(str(path))
            half.sendall(b'{"do": "obs')
            with find_run("ctr") as run:
                assert run.look_up().allocation == ONE


def test_only_one_loop_may_attach() -> None:
    with running_job(tuned=True), find_run("ctr") as run, find_run("ctr") as other:
        with pytest.raises(InputError, match="tuned by its own loop"):
            run.attach()
        run.pause()
        assert run.look_up().paused
        run.attach()
        for refused in (other.attach, lambda: other.pause(False)):
            with pytest.raises(InputError, match="tuned by another loop"):
                refused()
        with pytest.raises(InputError, match="tuned by another loop"):
            other.adjust(run.status.handle, adjust_plan(JOB, ONE, TWO))
        run.__exit__()
        other.attach()
        other.__exit__()
        with find_run("ctr") as third:
            third.pause(False)
            assert not third.look_up().paused


def test_ended_run_raises_input_error() -> None:
    with running_job():
        run = find_run("ctr")
    assert run.wait(run.status.handle, 10)
    with pytest.raises(InputError, match="has ended"):
        run.observe(run.status.handle)
    assert run.wait(run.status.handle, 0)


def test_sockets_of_dead_processes_are_removed() -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder() / "dead.sock"))
    with pytest.raises(InputError, match=r"No run is called ctr\. Running: nothing\."):
        find_run("ctr")
    assert sockets() == []


def test_new_run_removes_the_sockets_of_killed_runs_and_keeps_those_of_live_ones() -> None:
    def left_behind(name: str, age_s: float = 0.0) -> Path:
        path = folder() / name
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        os.utime(path, (time.time() - age_s, time.time() - age_s))
        return path

    dead = [left_behind("dead.sock"), left_behind("dead.new", age_s=3600.0)]
    opening = left_behind("opening.new")
    with running_job(), socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(folder() / "busy.sock"))
        busy.listen(0)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(folder() / "busy.sock"))  # no further client can connect
            before = set(sockets())
            assert not before & set(dead)
            assert {opening, folder() / "busy.sock"} < before
            with running_job():
                assert before < set(sockets())


def test_name_of_no_run_or_several_raises_input_error() -> None:
    with running_job(), running_job():
        with pytest.raises(InputError, match="Running: ctr-1, ctr-1"):
            find_run("other")
        with pytest.raises(InputError, match="Several runs are called ctr"):
            find_run("ctr")


def test_folder_open_to_others_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    folder().chmod(0o777)
    with running_job(), pytest.raises(EngineError, match="Other users can access"):
        find_run("ctr")
    assert "Other processes cannot reach this run" in caplog.text


def test_folder_that_others_could_replace_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    folder().parent.chmod(0o777)
    with running_job(), pytest.raises(EngineError, match=r"Other users can replace.*Set XDG_RUNTIME_DIR"):
        find_run("ctr")
    assert "Other processes cannot reach this run" in caplog.text
