"""A Slurm cluster for long tests: munged, slurmctld and two slurmd under two node names and ports of one host."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.real_servers import free_port, started

NODES = ("n1", "n2")
CPUS, MEMORY_MIB = 8, 4096
"""Configured size of each node, regardless of the host."""
_CONF = """
ClusterName=bed
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=bf_interval=1,sched_min_interval=100000,batch_sched_delay=0
ReturnToService=2
KillWait=5
MailProg=/bin/true
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP DefMemPerCPU=64
"""


@contextlib.contextmanager
def slurm(seconds_to_come_up: int = 60) -> Iterator[dict[str, str]]:
    """Yield the environment variables by which Slurm's commands find the cluster; skip without Slurm."""
    programs = {name: _program(name) for name in ("munged", "slurmctld", "slurmd", "sinfo", "sbatch")}
    if missing := [name for name, path in programs.items() if path is None]:
        pytest.skip(f"Debian's slurm-wlm is not installed: no {', '.join(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="slurm-bed-"))  # short, since sockets' paths are limited
    conf = folder / "slurm.conf"
    env = os.environ | {"SLURM_CONF": str(conf)}
    try:
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o600)
        conf.write_text(_conf(folder), encoding="ascii")
        (folder / "cgroup.conf").write_text("")
        munged = [programs["munged"], "--foreground", "--force", f"--socket={folder}/munge.socket"]
        munged += [f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid"]
        munged += [f"--seed-file={folder}/munged.seed", f"--log-file={folder}/munged.log"]
        with contextlib.ExitStack() as stack:
            socket_exists = (folder / "munge.socket").exists
            stack.enter_context(started(munged, socket_exists, folder / "munged.out", env=env))
            control = [programs["slurmctld"], "-D", "-i", "-f", conf]
            stack.enter_context(started(control, lambda: bool(_nodes(env)), folder / "slurmctld.out", env=env))
            for node in NODES:
                daemon = [programs["slurmd"], "-D", "-N", node, "-f", conf]
                up = lambda node=node: _nodes(env).get(node) == "idle"  # noqa: E731
                stack.enter_context(started(daemon, up, folder / f"slurmd-{node}.out", env=env))
            yield {"SLURM_CONF": str(conf)}
            _end_all_jobs(env)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _conf(folder: Path) -> str:
    ports = ",".join(str(free_port()) for _ in NODES)
    return _CONF.format(
        folder=folder, host=socket.gethostname(), port=free_port(), user=pwd.getpwuid(os.geteuid()).pw_name,
        nodes=f"n[1-{len(NODES)}]", ports=f"[{ports}]", cpus=CPUS, memory=MEMORY_MIB,
    )  # fmt: skip


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin")


def _nodes(env: dict[str, str]) -> dict[str, str]:
    """Return the state of each node by name, once slurmctld answers."""
    done = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %T"], env=env, capture_output=True, text=True, timeout=30)
    return dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)


def _end_all_jobs(env: dict[str, str]) -> None:
    """Cancel all jobs, so that no processes remain; slurmd alone would leave them."""
    subprocess.run(["scancel", "--me"], env=env, capture_output=True, timeout=30)
    for _ in range(60):
        done = subprocess.run(["squeue", "-h"], env=env, capture_output=True, text=True, timeout=30)
        if not done.stdout.strip():
            return
        subprocess.run(["sleep", "0.5"], check=False)
