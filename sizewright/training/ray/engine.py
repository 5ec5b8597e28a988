"""The Ray instance of this process: a private local one, or a connection to a cluster."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import psutil

from sizewright.errors import EngineDiedError, EngineError, MissingExtraError
from sizewright.interrupts import uninterrupted
from sizewright.redaction import redacted
from sizewright.training.host.cgroups import CgroupTree
from sizewright.training.host.leftovers import temporary_folder
from sizewright.training.host.thread_cache import ThreadCache

NAMESPACE = "sizewright"
AGAIN = "Run the same command again; it continues where it stopped."
T = TypeVar("T")
_ASKING = ThreadCache()
NODE_IP_VARIABLE = "SIZEWRIGHT_NODE_IP"
"""Where a machine has several addresses: the one that its Ray node was started with."""
_RAY, _EMPTY = "ray", "empty"
"""Ray opens its own folder to all users; workers load code from the one in which it was started."""
_CORE = ("raylet", "gcs_server")
"""Without either of these nothing goes on."""
_OBJECT_STORE_BYTES = 100 * 1024**2
_ANSWER_S = 5.0
_ENDS_S = 2.0
_HEAD_EVERY_S, _HEAD_GONE_S = 1.0, 8.0
# Ray speaks HTTP/2, where either side begins with its settings.
_SETTINGS, _FRAME_TYPE = b"\x04", slice(3, 4)
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)


def import_ray(*, own: bool = True) -> ModuleType:
    """Ray, or one clear error with the pip line when it or torch is missing.

    A Ray of our `own` takes calls only from those who know its token; Ray reads that when it is imported first.
    """
    if own and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(32)
    # Ray's memory watch would end replicas by the host's memory; here their own limit decides.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DISABLE_IMPORT_WARNING", "1")
    # Ray's handler of SIGTERM ends a process that is joining Ray; this is read when Ray is imported first.
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("profile", "torch")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("profile", "ray") from None
    module: ModuleType = ray
    return module


_ours: list[Engine] = []
"""Engines of this process that use a Ray that one of them has started or joined: the last to stop ends that."""


class Engine:
    """A private Ray on this host, the cluster at `address`, or the Ray to which this process is already connected.

    Several engines of a process share one Ray.
    """

    def __init__(self, group: CgroupTree | None = None, *, address: str | None = None) -> None:
        self.ray = import_ray(own=address is None)
        self.address = address
        self._group = group.child("engine") if group else None
        self._owned = not self.ray.is_initialized()
        self._held = contextlib.ExitStack()
        self._core: list[psutil.Process] = []
        self._stopped_s: float | None = None
        self._cpu_used_s = 0.0
        self._answered_s = self._asks_again_s = time.monotonic()
        self._strangers = set(_children())  # processes that the caller started earlier are none of ours
        if any(other.address != address for other in _ours):
            raise EngineError(
                "This process already uses another Ray cluster, and can use only one at a time.",
                "Stop the job that runs there first, or run this job in a separate process.",
            )
        if not _ours and address is not None:
            self._connect(address)
        elif self._owned:
            self._start()
        if self._owned or _ours:
            _ours.append(self)

    @property
    def local(self) -> bool:
        """Return whether all replicas run on this host."""
        return self.address is None

    def ip(self) -> str:
        """The address under which other machines of the cluster reach this one."""
        return "127.0.0.1" if self.local else str(self.ray.util.get_node_ip_address())

    def cpu_used_s(self) -> float:
        """Return the CPU seconds of Ray's own processes, which no replica is charged for."""
        with contextlib.suppress(OSError):  # where this process can open no file, the last reading stands
            self._cpu_used_s = self._read_cpu_used_s()
        return self._cpu_used_s

    def _read_cpu_used_s(self) -> float:
        if self._group:
            return self._group.cpu_used_s()
        total = 0.0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):  # it may end meanwhile
                if "ray::" not in process.name():
                    times = process.cpu_times()
                    total += times.user + times.system
        return total

    def alive(self) -> bool:
        """Return whether Ray's own processes run and are not stopped, or the cluster's head has answered recently."""
        if self.address is not None:
            return self._head_answers(self.address)
        if not self._owned:
            return bool(self.ray.is_initialized())
        if len(self._core) < len(_CORE):  # looked for once: that takes a hundredth of a second
            self._core = [process for process in self._processes() if _named(process, _CORE)]
        return len(self._core) >= len(_CORE) and all(map(_runs, self._core)) and not self._stopped_for_long()

    def _stopped_for_long(self) -> bool:
        """Return whether one of Ray's own processes has been stopped for some seconds."""
        if not any(map(_is_stopped, self._core)):
            self._stopped_s = None
            return False
        self._stopped_s = self._stopped_s or time.monotonic()
        return time.monotonic() - self._stopped_s > _HEAD_GONE_S

    def ask_head(self, call: Callable[[], T]) -> T:
        """Return the result of a Ray call that the cluster's head answers.

        Ray itself would wait for ever. Raise EngineDiedError if the head has ended.
        """
        if self.address is None:
            return call()
        if not self.alive():
            raise engine_died()
        answer: Future[T] = Future()
        _ASKING.submit(_into, answer, call)
        while True:
            try:
                return answer.result(timeout=_HEAD_EVERY_S)
            except TimeoutError:
                if not answer.done() and not self.alive():
                    raise engine_died() from None

    def kill(self, actor: Any) -> None:
        """End an actor, and ignore all errors."""
        with contextlib.suppress(Exception):
            self.ask_head(lambda: self.ray.kill(actor, no_restart=True))

    def _head_answers(self, address: str) -> bool:
        """Return whether the head has answered recently.

        Ray itself notices its end only after a minute, and then ends this process.
        """
        now = time.monotonic()
        if now >= self._asks_again_s:
            self._asks_again_s = now + _HEAD_EVERY_S
            with contextlib.suppress(EngineError):
                _check_answers(address, timeout_s=_HEAD_EVERY_S)
                self._answered_s = time.monotonic()
        return now - self._answered_s < _HEAD_GONE_S

    def stop(self) -> None:
        """Shut Ray down and remove its files, if this process started it and no other engine uses it."""
        if self in _ours:
            _ours.remove(self)
        if self._owned and _ours:
            _ours[0]._take_over(self)
        if self._owned:
            _end(filter(_is_stopped, self._core), timeout_s=0)  # Ray would wait for an answer for ever
            with uninterrupted():
                self.ray.shutdown()  # also what a start that failed half-way has left
        self._held.close()

    def _take_over(self, other: Engine) -> None:
        self._strangers = other._strangers
        self._held = other._held
        self._core = other._core
        self._owned, other._owned = True, False
        other._held = contextlib.ExitStack()
        self._join_group(other._group.pids() if other._group else ())

    def _join_group(self, pids: Iterable[int]) -> None:
        for pid in pids if self._group else ():
            assert self._group is not None
            with contextlib.suppress(ProcessLookupError):
                self._group.join(pid)

    def _connect(self, address: str) -> None:
        _check_answers(address)
        if not self._owned:
            raise EngineError(
                "This process is already connected to a Ray cluster.",
                "Disconnect first with ray.shutdown(), or leave the address out.",
            )
        self._held.enter_context(_own_output(self.ray))
        try:
            # Every machine has the root folder, and other users cannot write there.
            with _no_signals(self.ray), _working_folder(Path("/")):
                self.ray.init(
                    address=address,
                    namespace=NAMESPACE,
                    log_to_driver=False,
                    logging_level=logging.CRITICAL,
                    **({"_node_ip_address": os.environ[NODE_IP_VARIABLE]} if NODE_IP_VARIABLE in os.environ else {}),
                )
        except BaseException as error:
            self.stop()
            if not isinstance(error, Exception):
                raise
            raise _cannot_join(address, error) from error

    def _start(self) -> None:
        _check_shared_memory()
        folder = self._held.enter_context(temporary_folder())
        for name in (_RAY, _EMPTY):
            (folder / name).mkdir()
        self._held.enter_context(_own_output(self.ray))
        with (
            _no_signals(self.ray), _loopback(self.ray), _few_processes(self.ray), _working_folder(folder / _EMPTY)
        ):  # fmt: skip
            self._init_ray(folder / _RAY)
        if stat.S_IMODE(folder.stat().st_mode) != 0o700:
            self.stop()
            raise EngineError(
                f"Ray opened {folder}, from which workers load code, to other users.", "Report this as a bug."
            )
        self._join_group(process.pid for process in self._processes())

    def _init_ray(self, folder: Path) -> None:
        try:
            self.ray.init(
                address="local",
                namespace=NAMESPACE,
                num_cpus=os.cpu_count(),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                object_store_memory=_OBJECT_STORE_BYTES,
                _temp_dir=str(folder),
            )
        except BaseException as error:
            started = self._processes()
            self.stop()
            _end(started)  # agents of a raylet that was ended while it started would stay for half a minute
            if not isinstance(error, Exception):
                raise
            first = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineError(
                f"Ray could not start: {first[0]}",
                "Check that ports on the loopback interface and /dev/shm are free, then try again.",
            ) from error

    def _processes(self) -> set[psutil.Process]:
        return set(_children()) - self._strangers


