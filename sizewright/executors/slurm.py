"""Jobs of Slurm: a heterogeneous job with a component for each group of replicas.

A running job cannot get other sizes there: a change ends it and submits it anew, and its own checkpoints are what it
goes on from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sizewright.errors import InputError
from sizewright.executors.first_steps import FirstSteps
from sizewright.executors.registry import unsupported
from sizewright.executors.slurm_checks import carried_out, check_cool_down, check_current
from sizewright.executors.slurm_cli import SlurmCli, SlurmJob
from sizewright.executors.slurm_jobs import SlurmJobs, SlurmRecord
from sizewright.executors.slurm_render import SlurmRenderer
from sizewright.executors.slurm_replicas import SlurmReplicas
from sizewright.executors.slurm_sizes import rounded_allocation
from sizewright.executors.slurm_submit import SlurmSubmitter
from sizewright.spec import Capabilities, Change, Handle, Metrics, Outcome, Plan
from sizewright.spec._paths import absolute
from sizewright.spec.outcome import Status

_POLL_S = 1.0


class SlurmExecutor(SlurmRenderer):
    """Renders plans as scripts for `sbatch`, and hands them to the cluster of the environment (SLURM_CONF).

    What it knows of its jobs, and what they tell, is kept in `folder`, which all nodes must share; another process
    that names the same folder finds them there. With `base`, a script, only its sizes are changed; its replicas are
    seen if it starts them by `python -m sizewright.executors.slurm_step`.

    A launch or change returns once Slurm has taken it; jobs may wait in its queue.
    """

    capabilities = Capabilities(launch=True, adjust=True, observe=True, stop=True, render=True)

    def __init__(
        self,
        *,
        base: str | Path | None = None,
        folder: str | Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(base=base)
        self._clock, self._cli = clock, SlurmCli()
        self._jobs = SlurmJobs(Path(absolute(folder)) if folder else Path.home() / ".sizewright" / "slurm")
        self._submitter = SlurmSubmitter(self._cli, self._jobs, clock)
        self._steps = FirstSteps(self.change_costs, clock)
        self._replicas: dict[tuple[str, int], SlurmReplicas] = {}

    def launch(self, plan: Plan) -> Handle:
        """Submit it; the same handle, where Slurm has the job of this very plan already.

        Raises InputError for what Slurm refuses.
        """
        if plan.kind != "launch":
            raise InputError(
                f"Plan {plan.id} is of kind '{plan.kind}' and cannot launch a job.",
                "Make a launch plan of its target, or pass it to adjust with the handle of the running job.",
            )
        script, plan = self.render(plan), plan.model_copy(update={"job": plan.job.with_absolute_path()})
        with self._jobs.lock():
            if there := self._launched(plan):
                return there
            since_s = self._clock()
            record = self._jobs.create(plan, since_s)
            try:
                record = self._submitter.submit(self._submitter.prepare(record, plan, script), plan, since_s)
            except InputError:
                self._jobs.discard(record)
                raise
        self._steps.await_step(record.id, plan, rounded_allocation(plan.target), since_s, 0)
        return Handle(executor=self.name, id=record.id, job=plan.job.name)

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """End the job and submit it at the plan's target; nothing, where it was carried out already.

        Raises InputError for a plan that is not for this job as it is now, that comes within the cool-down, or that
        Slurm would refuse: the job trains on.
        """
        if plan.migrate or plan.rebalance:
            raise unsupported(self.name, "migrate" if plan.migrate else "rebalance")
        if plan.kind == "launch" or plan.job.name != handle.job:
            raise InputError(
                f"Plan {plan.id} is of kind '{plan.kind}' for {plan.job.name}, and {handle.id} runs.",
                "Make a plan that adjusts it.",
            )
        with self._jobs.lock():  # another process may have changed it just now
            record = self._going_on(handle)
            if plan.kind == "keep" or carried_out(record, plan):
                return
            check_current(record, plan)
            same = rounded_allocation(plan.target) == rounded_allocation(record.last.plan.target)
            if same and self._there(record):
                return
            check_cool_down(record, plan, self._clock())
            script, plan = self.render(plan), plan.model_copy(update={"job": plan.job.with_absolute_path()})
            self._change(record, plan, script)

    def observe(self, handle: Handle) -> Metrics:
        """Of the replicas that run; a job in a queue has none."""
        record = self._known(handle)
        there = self._cli.look(record.last.slurm_id)
        trained = self._trained(record)
        told = Metrics(replicas=())
        if there and there.runs:
            used = self._cli.used(there.ids)
            by_component = {i: used[job] for i, job in enumerate(there.ids) if job in used}
            told = self._start(record, len(record.starts) - 1).look(self._clock(), by_component)
        left = record.last.plan.job.samples_left(trained)
        metrics = told.model_copy(update={"samples_trained": trained, "samples_left": left})
        self._steps.look(handle.id, metrics)
        return metrics

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether the job has ended, well or not; waits at most about `timeout_s` seconds for it."""
        record, until_s = self._load(handle), time.monotonic() + timeout_s
        if record.outcome:
            return True
        while self._there(self._known(handle)):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(left_s, _POLL_S))
        return True

    def stop(self, handle: Handle) -> Outcome:
        """End the job, if it still runs; a second stop returns the same outcome, in any process."""
        with self._jobs.lock():
            record = self._load(handle)
            if record.outcome:
                return record.outcome
            record = self._submitter.recovered(record)
            outcome = self._ended(record) if record.starts else Outcome(status="stopped")
            self._jobs.save(record.model_copy(update={"outcome": outcome}))
        self._steps.forget(handle.id)
        return outcome

    def _launched(self, plan: Plan) -> Handle | None:
        """The job of this very plan, while Slurm has it. Raises InputError where that has other sizes."""
        for found in self._jobs.going_on(plan):
            record = self._submitter.recovered(found)
            if record.starts and self._there(record):
                if rounded_allocation(record.starts[0].plan.target) != rounded_allocation(plan.target):
                    raise InputError(
                        f"Plan {plan.id} was launched with other sizes.", "Give the changed plan an id of its own."
                    )
                return Handle(executor=self.name, id=record.id, job=plan.job.name)
        for other in self._jobs.named(plan.job.name):
            record = self._submitter.recovered(other)
            if record.starts and self._there(record):
                raise InputError(
                    f"There is a job {plan.job.name} already ({record.id}).",
                    "Make a plan that adjusts it, or name the job otherwise.",
                )
        return None

    def _change(self, record: SlurmRecord, plan: Plan, script: str) -> None:
        """Whatever Slurm would refuse is refused before the job is ended; should it be refused after all, the job of
        before comes back."""
        since_s = self._clock()
        self._submitter.check(record, plan, script)
        record = self._submitter.prepare(record, plan, script)
        self._submitter.end(record)
        try:
            record = self._submitter.submit(record, plan, since_s)
        except InputError:
            self._submitter.resubmit(record, plan)
            raise
        took_s = max(0.0, self._clock() - since_s)
        change = Change(
            at_s=since_s - record.began_s, kind="restart", seconds=took_s, description=plan.target.describe()
        )
        self._jobs.save(record.model_copy(update={"changes": (*record.changes, change)}))
        self._steps.await_step(record.id, plan, rounded_allocation(plan.target), since_s, self._trained(record))

    def _ended(self, record: SlurmRecord) -> Outcome:
        """It ends now, if it still goes on."""
        there = self._there(record)
        number = len(record.starts) - 1
        if there:
            self._submitter.end(record)
            status: Status = "stopped"
            message = ""
        else:
            told = self._cli.look(record.last.slurm_id)
            fault = self._start(record, number).fault()
            status = told.status if told else ("finished" if self._start(record, number).finished else "failed")
            said = f"Slurm says {', '.join(dict.fromkeys(told.states))}. " if told else ""
            message = f"{said}{fault}".strip() if status == "failed" else ""
            if status == "failed" and not message:
                message = "Slurm knows it no more, and not all of its workers have told of their end."
        return Outcome(
            status=status, message=message, samples=self._trained(record), changes=record.changes,
            duration_s=max(0.0, self._clock() - record.began_s),
        )  # fmt: skip

    def _trained(self, record: SlurmRecord) -> int:
        """Samples of all its starts, each once."""
        trained = 0
        for number in range(len(record.starts)):
            start = self._start(record, number)
            samples = start.samples()
            trained = trained + samples if start.counts_anew else samples or trained
        return trained

    def _start(self, record: SlurmRecord, number: int) -> SlurmReplicas:
        key = (record.id, number)
        if key not in self._replicas:
            folder = self._jobs.start_folder(record, number)
            self._replicas[key] = SlurmReplicas(record.starts[number].plan, folder)
        return self._replicas[key]

    def _there(self, record: SlurmRecord) -> SlurmJob | None:
        """As Slurm has it, while it goes on."""
        there = self._cli.look(record.last.slurm_id)
        return there if there and there.goes_on else None

    def _load(self, handle: Handle) -> SlurmRecord:
        record = self._jobs.load(handle.id) if handle.executor == self.name else None
        if record is None:
            raise InputError(
                f"There is no job {handle.id} in {self._jobs.folder}.", "Launch it, or pass another handle or folder."
            )
        return record

    def _known(self, handle: Handle) -> SlurmRecord:
        record = self._submitter.recovered(self._load(handle))
        if record.outcome or not record.starts:
            raise InputError(f"Job {handle.id} was stopped.", "Launch it anew.")
        return record

    def _going_on(self, handle: Handle) -> SlurmRecord:
        """One that ended in a change that was interrupted goes on with the next."""
        record = self._known(handle)
        if not record.submitting and not self._there(record):
            raise InputError(f"Job {handle.id} has ended: there is nothing to change.", "Launch it anew.")
        return record
