"""A test bed of several machines on one host, each with a Ray node, under Ray's token authentication.

    with Bed(nodes=3, rate="200mbit", delay="1ms") as bed:
        done = bed.run([sys.executable, "driver.py"], timeout_s=60)

or `python -m tests.helpers.network.testbed --nodes 3 --rate 200mbit --delay 1ms -- COMMAND...`. A driver runs on a
machine and connects with

    ray.init(address=os.environ["SIZEWRIGHT_ADDRESS"], _node_ip_address=os.environ["SIZEWRIGHT_NODE_IP"])
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from sizewright.errors import EngineError, SizewrightError
from sizewright.interrupts import uninterrupted
from tests.helpers.network.namespaces import Network, require_host, sweep
from tests.helpers.network.signals import signals_raise

_PORT = 6379  # each head has its own network
_START_S = 90.0
_READY = "Ray runtime started."
_NODE_ENVIRONMENT = {
    "RAY_memory_monitor_refresh_ms": "0",
    # Health checks: with Ray's defaults a killed node counts as dead after 15 s and a silent one after 64 s;
    # with these settings after 1.5 s and 10 s, and nodes of a busy host still answer in time.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}


class Bed:
    """`nodes` machines with a Ray node on each; machine 0 has the head. Use it in a `with` block.

    `rate` and `delay` hold for each direction of each machine's link (see `Network`); `cpus`, `memory_bytes` and
    `object_store_bytes` are the resources of each Ray node. Leaving the block ends every process on the machines
    and removes everything; the remains of a bed whose process was killed are removed by the next bed.
    Raises InputError for an invalid rate or delay; entering raises EngineError without root, or if a node
    does not start.
    """

    def __init__(
        self, nodes: int = 2, rate: str = "200mbit", delay: str = "1ms", *, cpus: int = 2,
        memory_bytes: int = 1 << 30, object_store_bytes: int = 100_000_000,
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self._network = Network(nodes, rate, delay)
        self._offer = [
            f"--num-cpus={cpus}",
            f"--memory={memory_bytes}",
            f"--object-store-memory={object_store_bytes}",
        ]
        self._token = secrets.token_hex(32)
        self._children: list[subprocess.Popen[Any]] = []
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> Self:
        require_host()
        sweep()
        with contextlib.ExitStack() as undo:
            undo.enter_context(signals_raise())
            undo.callback(self._take_down)
            self._network.bring_up()
            self._await_node(0, self._start_node(0))
            others = [(i, self._start_node(i)) for i in range(1, self.nodes)]
            for i, process in others:
                self._await_node(i, process)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    @property
    def address(self) -> str:
        """Address of the cluster, `ip:port`, reachable from the machines only."""
        return f"{self.ip(0)}:{_PORT}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a driver on machine 0 needs; `run` and `popen` set them for the machine they run on."""
        return self._environment(0)

    def ip(self, node: int) -> str:
        """Address of a machine."""
        return self._network.ip(node)

    def pids(self, node: int) -> list[int]:
        """Return the living processes on a machine: its Ray node, the children of this, and drivers."""
        return self._network.pids(node)

    def popen(self, command: list[str], *, node: int = 0, **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a machine; `options` as of subprocess.Popen, `env` adding to the environment."""
        environment = {**_clean_environment(), **self._environment(node), **options.pop("env", {})}
        process = subprocess.Popen([*self._network.enter(node), *command], env=environment, **options)
        self._children.append(process)
        return process

    def run(
        self, command: list[str], *, node: int = 0, timeout_s: float, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a machine; output as text. Kills it and raises subprocess.TimeoutExpired after `timeout_s`.

        `env` adds to the environment.
        """
        pipe = subprocess.PIPE
        process = self.popen(
            command, node=node, env=env or {}, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # with its children, which would keep the pipes open
            process.wait()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def kill_node(self, node: int, *, silent: bool = False) -> None:
        """Kill a machine: its Ray node, the children of this, and drivers on it.

        `silent` cuts its link first, as when power fails: no connection is closed, peers only hear nothing.
        """
        if silent:
            self.cut(node)
        self._network.kill(node)

    def cut(self, node: int) -> None:
        """Cut a machine's link; its processes live on."""
        self._network.cut(node)

    def mend(self, node: int) -> None:
        """Mend a link that was cut."""
        self._network.mend(node)

    def _environment(self, node: int) -> dict[str, str]:
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
            "SIZEWRIGHT_ADDRESS": self.address,
            "SIZEWRIGHT_NODE_IP": self.ip(node),
        }

    def _start_node(self, node: int) -> subprocess.Popen[Any]:
        head = ["--head", f"--port={_PORT}", "--include-dashboard=false", "--no-monitor"]
        role = head if node == 0 else [f"--address={self.address}"]
        ray_start = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats",
            f"--node-ip-address={self.ip(node)}", f"--temp-dir={self._network.folder / f'n{node}'}",
            "--include-log-monitor=false", "--log-color=false", *self._offer, *role,
        ]  # fmt: skip
        with open(self._log(node), "w") as log:
            return self.popen(
                ray_start, node=node, env=_NODE_ENVIRONMENT,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _await_node(self, node: int, process: subprocess.Popen[Any]) -> None:
        end = time.monotonic() + _START_S
        while _READY not in (text := self._log(node).read_text()):
            if process.poll() is not None or time.monotonic() > end:
                raise EngineError(f"Ray did not start on machine {node} of the test bed: {text.strip()[-2000:]}")
            time.sleep(0.02)

    def _log(self, node: int) -> Path:
        return self._network.folder / f"n{node}.log"

    def _take_down(self) -> None:
        with uninterrupted():
            self._network.take_down()
            for process in self._children:
                process.wait()


def _clean_environment() -> dict[str, str]:
    """Return the environment without variables that point to another cluster."""
    return {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH", "RAY_TMPDIR")}


def main() -> int:
    """Bring a bed up, run a command on machine 0, take the bed down; returns the command's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.network.testbed", description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=2, help="machines (default: 2)")
    parser.add_argument("--rate", default="200mbit", help="of each direction of each link (default: 200mbit)")
    parser.add_argument("--delay", default="1ms", help="of each direction of each link (default: 1ms)")
    parser.add_argument("command", nargs="+", help="after --; finds the cluster by SIZEWRIGHT_ADDRESS")
    options = parser.parse_args()
    try:
        with Bed(options.nodes, options.rate, options.delay) as bed:
            code = bed.popen(options.command).wait()
    except SizewrightError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
