"""What this machine can do: each check is tried, not guessed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from sizewright.api.inputs import open_store, store_path
from sizewright.errors import EngineError, LimitError, MissingExtraError, NoTrialsError, StoreError
from sizewright.interrupts import uninterrupted
from sizewright.profiler.interference import others_busy_s
from sizewright.spec.checkup import Check, Checkup
from sizewright.spec.units import GIB, format_bytes, format_count
from sizewright.training.cgroups import find_cgroups
from sizewright.training.host import available_memory_bytes, host_cores
from sizewright.training.leftovers import group_name

EXTRAS = {
    "profile": (("torch", "ray"), "Nothing can be measured or trained here; trials of another machine can be used."),
    "track": (("mlflow",), "`retrain`, and priors of a registry, do not work."),
    "kubernetes": (("kubernetes",), "Plans are rendered for Kubernetes, but not applied."),
    "plots": (("matplotlib", "jinja2"), "`report` and figures do not work."),
    "metrics": (("prometheus_client",), "Jobs are not told to a Prometheus (--metrics-port)."),
    "postgres": (("psycopg",), "Stores are SQLite files; PostgreSQL cannot be reached."),
}
_SHARED_MEMORY = Path("/dev/shm")
_LEAST_FILES = 4096
_BUSY_LOOK_S, _BUSY_SHARE = 0.5, 0.25  # trials leave a fifth of the cores free


def doctor(
    *, store: str | Path | None = None, address: str | None = None, progress: Callable[[str], None] = lambda _: None
) -> Checkup:
    """Look at cores, memory, control groups, shared memory, ports, packages, GPU, Ray and the store.

    Ray is started on this machine, or joined at `address`, and left again; it takes some seconds. `progress` is called
    with the name of each check before it begins. Nothing is left behind, and what fails is in the answer, not raised.
    """
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("cores", _cores),
        ("other work", _other_work),
        ("memory", _memory),
        ("control groups", _control_groups),
        ("shared memory", _shared_memory),
        ("ports", _ports),
        ("open files", _open_files),
        ("GPU", _gpu),
        ("Ray", lambda: _ray(address)),
        ("store", lambda: _store(store)),
    ]
    found = list[Check]()
    for name, check in checks:
        progress(name)
        found.append(check())
    progress("packages")
    return Checkup(checks=(*found, *_packages()))


def _cores() -> Check:
    cores = host_cores()
    if cores >= 2:
        return Check(name="cores", level="ok", found=f"{cores:g}")
    means = "Workers and PS share a core, so trials are slow and tell little of more than one worker."
    return Check(name="cores", level="lacking", found=f"{cores:g}", means=means, remedy="Measure on two cores or more.")


def _other_work() -> Check:
    name, cores = "other work", host_cores()
    began, busy_s = time.monotonic(), others_busy_s()
    time.sleep(_BUSY_LOOK_S)
    used = max(0.0, (others_busy_s() - busy_s) / (time.monotonic() - began))
    found = f"it uses {used:.1f} of this host's {psutil.cpu_count() or 1} cores"
    if used <= _BUSY_SHARE * cores:
        return Check(name=name, level="ok", found=found)
    means = "Trials that are measured now are void, or imprecise: other work takes their cores."
    return Check(name=name, level="lacking", found=found, means=means, remedy="Measure when nothing else runs.")


def _memory() -> Check:
    left = available_memory_bytes()
    if left >= 2 * GIB:
        return Check(name="memory", level="ok", found=f"{format_bytes(left)} to be had")
    means = "Tables are measured at a small part of their size, and replicas may be ended for memory."
    return Check(name="memory", level="lacking", found=f"{format_bytes(left)} to be had", means=means,
                 remedy="Free some: 2 GiB or more.")  # fmt: skip


def _control_groups() -> Check:
    name = "control groups"
    tree = find_cgroups(group_name("sizewright-doctor"))
    if tree is None:
        return Check(
            name=name, level="lacking", found="none can be made",
            means="Replicas are held to whole cores, and their memory is not limited.",
            remedy="Run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes sizewright …",
        )  # fmt: skip
    try:
        child = tree.child("check")
        child.set_cpu(0.5)
        child.set_memory(GIB)
    except (LimitError, OSError) as error:
        return Check(
            name=name, level="lacking", found=f"version {tree.version}, which refuses a limit: {error}",
            means="Fractions of cores or limits of memory do not hold, so that trials are void.",
            remedy="Delegate the cpu and memory controllers to this user.",
        )  # fmt: skip
    finally:
        tree.remove()
    return Check(name=name, level="ok", found=f"version {tree.version}: fractions of cores and memory can be limited")


def _shared_memory() -> Check:
    name, means = "shared memory", "Ray is slow, or does not start."
    if not _SHARED_MEMORY.is_dir():
        return Check(name=name, level="lacking", found="no /dev/shm", means=means, remedy="Mount a tmpfs at /dev/shm.")
    free = shutil.disk_usage(_SHARED_MEMORY).free
    found = f"{format_bytes(free)} free in /dev/shm"
    if free >= GIB // 4:
        return Check(name=name, level="ok", found=found)
    remedy = "Free some, or start the container with --shm-size=1g."
    return Check(name=name, level="lacking", found=found, means=means, remedy=remedy)


def _ports() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(2.0)
            with socket.create_connection(server.getsockname(), timeout=2.0), server.accept()[0]:
                return Check(name="ports", level="ok", found="the loopback interface takes connections")
    except OSError as error:
        return Check(name="ports", level="broken", found=f"no connection on 127.0.0.1: {error}",
                     means="Workers cannot reach PS, so nothing can be measured.",
                     remedy="Bring the loopback interface up, and let processes listen on it.")  # fmt: skip


def _open_files() -> Check:
    try:
        import resource
    except ImportError:
        return Check(name="open files", level="ok", found="no limit is known")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or limit >= _LEAST_FILES:
        return Check(name="open files", level="ok", found="no limit" if limit < 0 else f"{limit} at most")
    return Check(name="open files", level="lacking", found=f"{limit} at most",
                 means="Ray with many replicas may run out of them.", remedy="Run: ulimit -n 65536")  # fmt: skip


def _gpu() -> Check:
    if importlib.util.find_spec("torch") is None:
        return Check(name="GPU", level="lacking", found="unknown: PyTorch is not installed",
                     means="Jobs on a GPU cannot be measured here.",
                     remedy="Run: pip install 'sizewright[profile]'")  # fmt: skip
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        memory = format_bytes(torch.cuda.get_device_properties(0).total_memory)
        return Check(name="GPU", level="ok", found=f"{count} × {torch.cuda.get_device_name(0)} with {memory}")
    return Check(name="GPU", level="lacking", found="none", means="Jobs on a GPU cannot be measured here; others can.",
                 remedy="Bring trials of such a machine: sizewright trials import FILE --job JOB")  # fmt: skip


def _ray(address: str | None) -> Check:
    from sizewright.training.engine import Engine

    began = time.perf_counter()
    try:
        with uninterrupted():
            engine = Engine(address=address)
            try:
                version, cores = engine.ray.__version__, engine.ray.cluster_resources().get("CPU", 0)
            finally:
                engine.stop()
    except MissingExtraError as error:
        return Check(name="Ray", level="lacking", found="not installed", means=EXTRAS["profile"][1],
                     remedy=error.remedy)  # fmt: skip
    except EngineError as error:
        return Check(name="Ray", level="lacking", found=error.message, means=EXTRAS["profile"][1],
                     remedy=error.remedy)  # fmt: skip
    where = f"joined at {address}" if address else "started here"
    took = time.perf_counter() - began
    return Check(name="Ray", level="ok", found=f"{version}, {where} with {format_count(cores, 'core')} in {took:.1f} s")


def _store(url: str | Path | None) -> Check:
    try:
        with contextlib.closing(open_store(url)) as opened, opened.exclusively("check"):
            return Check(name="store", level="ok", found=f"{opened.name}: {format_count(opened.count(), 'trial')}")
    except NoTrialsError as error:
        folder = store_path(url).absolute().parent
        if os.access(folder, os.W_OK):
            return Check(name="store", level="ok", found=f"none yet: `sizewright profile` makes one in {folder}")
        found, remedy = f"{error.message} None can be made in {folder}.", "Name another file as the store."
    except StoreError as error:
        found, remedy = error.message, error.remedy
    return Check(name="store", level="broken", found=found, means="Nothing that is measured can be kept.",
                 remedy=remedy)  # fmt: skip


def _packages() -> Iterator[Check]:
    for extra, (modules, means) in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            remedy = f"Run: pip install 'sizewright[{extra}]'"
            yield Check(name=f"extra {extra}", level="lacking", found=f"no {' and no '.join(missing)}", means=means,
                        remedy=remedy)  # fmt: skip
        else:
            yield Check(name=f"extra {extra}", level="ok", found=", ".join(modules))
