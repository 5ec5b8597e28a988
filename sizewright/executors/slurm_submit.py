"""Handing starts of a job to Slurm, and ending them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sizewright.errors import EngineError, SizewrightError
from sizewright.executors.slurm_cli import SlurmCli, SlurmJob
from sizewright.executors.slurm_jobs import SlurmJobs, SlurmRecord, Start
from sizewright.executors.slurm_render import COMMENT
from sizewright.executors.slurm_script import SlurmScript
from sizewright.executors.slurm_step import ENV, FOLDER, PLAN_FILE, own_command
from sizewright.spec import Plan
from sizewright.spec.withheld import split, with_values
from sizewright.training.command.session import RESTARTS_VARIABLE

_GONE_S, _POLL_S = 180.0, 0.25
_SCRIPT = "job.sh"


class SlurmSubmitter:
    """Keeps `jobs` as Slurm has them, whatever is interrupted between the two."""

    def __init__(self, cli: SlurmCli, jobs: SlurmJobs, clock: Callable[[], float]) -> None:
        self._cli, self._jobs, self._clock = cli, jobs, clock

    def check(self, record: SlurmRecord, plan: Plan, script: str) -> None:
        """Raises InputError for what Slurm would refuse."""
        self._cli.check(script, cwd=record.cwd, env=self._env(record, plan))

    def prepare(self, record: SlurmRecord, plan: Plan, script: str) -> SlurmRecord:
        """All that a start needs is written down, so that it can be submitted whatever happens next."""
        number = len(record.starts)
        text = _with_notes(script, plan, self._jobs.start_folder(record, number))
        self._jobs.write(record, number, {PLAN_FILE: plan.model_dump_json(exclude_defaults=True), _SCRIPT: text})
        record = record.model_copy(update={"submitting": plan.id})
        self._jobs.save(record)
        return record

    def submit(self, record: SlurmRecord, plan: Plan, since_s: float) -> SlurmRecord:
        """One more start, which was prepared. Raises what Slurm says; then there is none."""
        text = self._jobs.read(record, len(record.starts), _SCRIPT)
        try:
            slurm_id = self._cli.submit(text, cwd=record.cwd, env=self._env(record, plan))
        except EngineError as error:  # it may have been taken all the same
            try:
                slurm_id = self._found(record, plan.id)
            except SizewrightError:  # the next call looks for it before it submits anew
                raise error from None
            if not slurm_id:
                raise
        return self._with_start(record, Start(slurm_id=slurm_id, plan=plan, at_s=since_s))

    def resubmit(self, record: SlurmRecord, plan: Plan) -> SlurmRecord:
        """Its last start once more, as it was; `plan` knows the secrets."""
        before = record.last.plan
        script = self._jobs.read(record, len(record.starts) - 1, _SCRIPT)
        again = before.model_copy(update={"job": plan.job})
        return self.submit(self.prepare(record, again, script), again, record.last.at_s)

    def recovered(self, record: SlurmRecord) -> SlurmRecord:
        """One whose submitter died is as Slurm has it."""
        if not record.submitting:
            return record
        number = len(record.starts)
        path = self._jobs.start_folder(record, number) / PLAN_FILE
        if not path.exists():
            return record
        plan = Plan.model_validate_json(path.read_text(encoding="utf-8"))
        found = self._found(record, record.submitting)
        return self._with_start(record, Start(slurm_id=found, plan=plan, at_s=self._clock())) if found else record

    def end(self, record: SlurmRecord) -> None:
        """Its replicas are asked to end and given their grace; then they are made to. Returns once it is gone.

        Raises EngineError where it does not go.
        """
        job = record.last.slurm_id
        grace_s = own_command(record.last.plan.job).grace_s
        there = self._cli.look(job)
        if there and there.runs and grace_s:
            self._cli.terminate(job)
            there = self._await_gone(job, grace_s)
        if there and there.goes_on:
            self._cli.cancel(job)
            there = self._await_gone(job, _GONE_S)
        if there and there.goes_on:
            raise EngineError(f"Slurm's job {job} is not gone after {_GONE_S:.0f} s.", f"See: scontrol show job {job}")

    def _await_gone(self, job: str, patience_s: float) -> SlurmJob | None:
        until_s = time.monotonic() + patience_s
        while (there := self._cli.look(job)) and there.goes_on and time.monotonic() < until_s:
            time.sleep(_POLL_S)
        return there

    def _with_start(self, record: SlurmRecord, start: Start) -> SlurmRecord:
        record = record.model_copy(update={"starts": (*record.starts, start), "submitting": ""})
        self._jobs.save(record)
        return record

    def _found(self, record: SlurmRecord, plan_id: str) -> str:
        """The id of a job of this plan that Slurm has and the record has not. Raises what Slurm says: not to know is
        not to have none."""
        known = {start.slurm_id for start in record.starts}
        found = [job for job in self._cli.find(f"{COMMENT}{plan_id}") if job not in known]
        return found[-1] if found else ""

    def _env(self, record: SlurmRecord, plan: Plan) -> dict[str, str]:
        number = len(record.starts)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SBATCH_", "SLURM_JOB"))}
        if plan.job.command:
            plain, secret = split(plan.job.command.env)
            env |= with_values(secret, env) | {ENV: json.dumps(with_values(plain, env))}
        folder = self._jobs.start_folder(record, number)
        return env | {FOLDER: str(folder), RESTARTS_VARIABLE: str(number), "SIZEWRIGHT_PYTHON": sys.executable}


def _with_notes(text: str, plan: Plan, folder: Path) -> str:
    """The script as it is submitted: which plan it carries out, and where its output goes unless it says so itself."""
    script = SlurmScript(text)
    own = [word for word in (script.value(0, "--comment") or "").strip("\"'").split() if not word.startswith(COMMENT)]
    comment = " ".join([*own, f"{COMMENT}{plan.id}"])
    script.set(0, "--comment", f'"{comment}"' if own else comment)
    output = script.value(0, "--output")
    if output is None or "/start-" in output:
        script.set(0, "--output", '"' + str(folder / "job.log").replace("%", "%%") + '"')
    return script.text
