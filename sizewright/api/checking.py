"""Diagnose what this machine can do; each check tries the real thing."""

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
from sizewright.formatting import GIB, format_bytes, format_count
from sizewright.interrupts import uninterrupted
from sizewright.profiler.measure.interference import others_busy_s
from sizewright.spec.diagnosis import Check, Diagnosis
from sizewright.training.host.capacity import available_memory_bytes, host_cores
from sizewright.training.host.cgroups import find_cgroups
from sizewright.training.host.leftovers import group_name

EXTRAS = {
    "profile": (("torch", "ray"), "Nothing can be measured or trained here; trials of another machine can be used."),
    "gpu": (("pynvml",), "Trials on GPUs do not record device memory, utilization and power."),
    "track": (("mlflow",), "`retrain`, and priors from a registry, do not work."),
    "kubernetes": (("kubernetes",), "Plans can be rendered for Kubernetes, but not applied."),
    "plots": (("matplotlib", "jinja2"), "`report` and figures do not work."),
    "metrics": (("prometheus_client",), "Metrics cannot be exported to Prometheus (--metrics-port)."),
    "postgres": (("psycopg",), "Stores can only be SQLite files, not PostgreSQL databases."),
}
_SHARED_MEMORY = Path("/dev/shm")
_MIN_OPEN_FILES = 4096
_BUSY_WINDOW_S = 0.5
_BUSY_SHARE = 0.25  # trials leave a fifth of the cores free


