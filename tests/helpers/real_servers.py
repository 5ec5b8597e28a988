"""Servers that long tests start, each on its own port and in its own folder."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(command: Sequence[object], ready: Callable[[], bool], log: Path, **options: object) -> Iterator[None]:
    """Run a server: yield once it is ready, and end it with its children."""
    with log.open("wb") as out:
        server = subprocess.Popen(
            [str(word) for word in command], stdout=out, stderr=out, start_new_session=True, **options
        )  # type: ignore[call-overload]
        try:
            deadline = time.monotonic() + 90
            while not ready():
                assert server.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.3)
            yield
        finally:
            os.killpg(server.pid, 15)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, 9)
                server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", port, "--workers", 1,
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", folder / "artifacts",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    # Seven processes that run MLflow's own jobs, which no test has, would compete with the server.
    env = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with started(command, lambda: answers(f"{url}/health"), folder / "mlflow.log", env=env):
        yield url


@contextmanager
def prometheus_server(folder: Path, exporter: str) -> Iterator[str]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Debian's prometheus is not installed")
    port = free_port()
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: cadvisor, static_configs: [{{targets: ['{exporter}']}}]}}]\n"
    )
    command = [
        program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with started(command, lambda: answers(f"{url}/-/ready"), folder / "prometheus.log"):
        yield url


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """Run PostgreSQL, as the user `postgres` if this is root, which PostgreSQL refuses."""
    installed = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    if not installed:
        pytest.skip("Debian's postgresql is not installed")
    programs, port = Path(installed[-1]).parent, free_port()
    who = {"user": "postgres"} if os.geteuid() == 0 else {}
    # Not below pytest's folder, which every pytest that starts on this host closes to other users.
    with tempfile.TemporaryDirectory(prefix="postgres-") as data:
        if who:
            shutil.chown(data, **who)
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "owner", "--auth=trust", "-E", "UTF8"], check=True,
            stdout=subprocess.DEVNULL, **who,
        )  # type: ignore[call-overload]  # fmt: skip
        command = [programs / "postgres", "-D", data, "-p", port, "-k", data, "-c", "listen_addresses=127.0.0.1"]

        def ready() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        with started(command, ready, folder / "postgres.log", **who):
            yield f"postgresql://owner@127.0.0.1:{port}/postgres"
