"""A session runs on a Ray cluster of three machines through live changes and the loss of a machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.network.testbed import Bed

pytestmark = pytest.mark.long
DRIVER = str(Path(__file__).parents[2] / "helpers" / "cluster_driver.py")
NOTHING: dict[str, Any] = {"actors": [], "groups": 0, "processes": []}
SNAPSHOT_S = 1.0
# What a lost server may have taken with it: what came since the last snapshot, which itself may take some time.
MOST_LOST_S = 3 * SNAPSHOT_S


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if missing := [tool for tool in ("ip", "tc", "nsenter") if not shutil.which(tool)]:
        pytest.skip(f"no {', '.join(missing)} on this host")
    pytest.importorskip("ray")
    with Bed(nodes=3, rate="200mbit", delay="1ms") as up:
        yield up


class Driver:
    """A driver on machine 0, whose lines are read as it says them."""

    def __init__(self, bed: Bed, *arguments: str) -> None:
        self._process = bed.popen(
            [sys.executable, DRIVER, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self.next()["pid"]

    def next(self) -> Any:
        """Return the next line of the driver."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.communicate(timeout=60)[1][-3000:]
        return json.loads(line)

    def tell(self) -> None:
        """Let the driver continue."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Wait until it has ended by itself."""
        _, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, errors[-3000:]


def machines(nodes: dict[str, str], role: str) -> list[str]:
    return [ip for name, ip in nodes.items() if name.startswith(role)]


def groups_of(pid: int) -> list[Path]:
    """Control groups of the sessions of a process."""
    paths = []
    for folder, below, _ in os.walk("/sys/fs/cgroup"):
        paths += [Path(folder, name) for name in below if name.startswith(f"sizewright-{pid}-")]
    return paths


def check_change(bed: Bed, transport: str, samples: int) -> None:
    driver = Driver(bed, "change", transport, str(samples))
    nodes = driver.next()["nodes"]
    assert len(set(machines(nodes, "ps"))) == 3
    assert len(set(machines(nodes, "worker"))) == 1

    changed = driver.next()
    old, new = changed["replaced"]
    assert old not in changed["nodes"]
    assert new in changed["nodes"]
    assert len(machines(changed["nodes"], "ps")) == len(set(machines(changed["nodes"], "ps"))) == 2
    assert len(machines(changed["nodes"], "worker")) == 3
    assert len(set(machines(changed["nodes"], "worker"))) == 1
    assert changed["trained"] < samples, "all was trained before the changes were done: give it more samples"

    counts = driver.next()["counts"]
    assert counts.keys() == changed["nodes"].keys()
    assert all(sent > 0 and received > 0 for sent, received, _ in counts.values()), counts

    outcome = driver.next()["outcome"]
    assert (outcome["status"], outcome["samples"]) == ("finished", samples)
    assert outcome["samples_repeated"] == outcome["updates_lost"] == 0
    assert [change["kind"] for change in outcome["changes"]] == ["scale", "replace"]
    assert driver.next() == {"once": samples, "seen": samples}  # each sample has reached the servers once
    assert driver.next()["left"] == NOTHING
    driver.end()
    assert groups_of(driver.pid) == []


def test_spread_servers_and_packed_workers_change_live_and_leave_nothing(bed: Bed) -> None:
    check_change(bed, "tcp", 180_000)


def test_live_changes_over_the_ray_transport(bed: Bed) -> None:
    check_change(bed, "ray", 160_000)


@pytest.mark.parametrize(
    ("address", "env", "message", "limit_s"),
    [
        ("{ip}:6999", {}, "No Ray cluster answers at", 10.0),
        ("{ip}:6379", {"RAY_AUTH_TOKEN": "ab" * 32}, "could not be joined", 40.0),
    ],
)
def test_wrong_address_or_token_gives_one_error(
    bed: Bed, address: str, env: dict[str, str], message: str, limit_s: float
) -> None:
    done = bed.run([sys.executable, DRIVER, "join", address.format(ip=bed.ip(0))], timeout_s=60, env=env)
    pid, said = (json.loads(line) for line in done.stdout.splitlines())
    assert message in said["error"]
    assert "\n" not in said["error"]
    assert said["seconds"] < limit_s
    assert groups_of(pid["pid"]) == []


def test_user_command_runs_on_the_cluster_and_leaves_nothing(bed: Bed) -> None:
    driver = Driver(bed, "command")
    report = driver.next()
    assert report["replicas"] == dict.fromkeys(("ps-0", "ps-1", "worker-0", "worker-1"), "cgroup")
    assert report["trained"] > 0
    done = driver.next()
    assert done["finished"]
    assert done["outcome"]["samples"] == 4000
    assert driver.next()["left"] == NOTHING
    driver.end()
    assert groups_of(driver.pid) == []


def test_workers_do_not_import_from_the_drivers_folder(bed: Bed, tmp_path: Path) -> None:
    """Others may write there; on a Ray of ours workers start in an empty folder."""
    tmp_path.chmod(0o1777)
    driver = Driver(bed, "paths", str(tmp_path))
    paths = driver.next()["paths"]
    assert str(tmp_path) not in paths
    assert paths[0] == "/"
    driver.end()


def test_lost_machine_loses_only_work_since_the_last_snapshot(bed: Bed) -> None:
    """The last one here: the bed has one machine less afterwards."""
    driver = Driver(bed, "lose", "500000")
    before = driver.next()
    ips = [bed.ip(i) for i in range(bed.nodes)]
    gone = max(ips.index(ip) for ip in machines(before["nodes"], "ps"))
    assert gone > 0, "the driver's own machine is to stay"
    lost = {name for name, ip in before["nodes"].items() if ip == ips[gone]}
    bed.kill_node(gone)
    driver.tell()

    after = driver.next()
    outcome = after["outcome"]
    assert (outcome["status"], outcome["samples"]) == ("finished", 500_000)
    assert {(failure["replica"], failure["cause"]) for failure in outcome["failures"]} == {
        (name, "node lost") for name in lost
    }
    assert 0 <= outcome["updates_lost"] <= MOST_LOST_S * sum(before["rates"][name] for name in lost)
    assert all(failure["recovered_s"] for failure in outcome["failures"])
    assert ips[gone] not in after["nodes"].values()
    assert len(after["nodes"]) == len(before["nodes"])
    assert driver.next()["left"] == NOTHING
    driver.end()
    # Here the machines share one kernel, so that the groups of the lost one are still there: no process is in them.
    groups = groups_of(driver.pid)
    remove(groups)
    assert len({group.name for group in groups}) <= 1


def remove(groups: list[Path]) -> None:
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