def doctor(
    *, store: str | Path | None = None, address: str | None = None, progress: Callable[[str], None] = lambda _: None
) -> Diagnosis:
    """Check cores, memory, control groups, shared memory, ports, packages, GPU, Ray and the store.

    Ray is started on this machine, or joined at `address`, and stopped or left again, which takes some seconds.
    `progress` is called with the name of each check before it begins. Nothing is left behind. A check that fails is
    reported in the diagnosis and raises nothing.
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
    results = list[Check]()
    for name, check in checks:
        progress(name)
        results.append(check())
    progress("packages")
    return Diagnosis(checks=(*results, *_packages()))


def _ok(name: str, found: str) -> Check:
    return Check(name=name, level="ok", found=found)


def _warning(name: str, found: str, means: str, remedy: str) -> Check:
    return Check(name=name, level="lacking", found=found, means=means, remedy=remedy)


def _error(name: str, found: str, means: str, remedy: str) -> Check:
    return Check(name=name, level="broken", found=found, means=means, remedy=remedy)


def _cores() -> Check:
    cores = host_cores()
    if cores >= 2:
        return _ok("cores", f"{cores:g}")
    means = "Workers and PS share a core, so trials are slow and predict more than one worker poorly."
    return _warning("cores", f"{cores:g}", means, "Measure on two cores or more.")


def _other_work() -> Check:
    cores = host_cores()
    start_s, start_busy_s = time.monotonic(), others_busy_s()
    time.sleep(_BUSY_WINDOW_S)
    used = max(0.0, (others_busy_s() - start_busy_s) / (time.monotonic() - start_s))
    found = f"uses {used:.1f} of this host's {psutil.cpu_count() or 1} cores"
    if used <= _BUSY_SHARE * cores:
        return _ok("other work", found)
    means = "Trials that are measured now are void or imprecise, because other processes take their cores."
    return _warning("other work", found, means, "Measure when nothing else runs.")


def _memory() -> Check:
    available_bytes = available_memory_bytes()
    found = f"{format_bytes(available_bytes)} available"
    if available_bytes >= 2 * GIB:
        return _ok("memory", found)
    means = "Tables are measured at a small fraction of their size, and replicas may run out of memory."
    return _warning("memory", found, means, "Free memory: 2 GiB or more.")


def _control_groups() -> Check:
    name = "control groups"
    tree = find_cgroups(group_name("sizewright-doctor"))
    if tree is None:
        return _warning(
            name,
            found="cannot be created",
            means="Replicas are limited to whole cores, and their memory is not limited.",
            remedy="Run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes sizewright …",
        )
    try:
        child = tree.child("check")
        child.set_cpu(0.5)
        child.set_memory(GIB)
    except (LimitError, OSError) as error:
        return _warning(
            name,
            found=f"version {tree.version}, which refuses a limit: {error}",
            means="Limits on fractions of cores or on memory are not enforced, so trials are void.",
            remedy="Delegate the cpu and memory controllers to this user.",
        )
    finally:
        tree.remove()
    return _ok(name, f"version {tree.version}: fractions of cores and memory can be limited")


def _shared_memory() -> Check:
    name, means = "shared memory", "Ray is slow, or does not start."
    if not _SHARED_MEMORY.is_dir():
        return _warning(name, "no /dev/shm", means, "Mount a tmpfs at /dev/shm.")
    free_bytes = shutil.disk_usage(_SHARED_MEMORY).free
    found = f"{format_bytes(free_bytes)} free in /dev/shm"
    if free_bytes >= GIB // 4:
        return _ok(name, found)
    return _warning(name, found, means, "Free space there, or start the container with --shm-size=1g.")


def _ports() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(2.0)
            with socket.create_connection(server.getsockname(), timeout=2.0), server.accept()[0]:
                return _ok("ports", "the loopback interface accepts connections")
    except OSError as error:
        return _error(
            "ports",
            found=f"no connection on 127.0.0.1: {error}",
            means="Workers cannot reach PS, so nothing can be measured.",
            remedy="Bring the loopback interface up, and let processes listen on it.",
        )


def _open_files() -> Check:
    try:
        import resource
    except ImportError:
        return _ok("open files", "no known limit")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or limit >= _MIN_OPEN_FILES:
        return _ok("open files", "no limit" if limit < 0 else f"{limit} at most")
    return _warning(
        "open files",
        found=f"{limit} at most",
        means="Ray may exceed the limit with many replicas.",
        remedy="Run: ulimit -n 65536",
    )


def _gpu() -> Check:
    if importlib.util.find_spec("torch") is None:
        return _warning(
            "GPU",
            found="unknown: PyTorch is not installed",
            means="Jobs on a GPU cannot be measured here.",
            remedy="Run: pip install 'sizewright[profile]'",
        )
    import torch

    from sizewright.training.host.gpus import load_nvml

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        memory = format_bytes(torch.cuda.get_device_properties(0).total_memory)
        found = f"{count} × {torch.cuda.get_device_name(0)} with {memory}"
        if load_nvml():
            return _ok("GPU", found)
        return _warning(
            "GPU",
            found=f"{found}, and no answer of NVML",
            means=EXTRAS["gpu"][1],
            remedy="Run: pip install 'sizewright[gpu]'; in a container, let it have the driver's library libnvidia-ml.",
        )
    return _warning(
        "GPU",
        found="none",
        means="Jobs on a GPU cannot be measured here; others can.",
        remedy="Import trials from a machine with a GPU: sizewright trials import FILE --job JOB",
    )


def _ray(address: str | None) -> Check:
    from sizewright.training.ray.engine import Engine

    start_s = time.perf_counter()
    try:
        with uninterrupted():
            engine = Engine(address=address)
            try:
                version, cores = engine.ray.__version__, engine.ray.cluster_resources().get("CPU", 0)
            finally:
                engine.stop()
    except MissingExtraError as error:
        return _warning("Ray", "not installed", EXTRAS["profile"][1], error.remedy)
    except EngineError as error:
        return _warning("Ray", error.message, EXTRAS["profile"][1], error.remedy)
    where = f"joined at {address}" if address else "started here"
    took_s = time.perf_counter() - start_s
    return _ok("Ray", f"{version}, {where} with {format_count(cores, 'core')} in {took_s:.1f} s")


def _store(url: str | Path | None) -> Check:
    try:
        with contextlib.closing(open_store(url)) as opened, opened.exclusively("check"):
            return _ok("store", f"{opened.name}: {format_count(opened.count(), 'trial')}")
    except NoTrialsError as error:
        folder = store_path(url).absolute().parent
        if os.access(folder, os.W_OK):
            return _ok("store", f"none yet; `sizewright profile` creates one in {folder}")
        found, remedy = f"{error.message} None can be created in {folder}.", "Name another file as the store."
    except StoreError as error:
        found, remedy = error.message, error.remedy
    return _error("store", found, "Measurements cannot be stored.", remedy)


def _packages() -> Iterator[Check]:
    for extra, (modules, means) in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            remedy = f"Run: pip install 'sizewright[{extra}]'"
            yield _warning(f"extra {extra}", f"no {' and no '.join(missing)}", means, remedy)
        else:
            yield _ok(f"extra {extra}", ", ".join(modules))
