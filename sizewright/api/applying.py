"""Apply a plan through an executor: show the difference first, and record every plan in the audit log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from sizewright.api._records import PlanLike, RailsLike, as_record
from sizewright.errors import InputError, JobError, SizewrightError
from sizewright.executors import get_executor
from sizewright.executors.difference import text_difference
from sizewright.executors.hooks import AdoptsManifests, MeasuresChanges, ParsesManifests, RemarksOnManifests
from sizewright.executors.registry import unsupported
from sizewright.runtime.audit_log import AuditLog, Entry
from sizewright.runtime.guardrail_executor import GuardrailExecutor
from sizewright.runtime.remote_run import RemoteRun
from sizewright.runtime.watched import attached_to
from sizewright.settings import DEFAULT_LEDGER, EnvironmentSettings
from sizewright.spec import Application, Executor, Handle, Plan, Rails, ShowsDifference
from sizewright.spec._base import Record
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import KeyTwiceError, read_text, read_yaml
from sizewright.task_progress import report_progress

_OBSERVE_EVERY_S = 1.0
_JOB_KEYS = {"bounds", "command", "model", "training"}
"""Keys that job files have and manifests do not."""


def apply(
    plan: PlanLike,
    *,
    executor: str | Executor,
    rails: RailsLike | None = None,
    ledger: str | Path | None = None,
    asked_by: str = "",
    dry_run: bool = False,
    confirm: Callable[[str], bool] = lambda _: True,
    wait_s: float = 0.0,
    **options: object,
) -> Application:
    """Apply a plan: a record, its file, or a manifest that the executor rendered from it.

    `confirm` is called with the difference and returns whether to apply it. With `dry_run` nothing is changed. The plan
    has to respect `rails` ($SIZEWRIGHT_RAILS), and is recorded in the audit log `ledger` ($SIZEWRIGHT_LEDGER, else
    sizewright-plans.jsonl) together with `asked_by`; a plan that was applied before is not applied again. Wait up
    to `wait_s` seconds for the first training step after the change, and record how long it took. `options`
    configure an executor that is named. The executor `local` changes a job that `run` trains on this host.

    Raises JobError for a file that is not a plan, InputError for a plan that violates its rails, does not match the
    current state of the job, or is rejected by the platform, UnsupportedError for an executor that only renders,
    StoreError for an audit log that cannot be written, EngineError when the platform does not answer, MissingExtraError
    without its client.
    """
    with ExitStack() as stack:
        plan_or_path = _plan_or_path(plan)
        if executor == "local":
            executor, plan = _attach_to_local_run(stack, plan_or_path, options)
        else:
            executor = get_executor(executor, **options) if isinstance(executor, str) else executor
            plan = _load_plan(plan_or_path, executor)
        if not executor.capabilities.adjust:
            raise unsupported(executor.name, "adjust")
        if plan.kind == "keep":
            return Application(plan_id=plan.id, executor=executor.name, became="unchanged")
        plan = plan.model_copy(update={"asked_by": asked_by}) if asked_by else plan
        audit_log = AuditLog(ledger or EnvironmentSettings.from_environment().ledger or DEFAULT_LEDGER)
        guarded = GuardrailExecutor(executor, rails=load_rails(rails), audit_log=audit_log)
        return _apply(guarded, executor, plan, audit_log, dry_run, confirm, wait_s)


def manifest(
    plan: PlanLike,
    *,
    executor: str | Executor,
    rails: RailsLike | None = None,
    asked_by: str = "",
    before: str = "",
    **options: object,
) -> tuple[str, str, list[str]]:
    """Render the manifest of a plan that respects its rails.

    Return the manifest, its difference from the text `before`, and remarks on what a person has to check in it.
    """
    executor = get_executor(executor, **options) if isinstance(executor, str) else executor
    plan = _load_plan(_plan_or_path(plan), executor)
    plan = plan.model_copy(update={"asked_by": asked_by}) if asked_by else plan
    if plan.kind != "keep":  # render() itself rejects `keep`
        GuardrailExecutor(executor, rails=load_rails(rails)).check(plan)
    text = executor.render(plan)
    return text, text_difference(before, text), remarks_on(executor, plan)


def remarks_on(executor: Executor, plan: Plan) -> list[str]:
    """Return the executor's remarks on what a person has to check in the manifest of a plan."""
    if plan.kind == "keep" or not isinstance(executor, RemarksOnManifests):
        return []
    return list(executor.remarks(plan))


