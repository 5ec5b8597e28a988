"""Slurm's own commands, with time-outs; what fails is one clear error that says what Slurm said."""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sizewright.errors import EngineError, InputError
from sizewright.spec.outcome import Status
from sizewright.spec.units import is_count

_PATIENCE_S = 60.0
_UNREACHABLE = re.compile(
    r"contact slurm|timed? ?out|zero bytes|connection (refused|reset)|communication", re.IGNORECASE
)
_GOING_ON = frozenset(
    ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT",
     "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
)  # fmt: skip
_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SlurmJob(NamedTuple):
    """A job as Slurm tells of it now: for each component its own id and its state."""

    ids: tuple[str, ...]
    states: tuple[str, ...]

    @property
    def goes_on(self) -> bool:
        """Whether any of it waits, runs or is being ended."""
        return any(state in _GOING_ON for state in self.states)

    @property
    def runs(self) -> bool:
        """Whether all of it does."""
        return all(state == "RUNNING" for state in self.states)

    @property
    def status(self) -> Status:
        """What became of it: that of its first component, whose script is what the job is."""
        if self.goes_on:
            return "running"
        state = self.states[0].split()[0]  # CANCELLED by 1000
        return {"COMPLETED": "finished", "CANCELLED": "stopped"}.get(state, "failed")  # type: ignore[return-value]


class Used(NamedTuple):
    """What the tasks of a component have used: CPU seconds of one on average, the highest peak of memory."""

    cpu_s: float = 0.0
    memory_bytes: int = 0


