from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from sizewright.errors import EngineError, MissingExtraError
from sizewright.training.ray.engine import Engine, _check_shared_memory, _is_stopped, _runs, import_ray
from sizewright.training.replicas.replica import Replica
from tests.helpers.training_parts import writable_group

Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that nobody else uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def own_folder() -> Path:
    """Return the folder of the Ray that this process has started."""
    (folder,) = Path(tempfile.gettempdir()).glob(f"szw-{os.getpid()}-*")
    return folder


@pytest.mark.parametrize("module", ["ray", "torch"])
def test_missing_extra_names_the_pip_command(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"needs {module}.*pip install 'sizewright\[profile\]'"):
        import_ray()


def test_small_shared_memory_is_reported_before_ray_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(64 << 20, 0, 64 << 20))
    with pytest.raises(EngineError, match=r"has 64 MiB free, but Ray needs 100 MiB.*--shm-size"):
        _check_shared_memory(tmp_path)
    if Path("/dev/shm").is_dir():
        with pytest.raises(EngineError, match="/dev/shm has 64 MiB free"):
            Engine()


def test_sufficient_or_absent_shared_memory_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_shared_memory(tmp_path / "absent")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 30, 0, 1 << 30))
    _check_shared_memory(tmp_path)


def test_signals_at_any_moment_of_the_start_reach_the_handler_of_this_process() -> None:
    program = """
import os, signal, threading, time

received = []
signal.signal(signal.SIGTERM, lambda *_: received.append(1))
ended = threading.Event()


def send():
    while not ended.wait(0.001):
        os.kill(os.getpid(), signal.SIGTERM)


sender = threading.Thread(target=send)
sender.start()
from sizewright.training.ray.engine import Engine

Engine().stop()
ended.set()
sender.join()
assert received
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", ["port 6379 is taken\nand more\nlines", ""])
def test_failed_ray_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch, temporary: Path, text: str) -> None:
    def refuse(**_: object) -> None:
        raise OSError(text)

    monkeypatch.setattr(import_ray(), "init", refuse)
    with pytest.raises(EngineError) as caught:
        Engine()
    assert caught.value.message == f"Ray could not start: {text.splitlines()[0] if text else 'OSError'}"
    assert caught.value.remedy
    assert not list(temporary.iterdir())


def test_interrupted_start_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_ray(), "init", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Engine()
    assert not list(temporary.iterdir())


def test_interrupted_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def interrupt(**_: object) -> None:
        begun.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(import_ray(), "init", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Engine()
    assert begun[0].wait(10) is not None


@pytest.mark.long
def test_two_engines_share_one_ray_until_the_last_stops() -> None:
    ray = import_ray()
    trees = [writable_group("engine"), writable_group("another")]
    first, second = (Engine(tree) for tree in trees)
    try:
        with pytest.raises(EngineError, match="one at a time"):
            Engine(address="127.0.0.1:6379")
        joined = trees[0].child("engine").pids()
        first.stop()
        trees[0].remove()
        assert ray.is_initialized()
        assert second.alive()
        assert trees[1].child("engine").pids() == joined
        folder = own_folder()
        assert folder.is_dir()
    finally:
        second.stop()
        for tree in trees:
            tree.remove()
    assert not ray.is_initialized()
    assert not folder.exists()


@pytest.mark.long
def test_engine_ends_only_the_processes_of_ray() -> None:
    """A child that the caller started earlier stays where it is, and lives on."""
    ray = import_ray()
    bystander = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    tree = writable_group("engine")
    running = Engine(tree)
    try:
        group = tree.child("engine")
        joined = group.pids()
        assert bystander.pid not in joined
        assert joined
        commands = [" ".join(psutil.Process(pid).cmdline()) for pid in joined]
        assert not [each for each in commands if "monitor.py" in each or "dashboard.py" in each], "one host needs none"
        assert ray.is_initialized()
        deadline = time.monotonic() + 20
        while running.cpu_used_s() == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert running.cpu_used_s() > 0
        folder = own_folder()
        assert folder.is_dir()
        second = Engine(None)  # joins the one that this process has, and must not end it
        second.stop()
        assert ray.is_initialized()
    finally:
        running.stop()
        tree.remove()
    assert not ray.is_initialized()
    assert not folder.exists()
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in joined)
    assert bystander.poll() is None
    bystander.communicate(timeout=10)


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_other_users_cannot_write_where_workers_import() -> None:
    """Ray opens its own folder to everybody; nobody else reaches it."""
    ray = import_ray()
    running = Engine()
    try:
        paths, folder = ray.get(ray.remote(lambda: (sys.path, os.getcwd())).remote())
        where = {str(Path(folder, path)) for path in paths} | {str(path) for path in own_folder().rglob("*")}
        tried = ["/bin/sh", "-c", 'for at; do ! test -w "$at" || echo "$at"; done', "sh", *sorted(where)]
        done = subprocess.run(tried, user=65534, extra_groups=(), capture_output=True, text=True, check=True)
        assert done.stdout == ""
        assert os.listdir(folder) == []
    finally:
        running.stop()


@pytest.mark.long
def test_replica_does_not_start_where_others_can_write() -> None:
    class Started(Replica):
        role = "ps"

    running = Engine()
    try:
        actor = running.ray.remote(num_cpus=0)(Started)
        assert running.ray.get(actor.remote({}, 0).pid.remote())
        (own_folder() / "empty").chmod(0o777)
        with pytest.raises(running.ray.exceptions.RayActorError, match=r"Other users can write to .*/empty"):
            running.ray.get(actor.remote({}, 1).pid.remote())
    finally:
        running.stop()


@pytest.mark.long
def test_local_ray_listens_on_loopback_only() -> None:
    engine = Engine()
    try:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        of_session = [each for each in processes if each.pid != os.getpid()]
        heard = [
            link for each in of_session for link in each.net_connections("inet") if link.status == psutil.CONN_LISTEN
        ]
        assert heard
        assert {link.laddr.ip.removeprefix("::ffff:") for link in heard} <= {"127.0.0.1", "::1"}
    finally:
        engine.stop()


def test_process_counts_as_running_while_no_file_can_be_opened_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(_: object) -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    process = psutil.Process()
    assert _runs(process)
    monkeypatch.setattr(psutil.Process, "status", no_descriptor)
    assert _runs(process)
    assert not _is_stopped(process)


def test_stopped_process_is_told_from_one_that_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        process = psutil.Process(child.pid)
        assert not _is_stopped(process)
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        assert _is_stopped(process)
        assert _runs(process)
        child.kill()
        child.wait()
        assert not _is_stopped(process)
        assert not _runs(process)
