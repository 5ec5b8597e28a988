"""Jobs on Slurm: heterogeneous jobs with a component for each group of replicas.

Slurm cannot resize a running job: a change ends it and submits it again, and it resumes from its own checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sizewright.errors import InputError
from sizewright.executors.plan_checks import (
    check_adjusts,
    check_capable,
    check_cool_down,
    check_current,
    check_launches,
    check_may_restart,
    check_no_job,
    check_not_ended,
    check_same,
)
from sizewright.executors.slurm.commands import SlurmCli, SlurmJob
from sizewright.executors.slurm.jobs import SlurmJobs, SlurmRecord
from sizewright.executors.slurm.render import SlurmRenderer
from sizewright.executors.slurm.replicas import SlurmReplicas
from sizewright.executors.slurm.sizes import rounded_allocation
from sizewright.executors.slurm.submit import SlurmSubmitter
from sizewright.executors.time_to_first_step import TimeToFirstStep
from sizewright.spec import Capabilities, Change, Handle, Metrics, Outcome, Plan
from sizewright.spec._paths import absolute
from sizewright.spec.outcome import Status

_POLL_S = 1.0


class SlurmExecutor(SlurmRenderer):
    """Render plans as scripts for `sbatch`, and run them on the cluster of the environment (SLURM_CONF).

    The records of its jobs, and the files that their replicas write, are in `folder`, which all nodes must share. Any
    process that uses the same folder can observe, change and stop the jobs. With `base`, a script, only its sizes are
    changed; its replicas are observed if it starts them by `python -m sizewright.executors.slurm.step`.

    A launch or change returns once Slurm has accepted it, though the job may wait in a queue.
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
        self._clock = clock
        self._cli = SlurmCli()
        self._jobs = SlurmJobs(Path(absolute(folder)) if folder else Path.home() / ".sizewright" / "slurm")
        self._submitter = SlurmSubmitter(self._cli, self._jobs, clock)
        self._steps = TimeToFirstStep(self.change_costs, clock)
        self.may_restart = True
        self._replicas: dict[tuple[str, int], SlurmReplicas] = {}

    def launch(self, plan: Plan) -> Handle:
        """Submit the plan's job. If Slurm has the job of this very plan already, return its handle.

        Raises InputError if Slurm refuses it.
        """
        check_launches(plan)
        script = self.render(plan)
        plan = plan.model_copy(update={"job": plan.job.with_absolute_path()})
        with self._jobs.lock():
            if handle := self._launched(plan):
                return handle
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
        """End the job and submit it at the plan's target. Do nothing if the plan was carried out already.

        Raises InputError if the plan was made for another job or for other sizes, during the cool-down, or if Slurm
        would refuse the target; the job then continues.
        """
        check_capable(self, plan)
        check_adjusts(plan, handle)
        with self._jobs.lock():  # another process may change it at the same time
            record = self._adjustable(handle)
            if plan.kind == "keep" or _was_carried_out(record, plan):
                return
            check_current(plan, _is_current(record, plan), record.last.plan.target.describe())
            is_same = rounded_allocation(plan.target) == rounded_allocation(record.last.plan.target)
            if is_same and self._unfinished(record):
                return
            check_cool_down(plan, record.last.at_s + record.last.plan.cooldown_s, self._clock())
            check_may_restart(handle.id, self.may_restart)
            script = self.render(plan)
            self._restart(record, plan.model_copy(update={"job": plan.job.with_absolute_path()}), script)

    def observe(self, handle: Handle) -> Metrics:
        """Return the metrics of the replicas that run; a job in a queue has none."""
        record = self._known(handle)
        state = self._cli.job(record.last.slurm_id)
        trained = self._samples_trained(record)
        metrics = Metrics(replicas=())
        if state and state.is_running:
            usage = self._cli.usage(state.ids)
            usage_by_component = {i: usage[slurm_id] for i, slurm_id in enumerate(state.ids) if slurm_id in usage}
            metrics = self._start(record, len(record.starts) - 1).metrics(self._clock(), usage_by_component)
        samples_left = record.last.plan.job.samples_left(trained)
        metrics = metrics.model_copy(update={"samples_trained": trained, "samples_left": samples_left})
        self._steps.on_metrics(handle.id, metrics)
        return metrics

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Wait up to about `timeout_s` seconds for the job to end, and return whether it has ended."""
        deadline_s = time.monotonic() + timeout_s
        if self._load(handle).outcome:
            return True
        while self._unfinished(self._known(handle)):
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                return False
            time.sleep(min(remaining_s, _POLL_S))
        return True

    def stop(self, handle: Handle) -> Outcome:
        """End the job if it still runs. A second call returns the same outcome, in any process."""
        with self._jobs.lock():
            record = self._load(handle)
            if record.outcome:
                return record.outcome
            record = self._submitter.recovered(record)
            outcome = self._end(record) if record.starts else Outcome(status="stopped")
            self._jobs.save(record.model_copy(update={"outcome": outcome}))
        self._steps.forget(handle.id)
        return outcome

    def _launched(self, plan: Plan) -> Handle | None:
        """Return the handle of this very plan's job while Slurm has it.

        Raises InputError if the plan was launched with other sizes, or another job has the same name.
        """
        for record in map(self._submitter.recovered, self._jobs.launched_by(plan)):
            if record.starts and self._unfinished(record):
                check_same(plan, rounded_allocation(record.starts[0].plan.target), rounded_allocation(plan.target))
                return Handle(executor=self.name, id=record.id, job=plan.job.name)
        for record in map(self._submitter.recovered, self._jobs.named(plan.job.name)):
            check_no_job(f"job {record.id}", bool(record.starts and self._unfinished(record)))
        return None

    def _restart(self, record: SlurmRecord, plan: Plan, script: str) -> None:
        """End the job and submit it with the plan's script.

        A test submission first raises whatever Slurm refuses. If Slurm refuses the script after all, the previous job
        is submitted again.
        """
        since_s = self._clock()
        self._submitter.check(record, plan, script)
        record = self._submitter.prepare(record, plan, script)
        self._submitter.end(record)
        try:
            record = self._submitter.submit(record, plan, since_s)
        except InputError:
            self._submitter.resubmit(record, plan)
            raise
        change = Change(
            at_s=since_s - record.began_s,
            kind="restart",
            seconds=max(0.0, self._clock() - since_s),
            description=plan.target.describe(),
        )
        self._jobs.save(record.model_copy(update={"changes": (*record.changes, change)}))
        trained = self._samples_trained(record)
        self._steps.await_step(record.id, plan, rounded_allocation(plan.target), since_s, trained)

    def _end(self, record: SlurmRecord) -> Outcome:
        """End the job if it still runs, and return its outcome."""
        status: Status = "stopped"
        message = ""
        if self._unfinished(record):
            self._submitter.end(record)
        else:
            state = self._cli.job(record.last.slurm_id)
            last_start = self._start(record, len(record.starts) - 1)
            failure = last_start.failure()
            status = state.status if state else ("finished" if last_start.finished else "failed")
            if status == "failed":
                states = f"Slurm's state: {', '.join(dict.fromkeys(state.states))}. " if state else ""
                message = f"{states}{failure}".strip()
                message = (
                    message or "Slurm no longer knows the job, and not all of its workers have reported their end."
                )
        return Outcome(
            status=status,
            message=message,
            samples=self._samples_trained(record),
            changes=record.changes,
            duration_s=max(0.0, self._clock() - record.began_s),
        )

    def _samples_trained(self, record: SlurmRecord) -> int:
        """Return the samples of all starts, each counted once."""
        trained = 0
        for number in range(len(record.starts)):
            start = self._start(record, number)
            samples = start.samples()
            trained = trained + samples if start.counts_from_zero else samples or trained
        return trained

    def _start(self, record: SlurmRecord, number: int) -> SlurmReplicas:
        key = (record.id, number)
        if key not in self._replicas:
            folder = self._jobs.start_folder(record, number)
            self._replicas[key] = SlurmReplicas(record.starts[number].plan, folder)
        return self._replicas[key]

    def _unfinished(self, record: SlurmRecord) -> SlurmJob | None:
        """Return the state of a job that has not ended, else None."""
        state = self._cli.job(record.last.slurm_id)
        return state if state and state.is_unfinished else None

    def _load(self, handle: Handle) -> SlurmRecord:
        record = self._jobs.load(handle.id) if handle.executor == self.name else None
        if record is None:
            raise InputError(
                f"There is no job {handle.id} in {self._jobs.folder}.", "Launch it, or pass another handle or folder."
            )
        return record

    def _known(self, handle: Handle) -> SlurmRecord:
        """Return the record of a job. Raises InputError if it was stopped."""
        record = self._submitter.recovered(self._load(handle))
        if record.outcome or not record.starts:
            raise InputError(f"Job {handle.id} was stopped.", "Launch it with a new plan.")
        return record

    def _adjustable(self, handle: Handle) -> SlurmRecord:
        """Return the record of a job that can be changed. Raises InputError if it has ended.

        A job that ended in a change which was interrupted is submitted by the next change.
        """
        record = self._known(handle)
        check_not_ended(f"Job {handle.id}", not record.submitting and not self._unfinished(record))
        return record


def _was_carried_out(record: SlurmRecord, plan: Plan) -> bool:
    """Return whether the last start is of this very plan.

    Raises InputError if a plan with the same id was carried out with other sizes.
    """
    if record.submitting or record.last.plan.id != plan.id:
        return False
    check_same(plan, rounded_allocation(record.last.plan.target), rounded_allocation(plan.target))
    return True


def _is_current(record: SlurmRecord, plan: Plan) -> bool:
    """Return whether the plan was made for the sizes that the job has."""
    return plan.current is None or rounded_allocation(plan.current) == rounded_allocation(record.last.plan.target)
