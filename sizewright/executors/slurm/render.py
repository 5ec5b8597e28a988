"""Plans as scripts for `sbatch`: complete ones, or a script of the user's with changed sizes."""

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
from sizewright.executors._base import RenderOnlyExecutor
from sizewright.executors.kubernetes.container_spec import BATCH_SIZE_ENV, ContainerSpec
from sizewright.executors.kubernetes.repeated_sizes import SizeChange, repeated_in_script
from sizewright.executors.plan_annotations import SETTINGS, check_no_secrets
from sizewright.executors.slurm.script import SlurmScript
from sizewright.executors.slurm.sizes import Component, components_of, rounded, whole_cores, with_sizes
from sizewright.executors.slurm.step import ENV, PLAN
from sizewright.formatting import format_count
from sizewright.spec import ROLES, Allocation, Deploy, Job, Plan
from sizewright.spec._base import validate, validate_json
from sizewright.spec._faults import explain_first
from sizewright.spec._text_files import read_text
from sizewright.spec.withheld import split, with_values

COMMENT = "sizewright:"
_PLAN_LINE = f"export {PLAN}="
_ENV_LINE = f'[ -n "${{{ENV}:-}}" ] || export {ENV}='
_STEP_MODULE = "sizewright.executors.slurm.step"


class SlurmRenderer(RenderOnlyExecutor):
    """Render plans as scripts for `sbatch`.

    The components of a script are the groups of workers, PS, chief and evaluator, in this order. With `base`, a script,
    only its sizes are changed.
    """

    name = "slurm"

    def __init__(self, *, base: str | Path | None = None) -> None:
        super().__init__()
        self._base = base

    def render(self, plan: Plan) -> str:
        """Return the script.

        Raises InputError if the plan keeps the job, or the base is not a script or has other components.
        """
        return self._rendered(plan)[0].text

    def remarks(self, plan: Plan) -> list[str]:
        """Return sentences on what a person has to check in the script of a plan."""
        script, changes = self._rendered(plan)
        if not self._base:
            if plan.job.command is not None or plan.job.deploy.command != Deploy().command:
                return []
            return [
                "The job file does not set deploy.command: the script starts a placeholder "
                f"({shlex.join(plan.job.deploy.command)}). Set it there, or start from your own script (--base)."
            ]
        remarks = script.remarks()
        for i, component in enumerate(components_of(plan)):
            gpu = script.read(i).gpu
            if gpu and not component.group.gpu:
                remarks.append(f"{self._base}: {component.role} keeps {gpu.count} GPUs per task: the plan has no GPUs.")
        return [*remarks, *repeated_in_script(str(self._base), script.body, changes)]

    def adopt(self, path: str | Path) -> Plan:
        """Return the plan of a script file. The file becomes the base if it has more than that plan.

        Raises InputError if the file is not such a script.
        """
        text = _read_script(path)
        plan = self.parse(text)
        if not self._base and self.render(plan) != text:
            self._base = path
        return plan

    def _rendered(self, plan: Plan) -> tuple[SlurmScript, list[SizeChange]]:
        """Return the script of a plan, and how its sizes changed."""
        check_no_secrets(plan)
        if plan.kind == "keep":
            raise InputError(f"Plan {plan.id} keeps the job as it is.", "There is nothing to render.")
        components = components_of(plan)
        if self._base:
            script = SlurmScript(_read_script(self._base), str(self._base))
        else:
            script = SlurmScript("\n".join(_minimal_script(plan, components)))
        if script.components != len(components):
            roles = ", ".join(component.role for component in components)
            remarks = "".join(f" {remark}" for remark in script.remarks())
            raise InputError(
                f"{self._base} has {script.components} component{'s' * (script.components > 1)}, but plan {plan.id} "
                f"has {len(components)} group{'s' * (len(components) > 1)} of replicas: {roles}.{remarks}",
                "Write one component per group in this order, with #SBATCH hetjob between two of them.",
            )
        changes = []
        for i, component in enumerate(components):
            before = script.sizes(i)
            script.write(i, component.group)
            spec = ContainerSpec(str(self._base), {}, {})
            changes.append(SizeChange(component.role, spec, before, script.sizes(i)))
        workers = plan.target.replicas("worker")
        if script.batch_size is not None:
            script.set_batch_size(plan.target.batch_size)
        elif plan.target.batch_size != plan.job.batch_size_for(workers) and _STEP_MODULE not in script.text:
            raise InputError(
                f"The plan's batch size is {plan.target.batch_size}, but {self._base} does not set one.",
                f"Add export {BATCH_SIZE_ENV}={plan.target.batch_size} to it, and read it in the training code.",
            )
        loaders = plan.job.loaders_at(plan.target)
        if loaders != plan.job.training.loaders and _STEP_MODULE not in script.text:
            raise InputError(
                f"The plan's number of loaders is {loaders}, but {self._base} does not pass one on.",
                f"Set training.loaders to {loaders} and read it there, or render the script without a base.",
            )
        return script, changes

    def as_rendered(self, plan: Plan) -> Plan:
        """Return the plan as its script asks for it: in whole cores, with the GPUs and the QOS of a base."""
        script = SlurmScript(self.render(plan.model_copy(update={"kind": "launch"})))
        target = with_sizes(plan, [script.read(component) for component in range(script.components)]).target
        qos = script.value(0, "--qos")
        deploy = plan.job.deploy.model_copy(update={"priority_class": qos.strip("\"'")} if qos else {})
        return plan.model_copy(update={"target": target, "job": plan.job.model_copy(update={"deploy": deploy})})

    def parse(self, text: str) -> Plan:
        """Return the plan from which a script was rendered, with the sizes that the script has now.

        For any other script, return the plan that submits it at its sizes: workers, then PS, chief and evaluator.
        Raises InputError if the text is not such a script, or a size is invalid.
        """
        script = SlurmScript(text)
        plan = _plan_in(text) if _PLAN_LINE in text or _STEP_MODULE in text else _plan_of(script)
        components = components_of(plan)
        if script.components != len(components):
            raise InputError(
                f"The script has {format_count(script.components, 'component')}, but its plan has "
                f"{format_count(len(components), 'group')} of replicas.",
                "Restore its #SBATCH hetjob lines.",
            )
        groups = []
        for i, component in enumerate(components):
            group = script.read(i)
            groups.append(component.group if group == rounded(component.group) else group)
        return with_sizes(plan, groups)


