"""Calls of Slurm's commands, with time-outs. A failure raises one error with Slurm's message."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sizewright.datasets.runs.sacct import UNFINISHED_STATES
from sizewright.errors import EngineError, InputError
from sizewright.redaction import beginning
from sizewright.spec.outcome import Status
from sizewright.spec.units import is_count

_TIMEOUT_S = 60.0
_UNREACHABLE = re.compile(
    r"contact slurm|timed? ?out|zero bytes|connection (refused|reset)|communication", re.IGNORECASE
)
_MAX_SECONDS, _MAX_BYTES = 1e12, 1 << 60
"""Limits of an amount; a larger one is an error of Slurm's accounting."""
_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SlurmJob(NamedTuple):
    """The current state of a job in Slurm: the id and the state of each component."""

    ids: tuple[str, ...]
    states: tuple[str, ...]

    @property
    def is_unfinished(self) -> bool:
        """True while any component waits, runs or is ending."""
        return any(state in UNFINISHED_STATES for state in self.states)

    @property
    def is_running(self) -> bool:
        """True while all components run."""
        return all(state == "RUNNING" for state in self.states)

    @property
    def status(self) -> Status:
        """The outcome of the job, which is that of its first component, since that runs the job's script."""
        if self.is_unfinished:
            return "running"
        state = self.states[0].split()[0]  # such as "CANCELLED by 1000"
        return {"COMPLETED": "finished", "CANCELLED": "stopped"}.get(state, "failed")  # type: ignore[return-value]


class ComponentUsage(NamedTuple):
    """The usage of a component's tasks: average CPU seconds per task, and the highest peak memory of any task."""

    cpu_s: float = 0.0
    memory_bytes: int = 0