def _plan_or_path(plan: PlanLike) -> Plan | Path:
    return Path(absolute(plan)) if isinstance(plan, str | os.PathLike) else as_record(Plan, plan, "plan")


def _apply(
    guarded: GuardrailExecutor,
    executor: Executor,
    plan: Plan,
    audit_log: AuditLog,
    dry_run: bool,
    confirm: Callable[[str], bool],
    wait_s: float,
) -> Application:
    ids = {"plan_id": plan.id, "executor": executor.name}
    if applied_before := guarded.find_applied(plan):
        _check_still_exists(executor, plan, applied_before)
        return Application(**ids, became="unchanged", handle=applied_before.handle)
    guarded.check(plan, record=not dry_run)
    audit_log.check_writable()
    handle = _find_handle(executor, plan, audit_log)
    if handle is None and plan.kind != "launch":
        raise InputError(f"Plan {plan.id} changes {plan.job.name}, which is not running.", "Launch it first.")
    changes = executor.difference(plan) if isinstance(executor, ShowsDifference) else _sizes_difference(plan)
    if changes:
        changes += "".join(f"Note: {remark}\n" for remark in remarks_on(executor, plan))
    if dry_run or not confirm(changes):
        return Application(**ids, became="dry run" if dry_run else "declined", difference=changes, handle=handle)
    audit_log.check()
    with _measurements(executor) as measured_s:
        if handle is None or plan.kind == "launch":
            handle = guarded.launch(plan)
        else:
            guarded.adjust(handle, plan)
        if not changes and isinstance(executor, ShowsDifference):  # recorded, but there is no change to wait for
            message = "The job has these sizes already."
            return Application(**ids, became="unchanged", handle=handle, message=message)
        message = _await_first_step(executor, handle, wait_s, measured_s) if wait_s else ""
    first_step_s = measured_s[0] if measured_s else None
    return Application(
        **ids, became="applied", difference=changes, handle=handle, first_step_s=first_step_s, message=message
    )


def _check_still_exists(executor: Executor, plan: Plan, entry: Entry) -> None:
    """Raise InputError if a plan was carried out, but the platform does not have its job any more."""
    if isinstance(executor, ShowsDifference) and executor.find(plan) is None:
        job = entry.handle.id if entry.handle else entry.job
        raise InputError(
            f"Plan {plan.id} was carried out on {entry.at:%Y-%m-%d %H:%M}, but {executor.name} has no job {job} now.",
            "Give the plan a new id to launch it again." if plan.kind == "launch" else "Launch it with a new plan.",
        )


def _attach_to_local_run(stack: ExitStack, plan: Plan | Path, options: dict[str, object]) -> tuple[Executor, Plan]:
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    if plan.kind == "launch":
        raise InputError(f"Plan {plan.id} launches a job on this host.", "Start it with: sizewright run.")
    if options:
        raise InputError(f"The local executor takes no options here, got {', '.join(options)}.", "Leave them out.")
    return stack.enter_context(attached_to(plan.job.name)), plan