def _read_script(path: str | Path) -> str:
    try:
        return read_text(path, "script")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}.", "Pass the path of a script.") from None


def _plan_of(script: SlurmScript) -> Plan:
    """Return a plan that submits a script which carries no plan."""
    if script.components > len(ROLES):
        raise InputError(
            f"The script has {format_count(script.components, 'component')}, but there are only {len(ROLES)} roles.",
            "Pass a plan for it.",
        )
    name = re.sub("[^a-z0-9]+", "-", (script.value(0, "--job-name") or "job").lower()).strip("-")[:52].strip("-")
    job = Job(name=name or "job")
    job = job.with_batch_size(script.batch_size or job.training.batch_size)
    groups = {role: (script.read(i),) for i, role in enumerate(ROLES[: script.components])}
    plan_id = f"{job.name}-{hashlib.sha256(script.text.encode()).hexdigest()[:8]}"
    target = validate(Allocation, groups | {"batch_size": job.training.batch_size})
    return Plan(id=plan_id, kind="launch", job=job, target=target, reason="Its script has these sizes.")


def _plan_in(text: str) -> Plan:
    """Return the plan that a rendered script carries. Raises InputError if it carries none or it cannot be read."""
    plan_lines = [line.removeprefix(_PLAN_LINE) for line in text.split("\n") if line.startswith(_PLAN_LINE)]
    env_lines = [line.removeprefix(_ENV_LINE) for line in text.split("\n") if line.startswith(_ENV_LINE)]
    if len(plan_lines) != 1 or len(env_lines) > 1:
        raise InputError(
            "The script carries no plan of Sizewright.", "Pass one that `sizewright recommend --out` wrote."
        )
    try:
        plan = validate_json(Plan, "".join(shlex.split(plan_lines[0])))
        settings = SETTINGS.validate_json("".join(shlex.split(env_lines[0]))) if env_lines else {}
        return plan.model_copy(update={"job": plan.job.with_settings(settings)})
    except ValidationError as error:
        problem = explain_first(error)
    except ValueError as error:
        problem = str(error)
    raise InputError(f"The plan in the script cannot be read: {problem}.", "Render it again.")


def _minimal_script(plan: Plan, components: Sequence[Component]) -> Iterator[str]:
    """Yield the lines of a complete script, in which the sizes are not yet written."""
    groups = [component.group for component in components]
    yield "#!/bin/bash"
    for line in (f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}", f"Why: {plan.reason}"):
        yield "# " + "".join(character if character.isprintable() else " " for character in line)
    if any(whole_cores(group) != group.cpu for group in groups):
        yield "# Slurm allocates whole cores: those of the plan are rounded up."
    if any(not group.memory_bytes for group in groups):
        yield "# A component without --mem-per-cpu gets the cluster's default memory."
    yield f"#SBATCH --job-name={plan.job.name}"
    yield f"#SBATCH --comment={COMMENT}{plan.id}"
    if plan.job.deploy.priority_class:
        yield f"#SBATCH --qos={plan.job.deploy.priority_class}"
    for _ in groups[1:]:
        yield "#SBATCH hetjob"
    yield ""
    yield "set -euo pipefail"
    yield f"{_PLAN_LINE}{shlex.quote(plan.model_dump_json(exclude_defaults=True))}"
    if plan.job.command and (plain := split(plan.job.command.env)[0]):
        yield f"{_ENV_LINE}{shlex.quote(json.dumps(with_values(plain, os.environ)))}"
    yield f'exec "${{SIZEWRIGHT_PYTHON:-python}}" -m {_STEP_MODULE}'
    yield ""
