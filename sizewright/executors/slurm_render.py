"""Plans as scripts for `sbatch`, whole or as sizes of a script of the user's."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from sizewright.errors import InputError
from sizewright.executors.plan_notes import SETTINGS, check_no_secrets
from sizewright.executors.render_only import RenderOnly
from sizewright.executors.repeated_sizes import Change, repeated_in_script
from sizewright.executors.slots import BATCH_SIZE_ENV, Slot
from sizewright.executors.slurm_script import SlurmScript
from sizewright.executors.slurm_sizes import groups_of, regrouped, rounded, whole_cores
from sizewright.executors.slurm_step import ENV, PLAN
from sizewright.spec import ROLES, Allocation, Deploy, Group, Job, Plan
from sizewright.spec._base import checked, checked_json
from sizewright.spec._faults import explain_first
from sizewright.spec._text_files import read_text
from sizewright.spec.units import format_count
from sizewright.spec.withheld import split, with_values

COMMENT = "sizewright:"
_MARK = f"export {PLAN}="
_ENV_MARK = f'[ -n "${{{ENV}:-}}" ] || export {ENV}='
_STEP = "sizewright.executors.slurm_step"


class SlurmRenderer(RenderOnly):
    """With `base`, a script, only its sizes are changed; its components are the groups of workers, PS, chief and
    evaluator, in this order."""

    name = "slurm"

    def __init__(self, *, base: str | Path | None = None) -> None:
        super().__init__()
        self._base = base

    def render(self, plan: Plan) -> str:
        """The script. Raises InputError for a plan that keeps the job, and a base that is none or has other
        components."""
        return self._rendered(plan)[0].text

    def remarks(self, plan: Plan) -> list[str]:
        """Sentences on what a person has to look after in the script of a plan."""
        script, changes = self._rendered(plan)
        if not self._base:
            own = plan.job.command is not None or plan.job.deploy.command != Deploy().command
            usual = shlex.join(plan.job.deploy.command)
            return (
                []
                if own
                else [
                    f"The job file does not say deploy.command: the script starts a placeholder ({usual}). Set it "
                    "there, or start from a script of yours as the base."
                ]
            )
        kept = [
            f"{self._base}: {role} keeps {gpu.count} GPUs a task: the plan has none."
            for i, (role, _, group) in enumerate(groups_of(plan))
            if (gpu := script.read(i).gpu) and not group.gpu
        ]
        return [*script.remarks(), *kept, *repeated_in_script(str(self._base), script.body, changes)]

    def adopt(self, path: str | Path) -> Plan:
        """The plan of a script's file, which becomes the base where it holds more than that plan.

        Raises InputError for what is no such script.
        """
        text = _read(path)
        plan = self.parse(text)
        if not self._base and self.render(plan) != text:
            self._base = path
        return plan

    def _rendered(self, plan: Plan) -> tuple[SlurmScript, list[Change]]:
        check_no_secrets(plan)
        if plan.kind == "keep":
            raise InputError(f"Plan {plan.id} keeps the job as it is.", "There is nothing to render.")
        groups = groups_of(plan)
        script = self._read_base() if self._base else SlurmScript("\n".join(_minimal(plan, [g for *_, g in groups])))
        if script.components != len(groups):
            roles = ", ".join(role for role, _, _ in groups)
            said = "".join(f" {remark}" for remark in script.remarks())
            raise InputError(
                f"{self._base} has {script.components} component{'s' * (script.components > 1)}, and plan {plan.id} "
                f"has {len(groups)} group{'s' * (len(groups) > 1)} of replicas: {roles}.{said}",
                "Write a component for each in this order, with #SBATCH hetjob between two.",
            )
        changes = []
        for component, (role, _, group) in enumerate(groups):
            before = script.sizes(component)
            script.write(component, group)
            after = script.sizes(component)
            changes.append(Change(role, Slot(str(self._base), {}, {}), before, after))
        if script.batch_size is not None:
            script.set_batch_size(plan.target.batch_size)
        elif plan.target.batch_size != plan.job.training.batch_size and _STEP not in script.text:
            raise InputError(
                f"The plan's batch size is {plan.target.batch_size}, and {self._base} is told none.",
                f"Write export {BATCH_SIZE_ENV}={plan.target.batch_size} into it, and read it where it trains.",
            )
        return script, changes

    def as_rendered(self, plan: Plan) -> Plan:
        """The plan as its script really asks for it: in whole cores, with GPUs and the QOS that only a base has."""
        script = SlurmScript(self.render(plan.model_copy(update={"kind": "launch"})))
        target = regrouped(plan, [script.read(component) for component in range(script.components)]).target
        qos = script.value(0, "--qos")
        deploy = plan.job.deploy.model_copy(update={"priority_class": qos.strip("\"'")} if qos else {})
        return plan.model_copy(update={"target": target, "job": plan.job.model_copy(update={"deploy": deploy})})

    def parse(self, text: str) -> Plan:
        """The plan of a script that was rendered from it; where its sizes were changed since, with these. Of any other
        script, the plan that submits it at the sizes that it has: workers, then PS, chief and evaluator.

        Raises InputError for what is no such script, and sizes that are none.
        """
        script = SlurmScript(text)
        plan = _told_plan(text) if _MARK in text or _STEP in text else _plan_of(script)
        groups = groups_of(plan)
        if script.components != len(groups):
            raise InputError(
                f"The script has {format_count(script.components, 'component')}, and its plan "
                f"{format_count(len(groups), 'group')} of replicas.",
                "Leave its #SBATCH hetjob lines as they were.",
            )
        read = [script.read(component) for component in range(len(groups))]
        changed = [now if now != rounded(group) else group for now, (_, _, group) in zip(read, groups, strict=True)]
        return regrouped(plan, changed)

    def _read_base(self) -> SlurmScript:
        return SlurmScript(_read(self._base or ""), str(self._base))


def _read(path: str | Path) -> str:
    try:
        return read_text(path, "script")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}.", "Pass the path of a script.") from None


def _plan_of(script: SlurmScript) -> Plan:
    if script.components > len(ROLES):
        raise InputError(
            f"The script has {format_count(script.components, 'component')}, and there are {len(ROLES)} roles.",
            "Pass a plan for it.",
        )
    name = re.sub("[^a-z0-9]+", "-", (script.value(0, "--job-name") or "job").lower()).strip("-")[:52].strip("-")
    job = Job(name=name or "job")
    job = job.with_batch_size(script.batch_size or job.training.batch_size)
    groups = {role: (script.read(i),) for i, role in enumerate(ROLES[: script.components])}
    plan_id = f"{job.name}-{hashlib.sha256(script.text.encode()).hexdigest()[:8]}"
    target = checked(Allocation, groups | {"batch_size": job.training.batch_size})
    return Plan(id=plan_id, kind="launch", job=job, target=target, reason="Its script has these sizes.")


def _told_plan(text: str) -> Plan:
    told, env = _marked(text, _MARK), _marked(text, _ENV_MARK)
    if len(told) != 1 or len(env) > 1:
        raise InputError(
            "The script carries no plan of Sizewright's.", "Pass one that `sizewright recommend --out` wrote."
        )
    try:
        plan = checked_json(Plan, "".join(shlex.split(told[0])))
        values = SETTINGS.validate_json("".join(shlex.split(env[0]))) if env else {}
        return plan.model_copy(update={"job": plan.job.with_settings(values)})
    except ValidationError as error:
        said = explain_first(error)
    except ValueError as error:
        said = str(error)
    raise InputError(f"The plan in the script cannot be read: {said}.", "Render it anew.")


def _marked(text: str, mark: str) -> list[str]:
    return [line.removeprefix(mark) for line in text.split("\n") if line.startswith(mark)]


def _minimal(plan: Plan, groups: Sequence[Group]) -> Iterator[str]:
    yield "#!/bin/bash"
    for line in (f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}", f"Why: {plan.reason}"):
        yield "# " + "".join(character if character.isprintable() else " " for character in line)
    if any(whole_cores(group) != group.cpu for group in groups):
        yield "# Slurm gives whole cores: those of the plan are rounded up."
    if any(not group.memory_bytes for group in groups):
        yield "# Where no memory is asked for, the cluster's usual amount is given."
    yield f"#SBATCH --job-name={plan.job.name}"
    yield f"#SBATCH --comment={COMMENT}{plan.id}"
    if plan.job.deploy.priority_class:
        yield f"#SBATCH --qos={plan.job.deploy.priority_class}"
    for _ in groups[1:]:
        yield "#SBATCH hetjob"
    yield ""
    yield "set -euo pipefail"
    yield f"{_MARK}{shlex.quote(plan.model_dump_json(exclude_defaults=True))}"
    if plan.job.command and (plain := split(plan.job.command.env)[0]):
        yield f"{_ENV_MARK}{shlex.quote(json.dumps(with_values(plain, os.environ)))}"
    yield f'exec "${{SIZEWRIGHT_PYTHON:-python}}" -m {_STEP}'
    yield ""