def _load_plan(plan: Plan | Path, executor: Executor) -> Plan:
    """Return the plan of a file, which may hold a manifest of the executor.

    Raises JobError for a file that is neither a plan nor such a manifest.
    """
    if isinstance(plan, Plan):
        return plan
    try:
        text = read_text(plan, "file")
        data = read_yaml(text)
    except (OSError, InputError):
        return Plan.load(plan)  # raises with a message
    except KeyTwiceError as error:
        raise JobError(f"{plan}: {error}.", "Keep one of them.") from None
    except (yaml.YAMLError, ValueError):
        data = None
    if isinstance(data, dict) and "target" not in data and _JOB_KEYS & data.keys():
        raise JobError(f"{plan} is a job file, not a plan.", f"Make one: sizewright recommend {plan} --out plan.yaml.")
    if isinstance(executor, ParsesManifests) and not (isinstance(data, dict) and "target" in data):
        try:
            return executor.adopt(plan) if isinstance(executor, AdoptsManifests) else executor.parse(text)
        except InputError as error:
            raise JobError(f"{plan} is not a plan. Read as a manifest: {error.message}", error.remedy) from None
    return Plan.load(plan)


def load_rails(rails: RailsLike | None) -> Rails:
    """Return rails from a record, a mapping or a file, else from the file at $SIZEWRIGHT_RAILS, else empty ones."""
    rails = rails if rails is not None else EnvironmentSettings.from_environment().rails or Rails()
    return as_record(Rails, rails, "rails")


def _find_handle(executor: Executor, plan: Plan, audit_log: AuditLog) -> Handle | None:
    """Return the handle of the plan's job: from the platform, else from the audit log of its launch."""
    if isinstance(executor, ShowsDifference):
        return executor.find(plan)
    entries = audit_log.read()
    if isinstance(executor, RemoteRun):
        return executor.status.handle
    handles = [e.handle for e in entries if (e.job, e.executor) == (plan.job.name, executor.name) and e.handle]
    return handles[-1] if handles else None


def _sizes_difference(plan: Plan) -> str:
    """Return the difference between the plan's current allocation and its target, as lines of a diff."""
    before = _yaml(plan.current) if plan.current else ""
    lines = [f"migrate {name}\n" for name in plan.migrate] + (["rebalance\n"] if plan.rebalance else [])
    return text_difference(before, _yaml(plan.target)) + "".join(lines)


def _yaml(record: Record) -> str:
    return yaml.safe_dump(record.model_dump(mode="json", exclude_none=True), sort_keys=False)


@contextmanager
def _measurements(executor: Executor) -> Iterator[list[float]]:
    """Yield a list that receives the seconds from a change to the first step after it."""
    measured_s: list[float] = []
    if not isinstance(executor, MeasuresChanges):
        yield measured_s
        return
    costs = executor.change_costs

    def listener(_: Plan, kind: str, seconds: float) -> None:
        measured_s.append(seconds)

    costs.listeners.append(listener)
    try:
        yield measured_s
    finally:
        costs.listeners.remove(listener)


def _await_first_step(executor: Executor, handle: Handle, wait_s: float, measured_s: Sequence[float]) -> str:
    """Observe the job until a first step is measured, and return why none was; empty if one was."""
    if not executor.capabilities.observe or not isinstance(executor, MeasuresChanges):
        return "" if measured_s else f"The {executor.name} executor does not measure the time to the first step."
    reason = ""
    end_s = time.monotonic() + wait_s
    while not measured_s and (remaining_s := end_s - time.monotonic()) > 0:
        report_progress("waiting for the first step", wait_s - remaining_s, wait_s)
        try:
            has_ended = executor.wait(handle, min(_OBSERVE_EVERY_S, remaining_s))
            executor.observe(handle)
            reason = ""
        except SizewrightError as error:  # an executor that does not answer now is asked again
            has_ended, reason = False, error.message
            time.sleep(min(_OBSERVE_EVERY_S, remaining_s))
        if has_ended and not measured_s:
            return "The job ended before its first step was seen."
    if measured_s:
        return ""
    return f"No step was seen in {wait_s:g} s: {reason}" if reason else f"No step within {wait_s:g} s."
