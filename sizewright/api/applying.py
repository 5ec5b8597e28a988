"""Carrying out a plan on the platform of an executor: what it changes is shown first, and all of it is recorded."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import yaml

from sizewright.api._records import PlanLike, RailsLike, as_record
from sizewright.errors import InputError, JobError, SizewrightError
from sizewright.executors import get_executor
from sizewright.executors.attached import Attached
from sizewright.executors.difference import text_difference
from sizewright.executors.guarded import Guarded
from sizewright.executors.ledger import Ledger
from sizewright.executors.registry import unsupported
from sizewright.executors.watched import attached_to
from sizewright.how_far import tell
from sizewright.spec import Application, Executor, Handle, Plan, Rails, ShowsDifference
from sizewright.spec._base import Record
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import KeyTwiceError, read_text, read_yaml

DEFAULT_LEDGER = "sizewright-plans.jsonl"
LEDGER_VARIABLE, RAILS_VARIABLE = "SIZEWRIGHT_LEDGER", "SIZEWRIGHT_RAILS"
_LOOK_S = 1.0
_OF_JOBS = {"bounds", "command", "model", "training"}
"""Keys of job files, which manifests do not have."""


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
    """Carry out a plan, its file, or a manifest that an executor rendered of it; with `dry_run` only tell what it
    would change.

    `confirm` is shown the difference and says whether to go on. The plan is held to `rails` ($SIZEWRIGHT_RAILS), and
    recorded in `ledger` ($SIZEWRIGHT_LEDGER, else sizewright-plans.jsonl) with who asked: one that was carried out is
    not carried out again. With `wait_s` it waits so long for the first step after the change, which is kept, too.
    `options` make an executor by name. The executor `local` changes a job that `run` trains on this host.

    Raises JobError for a file that is no plan, InputError for a plan beyond its rails or not for the job as it is, or
    that the platform refuses, UnsupportedError for an executor that only renders, StoreError for a ledger that cannot
    be written, EngineError where the platform does not answer, MissingExtraError without its client.
    """
    with ExitStack() as stack:
        plan_or_path = _plan_or_path(plan)
        if executor == "local":
            made, loaded = _on_this_host(stack, plan_or_path, options)
        else:
            made = get_executor(executor, **options) if isinstance(executor, str) else executor
            loaded = _loaded(plan_or_path, made)
        if not made.capabilities.adjust:
            raise unsupported(made.name, "adjust")
        if loaded.kind == "keep":
            return Application(plan_id=loaded.id, executor=made.name, became="unchanged")
        loaded = loaded.model_copy(update={"asked_by": asked_by}) if asked_by else loaded
        book = Ledger(ledger or os.environ.get(LEDGER_VARIABLE) or DEFAULT_LEDGER)
        held = load_rails(rails)
        if dry_run:
            Guarded(made, rails=held).check(loaded)
        return _apply(Guarded(made, rails=held, ledger=book), made, loaded, book, dry_run, confirm, wait_s)


def manifest(
    plan: PlanLike,
    *,
    executor: str | Executor,
    rails: RailsLike | None = None,
    asked_by: str = "",
    before: str = "",
    **options: object,
) -> tuple[str, str, list[str]]:
    """The manifest of a plan within its rails, how it differs from the text of `before`, and sentences on what a
    person has to look after in it."""
    made = get_executor(executor, **options) if isinstance(executor, str) else executor
    loaded = _loaded(_plan_or_path(plan), made)
    loaded = loaded.model_copy(update={"asked_by": asked_by}) if asked_by else loaded
    if loaded.kind != "keep":  # which render refuses
        Guarded(made, rails=load_rails(rails)).check(loaded)
    text = made.render(loaded)
    return text, text_difference(before, text), remarks_on(made, loaded)


def remarks_on(executor: Executor, plan: Plan) -> list[str]:
    """Sentences on what a person has to look after in what an executor renders of a plan."""
    remarks = getattr(executor, "remarks", None)
    return list(remarks(plan)) if remarks and plan.kind != "keep" else []


def _plan_or_path(plan: PlanLike) -> Plan | Path:
    return Path(absolute(plan)) if isinstance(plan, str | os.PathLike) else as_record(Plan, plan, "plan")


def _apply(
    guarded: Guarded,
    made: Executor,
    plan: Plan,
    ledger: Ledger,
    dry_run: bool,
    confirm: Callable[[str], bool],
    wait_s: float,
) -> Application:
    told = {"plan_id": plan.id, "executor": made.name}
    if before := guarded.before(plan):
        return Application(**told, became="unchanged", handle=before.handle)
    if not dry_run:
        guarded.check(plan)
    handle = _found(made, plan, ledger)
    changes = made.difference(plan) if isinstance(made, ShowsDifference) else _sizes_difference(plan)
    changes += "".join(f"Note: {remark}\n" for remark in remarks_on(made, plan)) if changes else ""
    if dry_run or not confirm(changes):
        return Application(**told, became="dry run" if dry_run else "declined", difference=changes, handle=handle)
    ledger.check()
    if plan.kind == "launch":
        handle = guarded.launch(plan)
    else:
        guarded.adjust(_needed(handle, plan), plan)
    assert handle is not None
    first = _first_step(guarded, handle, wait_s)
    return Application(**told, became="applied", difference=changes, handle=handle, first_step_s=first)


def _on_this_host(stack: ExitStack, plan: Plan | Path, options: dict[str, object]) -> tuple[Executor, Plan]:
    loaded = plan if isinstance(plan, Plan) else Plan.load(plan)
    if loaded.kind == "launch":
        raise InputError(f"Plan {loaded.id} launches a job on this host.", "Train it with: sizewright run.")
    if options:
        raise InputError(f"The local executor takes no {', '.join(options)} here.", "Leave them out.")
    return stack.enter_context(attached_to(loaded.job.name)), loaded


def _loaded(plan: Plan | Path, executor: Executor) -> Plan:
    """Raises JobError for a file that is neither a plan nor a manifest of the executor's."""
    if isinstance(plan, Plan):
        return plan
    try:
        text = read_text(plan, "file")
        data = read_yaml(text)
    except (OSError, InputError):
        return Plan.load(plan)  # says what is wrong
    except KeyTwiceError as error:
        raise JobError(f"{plan}: {error}.", "Keep one of them.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and "target" not in data and _OF_JOBS & data.keys():
        raise JobError(f"{plan} is a job file, not a plan.", f"Make one: sizewright recommend {plan} --out plan.yaml.")
    parse, adopt = (getattr(executor, name, None) for name in ("parse", "adopt"))
    if parse and not (isinstance(data, dict) and "target" in data):
        try:
            return adopt(plan) if adopt else parse(text)  # type: ignore[no-any-return]
        except InputError as error:
            raise JobError(f"{plan} is no plan. As a manifest: {error.message}", error.remedy) from None
    return Plan.load(plan)


def load_rails(rails: RailsLike | None) -> Rails:
    """As they are, from their file, or from that of $SIZEWRIGHT_RAILS; none otherwise."""
    rails = rails if rails is not None else os.environ.get(RAILS_VARIABLE) or Rails()
    return as_record(Rails, rails, "rails")


def _found(executor: Executor, plan: Plan, ledger: Ledger) -> Handle | None:
    """The job that a plan is for: as the platform knows it, else as it was launched."""
    if isinstance(executor, ShowsDifference):
        return executor.find(plan)
    mine = [e.handle for e in ledger.read() if (e.job, e.executor) == (plan.job.name, executor.name) and e.handle]
    if isinstance(executor, Attached):
        return executor.status.handle
    return mine[-1] if mine else None


def _needed(handle: Handle | None, plan: Plan) -> Handle:
    if handle is None:
        raise InputError(f"Plan {plan.id} changes {plan.job.name}, which is not there.", "Launch it first.")
    return handle


def _sizes_difference(plan: Plan) -> str:
    """Between what the plan was made for and its target."""
    before = _text(plan.current) if plan.current else ""
    named = "".join(f"migrate {name}\n" for name in plan.migrate) + ("rebalance\n" if plan.rebalance else "")
    return text_difference(before, _text(plan.target)) + named


def _text(record: Record) -> str:
    return yaml.safe_dump(record.model_dump(mode="json", exclude_none=True), sort_keys=False)


def _first_step(executor: Any, handle: Handle, wait_s: float) -> float | None:
    """Looks until the first step after the change is seen; none where it was not in that time."""
    measured: list[float] = []
    costs = getattr(executor, "change_costs", None)
    if costs is None or not executor.capabilities.observe:
        return None

    def listener(_: Plan, seconds: float) -> None:
        measured.append(seconds)

    costs.listeners.append(listener)
    until = time.monotonic() + wait_s
    try:
        while not measured and (left_s := until - time.monotonic()) > 0:
            tell("waiting for its first step", wait_s - left_s, wait_s)
            with suppress(SizewrightError):  # what cannot be looked at now is looked at again
                if executor.wait(handle, min(_LOOK_S, left_s)):
                    break
                executor.observe(handle)
    finally:
        costs.listeners.remove(listener)
    return measured[0] if measured else None