class SlurmCli:
    """Commands of the cluster that the environment names (SLURM_CONF)."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s

    def submit(self, script: str, *, cwd: str, env: Mapping[str, str]) -> str:
        """The id of the job that was queued. Raises InputError for what Slurm refuses, EngineError where it is not
        known whether it took it."""
        told = self._run(["sbatch", "--parsable"], cwd=cwd, env=env, script=script)
        _check(told, "sbatch")
        job = told.stdout.strip().split(";")[0]
        if not is_count(job):
            raise _odd("sbatch", told.stdout)
        return job

    def check(self, script: str, *, cwd: str, env: Mapping[str, str]) -> None:
        """Raises InputError for what Slurm would refuse; nothing is queued."""
        _check(self._run(["sbatch", "--test-only"], cwd=cwd, env=env, script=script), "sbatch")

    def find(self, mark: str) -> list[str]:
        """Ids of this user's jobs that wait or run and have a word in their comment."""
        told = self._read(["squeue", "-h", "--me", "-o", "%i|%k"])
        pairs = [line.split("|", 1) for line in told.stdout.splitlines() if "|" in line]
        ids = {job.partition("+")[0] for job, said in pairs if mark in said.split()}
        return sorted(filter(is_count, ids), key=int)

    def look(self, job: str) -> SlurmJob | None:
        """How a job is; None where Slurm knows it no more."""
        told = self._run(["squeue", "-h", "--states=all", "-j", job, "-o", "%i|%A|%T"])
        if told.returncode and "Invalid job id" in told.stderr:
            return self._accounted(job)
        if told.returncode:
            told = self._read(["squeue", "-h", "--states=all", "-j", job, "-o", "%i|%A|%T"])
        return _job("squeue", [line.partition("|")[2] or line for line in told.stdout.splitlines()]) or self._accounted(
            job
        )

    def used(self, ids: Sequence[str]) -> dict[str, Used]:
        """By component id, of the steps that run; nothing where Slurm gathers none."""
        words = ["sstat", "-a", "-n", "-P", "-o", "JobID,AveCPU,MaxRSS", "-j", ",".join(ids)]
        found: dict[str, Used] = {}
        try:
            told = self._run(words)
        except EngineError:  # a node that does not answer ends no look
            return found
        for line in told.stdout.splitlines():
            step, _, rest = line.partition("|")
            job, _, number = step.partition(".")
            cpu, _, memory = rest.partition("|")
            if is_count(number):  # not .batch, nor .extern
                before = found.get(job, Used())
                found[job] = Used(before.cpu_s + _seconds(cpu), max(before.memory_bytes, _bytes(memory)))
        return found

    def cancel(self, job: str) -> None:
        """End it: SIGTERM, and SIGKILL after the cluster's KillWait. One that is over already is none to worry of."""
        self._cancel([job])

    def terminate(self, job: str) -> None:
        """SIGTERM for its replicas; its script goes on."""
        self._cancel(["--signal=TERM", job])

    def addresses(self, nodes: str) -> dict[str, str]:
        """Where the nodes of a list such as `n[1-4]` can be reached."""
        names = self._read(["scontrol", "show", "hostnames", nodes]).stdout.split()
        told = self._read(["sinfo", "-h", "-N", "-n", nodes, "-o", "%N|%o"]).stdout.splitlines()
        known = dict(line.strip().split("|", 1) for line in told if "|" in line)
        return {name: known.get(name, name) for name in names}

    def _cancel(self, words: Sequence[str]) -> None:
        told = self._run(["scancel", *words])
        if told.returncode and not re.search("Invalid job id|already complet|being? pending", told.stderr):
            _check(told, "scancel")

    def _accounted(self, job: str) -> SlurmJob | None:
        told = self._run(["sacct", "-n", "-P", "-X", "-j", job, "-o", "JobIDRaw,State"])
        return None if told.returncode else _job("sacct", told.stdout.splitlines())

    def _read(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Asking again is safe."""
        told = self._run(words)
        if told.returncode and _UNREACHABLE.search(told.stderr):
            time.sleep(1.0)
            told = self._run(words)
        _check(told, words[0])
        return told

    def _run(
        self, words: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, script: str = ""
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                words, input=script, capture_output=True, encoding="utf-8", errors="replace", cwd=cwd, env=env,
                timeout=self._patience_s,
            )  # fmt: skip
        except FileNotFoundError:
            raise InputError(
                f"There is no {words[0]} here, or no folder {cwd}." if cwd else f"There is no {words[0]} here.",
                "Go to a host with Slurm's commands (Debian: slurm-client), and see PATH.",
            ) from None
        except subprocess.TimeoutExpired:
            raise EngineError(
                f"{words[0]} has not answered for {self._patience_s:.0f} s.", "See whether slurmctld runs: sinfo"
            ) from None
        except OSError as error:
            raise EngineError(f"{words[0]} cannot be started: {error}.", "See its rights.") from None


def _job(command: str, lines: Sequence[str]) -> SlurmJob | None:
    """Of lines such as `17|RUNNING`, the components in order; None without any. Raises EngineError for others."""
    rows = [line.split("|") for line in lines if line.strip()]
    if odd := next((row for row in rows if len(row) != 2 or not is_count(row[0]) or not row[1].strip()), None):
        raise _odd(command, "|".join(odd))
    rows.sort(key=lambda row: int(row[0]))
    return SlurmJob(tuple(row[0] for row in rows), tuple(row[1].strip() for row in rows)) if rows else None


def _odd(command: str, said: str) -> EngineError:
    return EngineError(
        f"What {command} says cannot be used: {' '.join(said.split())[:120]!r}.",
        "See whether another program of that name is in PATH, and whether Slurm's version is supported.",
    )


def _check(told: subprocess.CompletedProcess[str], command: str) -> None:
    if not told.returncode:
        return
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in told.stderr.splitlines() if line.strip()]
    said = " ".join(lines[-3:]).rstrip(".") or f"exit code {told.returncode}"
    if _UNREACHABLE.search(told.stderr):
        raise EngineError(f"Slurm cannot be reached: {command} said: {said}.", "See whether slurmctld runs: sinfo")
    raise InputError(f"Slurm refused it: {command} said: {said}.", "See what there is: sinfo -o '%P %D %c %m %G'")


def _seconds(text: str) -> float:
    """`1-02:03:04` or `03:04.500`; 0 for anything else."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    try:
        for part in rest.split(":"):
            seconds = seconds * 60 + float(part)
        seconds += 86400 * int(days or 0)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _bytes(text: str) -> int:
    """`7964K`; 0 for anything else."""
    number, suffix = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "")
    try:
        return int(float(number) * _SUFFIXES[suffix])
    except (KeyError, ValueError, OverflowError):
        return 0
