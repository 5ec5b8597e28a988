"""Submit the starts of a job to Slurm, and end them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sizewright.errors import EngineError, SizewrightError
from sizewright.executors.slurm.commands import SlurmCli, SlurmJob
from sizewright.executors.slurm.jobs import SlurmJobs, SlurmRecord, StartedJob
from sizewright.executors.slurm.render import COMMENT
from sizewright.executors.slurm.script import SlurmScript
from sizewright.executors.slurm.step import ENV, FOLDER, PLAN_FILE, command_of
from sizewright.spec import Plan
from sizewright.spec.withheld import split, with_values
from sizewright.training.command.session import RESTARTS_VARIABLE

_END_TIMEOUT_S, _POLL_S = 180.0, 0.25
_SCRIPT_FILE = "job.sh"


class SlurmSubmitter:
    """Submit and end jobs, and keep the records in `jobs` consistent with Slurm, even after an interruption."""

    def __init__(self, cli: SlurmCli, jobs: SlurmJobs, clock: Callable[[], float]) -> None:
        self._cli = cli
        self._jobs = jobs
        self._clock = clock

    def check(self, record: SlurmRecord, plan: Plan, script: str) -> None:
        """Raise InputError if Slurm would refuse the script."""
        self._cli.check(script, cwd=record.cwd, env=self._env(record, plan))

    def prepare(self, record: SlurmRecord, plan: Plan, script: str) -> SlurmRecord:
        """Write the files of the next start, so that it is known even if its submission is interrupted."""
        number = len(record.starts)
        text = _with_mark(script, plan, self._jobs.start_folder(record, number))
        self._jobs.write(record, number, {PLAN_FILE: plan.model_dump_json(exclude_defaults=True), _SCRIPT_FILE: text})
        record = record.model_copy(update={"submitting": plan.id})
        self._jobs.save(record)
        return record

    def submit(self, record: SlurmRecord, plan: Plan, since_s: float) -> SlurmRecord:
        """Submit the start that was prepared. Raises Slurm's error; then the record has no new start."""
        text = self._jobs.read(record, len(record.starts), _SCRIPT_FILE)
        try:
            slurm_id = self._cli.submit(text, cwd=record.cwd, env=self._env(record, plan))
        except EngineError as error:  # Slurm may have accepted it nevertheless
            try:
                slurm_id = self._unrecorded_id(record, plan.id)
            except SizewrightError:  # the next call searches for it before it submits another
                raise error from None
            if not slurm_id:
                raise
        return self._with_start(record, StartedJob(slurm_id=slurm_id, plan=plan, at_s=since_s))

    def resubmit(self, record: SlurmRecord, plan: Plan) -> SlurmRecord:
        """Submit the last start again. `plan` has the secrets that the record does not keep."""
        script = self._jobs.read(record, len(record.starts) - 1, _SCRIPT_FILE)
        previous = record.last.plan.model_copy(update={"job": plan.job})
        return self.submit(self.prepare(record, previous, script), previous, record.last.at_s)

    def recovered(self, record: SlurmRecord) -> SlurmRecord:
        """Return the record, completed from Slurm if the process that submitted its last start died."""
        if not record.submitting:
            return record
        path = self._jobs.start_folder(record, len(record.starts)) / PLAN_FILE
        if not path.exists():
            return record
        plan = Plan.model_validate_json(path.read_text(encoding="utf-8"))
        slurm_id = self._unrecorded_id(record, record.submitting)
        if not slurm_id:
            return record
        return self._with_start(record, StartedJob(slurm_id=slurm_id, plan=plan, at_s=self._clock()))

    def end(self, record: SlurmRecord) -> None:
        """Ask the job's replicas to end, cancel the job after their grace period, and return once it has ended.

        Raises EngineError if it does not end.
        """
        job = record.last.slurm_id
        grace_s = command_of(record.last.plan.job).grace_s
        state = self._cli.job(job)
        if state and state.is_running and grace_s:
            self._cli.terminate(job)
            state = self._await_end(job, grace_s)
        if state and state.is_unfinished:
            self._cli.cancel(job)
            state = self._await_end(job, _END_TIMEOUT_S)
        if state and state.is_unfinished:
            raise EngineError(
                f"Slurm's job {job} has not ended after {_END_TIMEOUT_S:.0f} s.", f"Check: scontrol show job {job}"
            )

    def _await_end(self, job: str, timeout_s: float) -> SlurmJob | None:
        deadline_s = time.monotonic() + timeout_s
        while (state := self._cli.job(job)) and state.is_unfinished and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        return state

    def _with_start(self, record: SlurmRecord, start: StartedJob) -> SlurmRecord:
        record = record.model_copy(update={"starts": (*record.starts, start), "submitting": ""})
        self._jobs.save(record)
        return record

    def _unrecorded_id(self, record: SlurmRecord, plan_id: str) -> str:
        """Return the id of a job of this plan that Slurm has and the record has not; empty if there is none.

        Raises Slurm's error, since an unknown state does not mean that there is none.
        """
        recorded = {start.slurm_id for start in record.starts}
        ids = [job for job in self._cli.find(f"{COMMENT}{plan_id}") if job not in recorded]
        return ids[-1] if ids else ""

    def _env(self, record: SlurmRecord, plan: Plan) -> dict[str, str]:
        number = len(record.starts)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SBATCH_", "SLURM_JOB"))}
        if plan.job.command:
            plain, secret = split(plan.job.command.env)
            env |= with_values(secret, env) | {ENV: json.dumps(with_values(plain, env))}
        folder = self._jobs.start_folder(record, number)
        return env | {FOLDER: str(folder), RESTARTS_VARIABLE: str(number), "SIZEWRIGHT_PYTHON": sys.executable}


def _with_mark(text: str, plan: Plan, folder: Path) -> str:
    """Return the script with the plan's mark in its comment, and with an output file unless it sets its own."""
    script = SlurmScript(text)
    comment = (script.value(0, "--comment") or "").strip("\"'")
    words = [word for word in comment.split() if not word.startswith(COMMENT)]
    marked = " ".join([*words, f"{COMMENT}{plan.id}"])
    script.set(0, "--comment", f'"{marked}"' if words else marked)
    output = script.value(0, "--output")
    if output is None or "/start-" in output:
        script.set(0, "--output", '"' + str(folder / "job.log").replace("%", "%%") + '"')
    return script.text
