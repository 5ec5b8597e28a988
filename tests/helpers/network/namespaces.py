"""Machines on one host: each is a network namespace, linked to a switch with a rate and a delay.

    node 0  eth0 ══ link ══ n0 ┐
    node 1  eth0 ══ link ══ n1 ┼ bridge (a namespace of its own, so that the host's network stays as it is)
    node 2  eth0 ══ link ══ n2 ┘

A link is a veth pair, or with a delay a pair of interfaces joined by `delay_line.py`; `tc` holds both its ends to
the rate. Every name contains the id of the process it belongs to, so that `sweep` can find what a killed
process left. A process belongs to the machine whose network namespace it is in, whoever started it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from sizewright.errors import EngineError, InputError
from tests.helpers.network import delay_line

_NAMESPACES = Path("/run/netns")
_FOLDERS = Path("/tmp")  # not TMPDIR: Ray's sockets lie below, and a socket's path has 107 characters at most
_NAME = re.compile(r"swbed-(?P<pid>\d+)-(?P<started>\d+)-\d+")
_RATE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[kmg])bit")
_DELAY = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>us|ms|s)")
_BITS = {"k": 1e3, "m": 1e6, "g": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_numbers = itertools.count()


def parse_rate(text: str) -> float:
    """Return a rate such as "200mbit" in bits/s; raise InputError if it is invalid or 0."""
    return _parse(
        text, _RATE, _BITS, 'rate "{}" is not one such as "200mbit" (kbit, mbit or gbit, above 0)', minimum=1.0
    )


def parse_delay(text: str) -> float:
    """Return a delay such as "1ms" in seconds; raise InputError if it is invalid."""
    return _parse(text, _DELAY, _SECONDS, 'delay "{}" is not one such as "1ms" (us, ms or s)', minimum=0.0)


def _parse(text: str, form: re.Pattern[str], units: dict[str, float], complaint: str, *, minimum: float) -> float:
    match = form.fullmatch(text)
    value = float(match["number"]) * units[match["unit"]] if match else -1.0
    if value < minimum:
        raise InputError(f"The {complaint.format(text)}.")
    return value


def require_host() -> None:
    """Raise EngineError unless this is root on a Linux host with the tools for namespaces."""
    if os.geteuid() != 0:
        raise EngineError("A test bed makes network namespaces, which only root may do.", "Run it as root.")
    if missing := [tool for tool in ("ip", "tc", "nsenter") if not shutil.which(tool)]:
        raise EngineError(f"A test bed needs {', '.join(missing)}.", "Install iproute2 and util-linux.")


class Network:
    """Linked namespaces, one for each machine; made by `bring_up`, removed by `take_down`.

    `rate` holds for each direction of each machine's link; each direction adds `delay`. From one machine to
    another are two links: the delay is twice `delay` one way and four times for a round trip.
    Raises InputError for an invalid rate, delay or number, and EngineError if the host refuses.
    """

    def __init__(self, nodes: int, rate: str, delay: str) -> None:
        self._rate_bits, self._delay_s = parse_rate(rate), parse_delay(delay)
        if not 1 <= nodes <= 250:
            raise InputError(f"A test bed has between 1 and 250 machines, not {nodes}.")
        number = next(_numbers)
        self.name = f"swbed-{os.getpid()}-{_started(os.getpid())}-{number}"
        self.folder = _FOLDERS / self.name
        self._switch = f"{self.name}-switch"
        self._nodes = [f"{self.name}-n{i}" for i in range(nodes)]
        # Networks are isolated; their addresses differ only to distinguish beds in logs and file names.
        self._subnet = f"10.{64 + number % 64}.{os.getpid() % 256}"
        self._line: subprocess.Popen[str] | None = None

    def ip(self, node: int) -> str:
        """Address of a machine."""
        return f"{self._subnet}.{node + 1}"

    def enter(self, node: int) -> list[str]:
        """Return the command prefix that runs on a machine; `ip netns exec` would hide the control groups."""
        return ["nsenter", f"--net={_NAMESPACES / self._nodes[node]}"]

    def bring_up(self) -> None:
        """Create the network; after a failure `take_down` removes what exists."""
        self.folder.mkdir(mode=0o755)
        for name in [self._switch, *self._nodes]:
            _do("ip", "netns", "add", name)
            _do("ip", "-n", name, "link", "set", "lo", "up")
        _do("ip", "-n", self._switch, "link", "add", "name", "bridge", "type", "bridge")
        _do("ip", "-n", self._switch, "link", "set", "bridge", "up")
        self._join_ends()
        for i, node in enumerate(self._nodes):
            _do("ip", "-n", self._switch, "link", "set", f"n{i}", "master", "bridge")
            self._shape(self._switch, f"n{i}")
            self._shape(node, "eth0")
            _do("ip", "-n", node, "addr", "add", f"{self.ip(i)}/24", "dev", "eth0")
            # Leads nowhere, but programs find their own address by it.
            _do("ip", "-n", node, "route", "add", "default", "dev", "eth0")

    def take_down(self) -> None:
        """Kill every process in the namespaces and remove all that `bring_up` made."""
        remove(self.name)
        if self._line:
            self._line.communicate()

    def cut(self, node: int) -> None:
        """Cut a machine's link silently: no packet passes, and no connection is closed."""
        _do("ip", "-n", self._switch, "link", "set", f"n{node}", "down")

    def mend(self, node: int) -> None:
        """Mend a link that was cut."""
        _do("ip", "-n", self._switch, "link", "set", f"n{node}", "up")

    def pids(self, node: int) -> list[int]:
        """Living processes of a machine."""
        return _pids([self._nodes[node]])

    def kill(self, node: int) -> None:
        """Kill every process of a machine at once."""
        _kill([self._nodes[node]])

    def _join_ends(self) -> None:
        if not self._delay_s:
            for i, node in enumerate(self._nodes):
                _do("ip", "-n", self._switch, "link", "add", f"n{i}", "type", "veth", "peer", "eth0", "netns", node)
            return
        pairs = [f"{node}/eth0={self._switch}/n{i}" for i, node in enumerate(self._nodes)]
        self._line = subprocess.Popen(
            [sys.executable, delay_line.__file__, str(self._delay_s), *pairs],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._line.stdout
        if not self._line.stdout.readline():
            reason = self._line.communicate()[1].strip().rpartition("\n")[2]
            raise EngineError(f"No line between the namespaces: {reason}.", "It needs /dev/net/tun.")

    def _shape(self, namespace: str, interface: str) -> None:
        # The bucket holds half a millisecond of traffic, and at least one unsegmented packet.
        burst_bytes = max(20_480, int(self._rate_bits / 8 * 0.5e-3))
        packet_bytes = min(65_536, burst_bytes - 4_096)
        _do("ip", "-n", namespace, "link", "set", interface, "gso_max_size", str(packet_bytes), "up")
        _do(
            "tc", "-n", namespace, "qdisc", "add", "dev", interface, "root",
            "tbf", "rate", f"{self._rate_bits:.0f}bit", "burst", str(burst_bytes), "latency", "50ms",
        )  # fmt: skip


def sweep() -> list[str]:
    """Remove the remains of networks whose process has ended, and return their names."""
    paths = [*_NAMESPACES.glob("swbed-*"), *_FOLDERS.glob("swbed-*")]
    names = {match[0]: match for path in paths if (match := _NAME.match(path.name))}
    gone = [name for name, match in names.items() if _started(int(match["pid"])) != int(match["started"])]
    for name in gone:
        remove(name)
    return sorted(gone)


def remove(name: str) -> None:
    """Kill every process of a network and remove its namespaces and folder, if they exist."""
    namespaces = [path.name for path in _NAMESPACES.glob(f"{name}-*")]
    _kill(namespaces)
    for namespace in namespaces:
        try:
            _do("ip", "netns", "delete", namespace)
        except EngineError:
            if (_NAMESPACES / namespace).exists():  # otherwise another sweep came first
                raise
    shutil.rmtree(_FOLDERS / name, ignore_errors=True)


def _kill(namespaces: list[str], timeout_s: float = 20.0) -> None:
    """Kill until no process remains; a process may start another before it dies."""
    end = time.monotonic() + timeout_s
    while pids := _pids(namespaces):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise EngineError(f"Processes of a test bed do not die: {pids}.", "Look at them with ps.")
        time.sleep(0.01)


def _pids(namespaces: Iterable[str]) -> list[int]:
    ours = set()
    for namespace in namespaces:
        with contextlib.suppress(FileNotFoundError):
            ours.add(_identity(_NAMESPACES / namespace))
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is a zombie without a namespace
            if _identity(process / "ns" / "net") in ours:
                pids.append(int(process.name))
    return pids


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _started(pid: int) -> int | None:
    """Return the start of a process in clock ticks after boot, or None; it distinguishes reused ids."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise EngineError(f"`{' '.join(command)}` failed: {done.stderr.strip()}.", "The test bed needs a Linux host.")
