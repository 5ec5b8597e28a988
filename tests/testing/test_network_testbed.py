"""The test bed runs one cluster over shaped links with a token, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sizewright.errors import EngineError, InputError
from tests.helpers.network.namespaces import parse_delay, parse_rate, sweep
from tests.helpers.network.testbed import Bed, main
from tests.helpers.processes import as_in_a_terminal

CONNECT = """
import os, ray
ray.init(address=os.environ["SIZEWRIGHT_ADDRESS"], _node_ip_address=os.environ["SIZEWRIGHT_NODE_IP"])
"""
COUNT = "print('alive', sum(node['Alive'] for node in ray.nodes()))\n"
TRANSFER = (
    CONNECT
    + """
import socket, time
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

@ray.remote
class Peer:
    def listen(self):
        self.server = socket.create_server((ray.util.get_node_ip_address(), 0))
        return self.server.getsockname()
    def receive(self, size):
        peer, _ = self.server.accept()
        while size:
            size -= len(peer.recv(min(size, 1 << 20)))
        peer.sendall(b"k")
    def send(self, to, size):
        with socket.create_connection(to) as peer:
            start = time.perf_counter()
            peer.sendall(bytes(size))
            peer.recv(1)
            return time.perf_counter() - start

nodes = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes()}
ids = [nodes[ip] for ip in sorted(nodes)]
a, b = (Peer.options(scheduling_strategy=On(node_id, soft=False)).remote() for node_id in ids[-2:])
to = ray.get(b.listen.remote())
for _ in range(3):
    done = b.receive.remote(4_000_000)
    print("seconds", ray.get(a.send.remote(to, 4_000_000)))
    ray.get(done)