class SlurmCli:
    """Slurm's commands on the cluster that the environment names (SLURM_CONF)."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s

    def submit(self, script: str, *, cwd: str, env: Mapping[str, str]) -> str:
        """Queue a job, and return its id.

        Raises InputError if Slurm refuses it, and EngineError if it is unknown whether Slurm has accepted it.
        """
        result = self._run(["sbatch", "--parsable"], cwd=cwd, env=env, script=script)
        _check(result, "sbatch")
        job = result.stdout.strip().split(";")[0]
        if not is_count(job):
            raise _unusable("sbatch", result.stdout)
        return job

    def check(self, script: str, *, cwd: str, env: Mapping[str, str]) -> None:
        """Raise InputError if Slurm would refuse the job. Nothing is queued."""
        _check(self._run(["sbatch", "--test-only"], cwd=cwd, env=env, script=script), "sbatch")

    def find(self, mark: str) -> list[str]:
        """Return the ids of this user's unfinished jobs that have the word `mark` in their comment."""
        stdout = self._query(["squeue", "-h", "--me", "-o", "%i|%k"]).stdout
        rows = [line.split("|", 1) for line in stdout.splitlines() if "|" in line]
        ids = {job.partition("+")[0] for job, comment in rows if mark in comment.split()}
        return sorted(filter(is_count, ids), key=int)

    def job(self, job: str) -> SlurmJob | None:
        """Return the state of a job, or None if Slurm no longer knows it."""
        words = ["squeue", "-h", "--states=all", "-j", job, "-o", "%i|%A|%T"]
        result = self._run(words)
        if result.returncode and "Invalid job id" in result.stderr:
            return self._job_from_accounting(job)
        if result.returncode:
            result = self._query(words)
        lines = [line.partition("|")[2] or line for line in result.stdout.splitlines()]
        return _parse_job("squeue", lines) or self._job_from_accounting(job)

    def usage(self, ids: Sequence[str]) -> dict[str, ComponentUsage]:
        """Return the usage of the running steps by component id; empty if Slurm does not measure it."""
        usages: dict[str, ComponentUsage] = {}
        try:
            result = self._run(["sstat", "-a", "-n", "-P", "-o", "JobID,AveCPU,MaxRSS", "-j", ",".join(ids)])
        except EngineError:  # a node does not answer; the caller reports the job without its usage
            return usages
        for line in result.stdout.splitlines():
            step, _, values = line.partition("|")
            job, _, number = step.partition(".")
            cpu, _, memory = values.partition("|")
            if is_count(number):  # not .batch, nor .extern
                before = usages.get(job, ComponentUsage())
                usages[job] = ComponentUsage(
                    cpu_s=before.cpu_s + _seconds(cpu), memory_bytes=max(before.memory_bytes, _bytes(memory))
                )
        return usages

    def cancel(self, job: str) -> None:
        """End a job by SIGTERM, and by SIGKILL after the cluster's KillWait. Do nothing if it has ended."""
        self._scancel([job])

    def terminate(self, job: str) -> None:
        """Send SIGTERM to the job's replicas. Its script continues."""
        self._scancel(["--signal=TERM", job])

    def addresses(self, nodes: str) -> dict[str, str]:
        """Return the address of each node of a list such as `n[1-4]`."""
        names = self._query(["scontrol", "show", "hostnames", nodes]).stdout.split()
        lines = self._query(["sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%o"]).stdout.splitlines()
        addresses = dict(line.strip().split("|", 1) for line in lines if "|" in line)
        return {name: addresses.get(name, name) for name in names}

    def _scancel(self, words: Sequence[str]) -> None:
        result = self._run(["scancel", *words])
        if result.returncode and not re.search("Invalid job id|already complet|being? pending", result.stderr):
            _check(result, "scancel")

    def _job_from_accounting(self, job: str) -> SlurmJob | None:
        result = self._run(["sacct", "-n", "-P", "-X", "-j", job, "-o", "JobIDRaw,State"])
        return None if result.returncode else _parse_job("sacct", result.stdout.splitlines())

    def _query(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command that changes nothing, and retry it once if Slurm cannot be reached."""
        result = self._run(words)
        if result.returncode and _UNREACHABLE.search(result.stderr):
            time.sleep(1.0)
            result = self._run(words)
        _check(result, words[0])
        return result

    def _run(
        self, words: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, script: str = ""
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                words,
                input=script,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                cwd=cwd,
                env=env,
                timeout=self._timeout_s,
            )
        except FileNotFoundError:
            raise InputError(
                f"There is no command {words[0]} on this host" + (f", or no folder {cwd}." if cwd else "."),
                "Use a host with Slurm's commands (Debian: slurm-client), and check PATH.",
            ) from None
        except subprocess.TimeoutExpired:
            raise EngineError(
                f"{words[0]} has not answered for {self._timeout_s:.0f} s.", "Check whether slurmctld runs: sinfo"
            ) from None
        except OSError as error:
            raise EngineError(f"{words[0]} cannot be started: {error}.", "Check its permissions.") from None


def _parse_job(command: str, lines: Sequence[str]) -> SlurmJob | None:
    """Return the job of lines such as `17|RUNNING`, one per component; None if there are none.

    Raises EngineError if a line has another form.
    """
    rows = [line.split("|") for line in lines if line.strip()]
    for row in rows:
        if len(row) != 2 or not is_count(row[0]) or not row[1].strip():
            raise _unusable(command, "|".join(row))
    rows.sort(key=lambda row: int(row[0]))
    return SlurmJob(tuple(row[0] for row in rows), tuple(row[1].strip() for row in rows)) if rows else None


def _unusable(command: str, stdout: str) -> EngineError:
    return EngineError(
        f"The output of {command} cannot be used: {beginning(' '.join(stdout.split()), 120)!r}.",
        "Check whether another program of that name is in PATH, and whether this version of Slurm is supported.",
    )


def _check(result: subprocess.CompletedProcess[str], command: str) -> None:
    """Raise the error that a command reports."""
    if not result.returncode:
        return
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in result.stderr.splitlines() if line.strip()]
    message = " ".join(lines[-3:]).rstrip(".") or f"exit code {result.returncode}"
    if _UNREACHABLE.search(result.stderr):
        raise EngineError(f"Slurm cannot be reached. {command}: {message}.", "Check whether slurmctld runs: sinfo")
    raise InputError(
        f"Slurm refused the request. {command}: {message}.", "See what is available: sinfo -o '%P %D %c %m %G'"
    )


def _seconds(text: str) -> float:
    """Return the seconds of `1-02:03:04` or `03:04.500`; 0 for any other text."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    try:
        for part in rest.split(":"):
            seconds = seconds * 60 + float(part)
        seconds += 86400 * int(days or 0)
    except (ValueError, OverflowError):
        return 0.0
    return seconds if 0 <= seconds < _MAX_SECONDS else 0.0


def _bytes(text: str) -> int:
    """Return the bytes of an amount such as `7964K`; 0 for any other text."""
    number, suffix = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "")
    try:
        amount = float(number) * _SUFFIXES[suffix]
    except (KeyError, ValueError):
        return 0
    return int(amount) if 0 <= amount < _MAX_BYTES else 0