def _named(process: psutil.Process, names: Iterable[str]) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(name in process.name() for name in names)
    return False


def _is_stopped(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
    except OSError:  # strangers hold all descriptors of this process for a while, so that it cannot look
        return True


def _end(processes: Iterable[psutil.Process], timeout_s: float = _ENDS_S) -> None:
    """Kill the processes that have not ended after some seconds."""
    _, running = psutil.wait_procs(list(processes), timeout=timeout_s)
    for process in running:
        with contextlib.suppress(psutil.Error):
            process.kill()


@contextlib.contextmanager
def _no_signals(ray: ModuleType) -> Iterator[None]:
    """Protect Ray from signals while it starts.

    An interrupted start may crash this process, also by a signal to all processes of a terminal. Ray would also take
    over SIGTERM, and end without cleaning up.
    """
    utils = ray._private.utils
    services = ray._private.services
    takes = utils.set_sigterm_handler
    starts = services.ConsolePopen
    utils.set_sigterm_handler = lambda _: None
    services.ConsolePopen = functools.partial(starts, start_new_session=True)
    try:
        with uninterrupted():
            yield
    finally:
        utils.set_sigterm_handler = takes
        services.ConsolePopen = starts


@contextlib.contextmanager
def _loopback(ray: ModuleType) -> Iterator[None]:
    """Let Ray listen on the loopback interface alone, as it does when support for clusters is off."""
    constants = ray._private.ray_constants
    name = constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    previous = constants.ENABLE_RAY_CLUSTER
    previous_variable = os.environ.get(name)
    constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = previous
        os.environ.pop(name)
        if previous_variable is not None:
            os.environ[name] = previous_variable


@contextlib.contextmanager
def _few_processes(ray: ModuleType) -> Iterator[None]:
    """Start none of Ray's processes that one host does not need, for which it has no setting.

    Its autoscaler, its dashboard and its reader of logs each take a second of CPU and 100 MB.
    """
    node = ray._private.node.Node
    names = ("start_monitor", "start_api_server", "start_log_monitor")
    starts = {name: getattr(node, name) for name in names if hasattr(node, name)}
    for name in starts:
        setattr(node, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, start in starts.items():
            setattr(node, name, start)


@contextlib.contextmanager
def _own_output(ray: ModuleType) -> Iterator[None]:
    """Suppress Ray's messages on ended processes and lost nodes, for which it has no setting."""
    worker = ray._private.worker
    prints = getattr(worker, "print_to_stdstream", None)
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = prints


@contextlib.contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    """Work in another folder: Ray's workers import from the folder in which Ray was started."""
    previous = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(previous)


def engine_died() -> EngineDiedError:
    """Return the error to raise when Ray has ended."""
    return EngineDiedError("Ray's own processes have ended.", AGAIN)


def _into(answer: Future[T], call: Callable[[], T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)


def _check_answers(address: str, timeout_s: float = _ANSWER_S) -> None:
    """Raise EngineError unless Ray answers at the address; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise EngineError(
            f"'{address}' is not a valid address of a Ray cluster.", "Write it as HOST:PORT, such as 10.0.0.5:6379."
        )
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as link:
            link.sendall(_HELLO)
            answer = link.recv(len(_HELLO))
        if answer[_FRAME_TYPE] != _SETTINGS and os.environ.get("RAY_USE_TLS", "0") != "1":
            raise ConnectionError("another service answers there")
    except (OSError, OverflowError) as error:
        reason = "no answer" if isinstance(error, TimeoutError) else str(error)
        raise EngineError(
            f"No Ray cluster answers at {address}: {reason}.",
            "Check the address, or start one there: ray start --head.",
        ) from None


def _cannot_join(address: str, error: Exception) -> EngineError:
    reason = redacted(" ".join(str(error).split()))[:200] or type(error).__name__
    return EngineError(
        f"The Ray cluster at {address} could not be joined: {reason.rstrip('.')}.",
        "Check it with `ray status`, and set RAY_AUTH_MODE and RAY_AUTH_TOKEN to the cluster's values.",
    )


def _check_shared_memory(folder: Path = Path("/dev/shm")) -> None:
    if folder.is_dir():
        free = shutil.disk_usage(folder).free
        if free < _OBJECT_STORE_BYTES:
            raise EngineError(
                f"{folder} has {free // 1024**2} MiB free, but Ray needs {_OBJECT_STORE_BYTES // 1024**2} MiB.",
                "Free some space there, or mount it larger (docker run --shm-size=1g).",
            )


def _children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if p.is_running()]