"""
)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def leavings() -> dict[str, object]:
    """Return everything that a bed may leave on the host, as it is now."""
    own_namespace, elsewhere = os.stat("/proc/self/ns/net").st_ino, set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "ns" / "net").stat().st_ino != own_namespace:
                elsewhere.add(process.name)
    return {
        "namespaces": sorted(path.name for path in Path("/run/netns").glob("*")),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "shared memory": sorted(path.name for path in Path("/dev/shm").glob("plasma*")),
        "folders": sorted(path.name for path in Path("/tmp").glob("swbed-*")),
        "processes": elsewhere,
    }


def until(condition: str, bed: Bed, timeout_s: float = 60.0) -> str:
    """Return the first output of a node-counting driver that contains `condition`."""
    end = time.monotonic() + timeout_s
    while condition not in (output := bed.run(python(CONNECT + COUNT), timeout_s=60).stdout):
        assert time.monotonic() < end, output
    return output


@pytest.fixture(scope="module")
def host() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if missing := [tool for tool in ("ip", "tc", "nsenter") if not shutil.which(tool)]:
        pytest.skip(f"no {', '.join(missing)} on this host")
    pytest.importorskip("ray")


@pytest.fixture(scope="module")
def bed(host: None) -> Iterator[Bed]:
    sweep()
    before = leavings()
    with Bed(nodes=3, rate="200mbit", delay="1ms") as up:
        yield up
    assert leavings() == before


@pytest.mark.long
def test_three_nodes_form_a_cluster(bed: Bed) -> None:
    done = bed.run(python(CONNECT + COUNT), node=1, timeout_s=60)
    assert "alive 3" in done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("env", [{"RAY_AUTH_TOKEN": "ab" * 32}, {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""}])
def test_driver_without_the_token_is_refused(bed: Bed, env: dict[str, str]) -> None:
    done = bed.run(python(CONNECT + COUNT), timeout_s=120, env=env)
    assert done.returncode == 1
    assert "alive" not in done.stdout
    assert "token is missing or incorrect" in done.stderr


@pytest.mark.long
def test_transfer_takes_the_time_of_the_wire(bed: Bed) -> None:
    done = bed.run(python(TRANSFER), timeout_s=60)
    seconds = [float(text.split()[1]) for text in done.stdout.splitlines() if text.startswith("seconds")]
    assert len(seconds) == 3, done.stderr
    assert 4_000_000 * 8 / 200e6 <= min(seconds) < 0.25


@pytest.mark.long
def test_cut_link_is_silent_until_mended(bed: Bed) -> None:
    code = f"import socket; socket.create_connection(('{bed.ip(0)}', 6379), timeout=2)"
    bed.cut(1)
    assert "timed out" in bed.run(python(code), node=1, timeout_s=30).stderr
    bed.mend(1)
    assert bed.run(python(code), node=1, timeout_s=30).returncode == 0


@pytest.mark.long
def test_run_kills_a_command_that_takes_too_long(bed: Bed) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        bed.run(["sh", "-c", "sleep 1000 & sleep 1000"], timeout_s=0.5)
    end = time.monotonic() + 5
    while "sleep" in (names := commands(bed)):  # killed, not yet gone
        assert time.monotonic() < end
    assert "raylet" in names


def commands(bed: Bed) -> list[str]:
    names = []
    for pid in bed.pids(0):
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return names


@pytest.mark.long
def test_killed_machine_leaves_the_cluster(bed: Bed) -> None:
    bed.kill_node(2)
    assert bed.pids(2) == []
    until("alive 2", bed)


@pytest.mark.long
def test_two_beds_coexist_and_leave_nothing_when_the_body_raises(host: None) -> None:
    before = leavings()
    with pytest.raises(ZeroDivisionError):
        two_beds_and_an_error()
    assert leavings() == before


def two_beds_and_an_error() -> None:
    with Bed(nodes=1) as one, Bed(nodes=1, delay="0ms") as other:
        for up in (one, other):
            assert "alive 1" in up.run(python(CONNECT + COUNT), timeout_s=60).stdout
        other.popen(["sleep", "1000"], start_new_session=True)
        raise ZeroDivisionError


@pytest.mark.long
def test_failed_bring_up_leaves_nothing(host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = leavings()
    monkeypatch.setattr("tests.helpers.network.testbed.sys.executable", "/bin/false")
    with pytest.raises(EngineError, match="No line between the namespaces"), Bed(nodes=2):
        pass
    with pytest.raises(EngineError, match="Ray did not start on machine 0"), Bed(nodes=2, delay="0ms"):
        pass
    assert leavings() == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("ending", "code", "cleans_up"),
    [(signal.SIGTERM, 143, True), (signal.SIGINT, 130, True), (signal.SIGKILL, -9, False)],
)
def test_signals_leave_nothing(host: None, tmp_path: Path, ending: signal.Signals, code: int, cleans_up: bool) -> None:
    before = leavings()
    up = tmp_path / "up"
    command = ["--nodes", "1", "--", "sh", "-c", f"touch {up}; sleep 1000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.network.testbed", *command], preexec_fn=as_in_a_terminal
    )
    while not up.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(ending)
    assert process.wait(30) == code
    assert len(sweep()) == (0 if cleans_up else 1)
    assert leavings() == before


@pytest.mark.long
def test_command_exits_with_the_code_of_its_command(host: None) -> None:
    command = ["--nodes", "1", "--", *python(CONNECT + "raise SystemExit(7)")]
    assert (
        subprocess.run([sys.executable, "-m", "tests.helpers.network.testbed", *command], timeout=120).returncode == 7
    )


def test_bed_without_root_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    sentence = "A test bed makes network namespaces, which only root may do. Run it as root."
    with pytest.raises(EngineError) as error, Bed():
        pass
    assert str(error.value) == sentence
    monkeypatch.setattr(sys, "argv", ["bed", "--", "true"])
    assert main() == 1
    assert capsys.readouterr().err == sentence + "\n"


def test_rates_and_delays_are_parsed() -> None:
    assert [parse_rate(text) for text in ("64kbit", "200mbit", "2.5gbit")] == [64e3, 200e6, 2.5e9]
    assert [parse_delay(text) for text in ("0ms", "50us", "2s")] == pytest.approx([0.0, 50e-6, 2.0])


@pytest.mark.parametrize("rate", ["", "200", "0mbit", "-1mbit", "fast", "200mbit ", "200Mbps", "1mbit\n"])
def test_invalid_rate_is_refused(rate: str) -> None:
    with pytest.raises(InputError, match="is not one such as"):
        Bed(rate=rate)


@pytest.mark.parametrize("delay", ["", "1", "-1ms", "soon", "1 ms"])
def test_invalid_delay_is_refused(delay: str) -> None:
    with pytest.raises(InputError, match="is not one such as"):
        Bed(delay=delay)


def test_bed_without_machines_is_refused() -> None:
    with pytest.raises(InputError, match="between 1 and 250"):
        Bed(nodes=0)
