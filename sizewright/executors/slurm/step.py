"""The program that runs inside a Slurm job: as its script, and as each of its tasks.

    python -m sizewright.executors.slurm.step                  on the first node: a step for each group of replicas
    python -m sizewright.executors.slurm.step worker 0         in a task: the command of one replica

The plan is read from the run's folder, or else from SIZEWRIGHT_PLAN. Its groups are the script's components, in order.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sizewright.container import container_usage
from sizewright.errors import InputError
from sizewright.executors.plan_annotations import SETTINGS
from sizewright.executors.slurm.commands import SlurmCli
from sizewright.executors.slurm.sizes import components_of, whole_cores, with_sizes
from sizewright.progress import VARIABLE
from sizewright.spec import Group, Job, Plan, Resources, Role
from sizewright.spec._paths import private
from sizewright.spec.command import Command
from sizewright.training.command.rendezvous import ReplicaSlot, make_start

PLAN, FOLDER = "SIZEWRIGHT_PLAN", "SIZEWRIGHT_RUN"
ENV = "SIZEWRIGHT_ENV"
"""The values of plain settings as JSON, which no plan has. Possible secrets are in the submitter's environment only."""
PLAN_FILE = "plan.json"
REPLICA_FILE = "replica.json"
EXIT_FILE = "exit"
OUTPUT_FILE = "output"
_SLOTS, _TERMINATED_FILE = "SIZEWRIGHT_SEATS", "asked-to-end"
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_FIRST_PORT = 20_000
_PORTS = 12_000
_PORTS_PER_JOB = 1_000
_POLL_S = 0.25
# Keeps the output and the exit code of a replica's command. A replica that gets SIGTERM exits with 0, however it ends:
# otherwise srun or the script would take it for failed and end the others before their grace period is over.
_SHELL = """trap ': > "$SIZEWRIGHT_TASK/asked-to-end"' TERM
"$@" > "$SIZEWRIGHT_TASK/output" 2>&1
code=$?
echo $code > "$SIZEWRIGHT_TASK/exit"
[ -e "$SIZEWRIGHT_TASK/asked-to-end" ] && exit 0
exit $code
"""

_Step = tuple[Role, "subprocess.Popen[bytes]"]


def command_of(job: Job) -> Command:
    """Return the job's command, or for a built-in model that of its deployment."""
    return job.command or Command(run=job.deploy.command, rendezvous="hosts")


def as_allocated(plan: Plan, env: Mapping[str, str]) -> Plan:
    """Return the plan with as many replicas as Slurm allocated tasks, since a user may have edited the script."""
    groups = []
    for i, component in enumerate(components_of(plan)):
        replicas = int(env.get(_variable("SLURM_NTASKS", plan, i), component.group.replicas))
        groups.append(component.group.model_copy(update={"replicas": replicas}))
    return with_sizes(plan, groups)


def slots_of(
    plan: Plan, env: Mapping[str, str], addresses: Callable[[str], Mapping[str, str]]
) -> Iterator[tuple[Role, int, str, int]]:
    """Yield role, number, host and port of every replica, from the variables of a job's script.

    Tasks fill one node after the other (Slurm's distribution `block`).
    """
    port = _FIRST_PORT + int(env["SLURM_JOB_ID"]) * _PORTS_PER_JOB % _PORTS
    for i, (role, first, group) in enumerate(components_of(plan)):
        nodes = addresses(env[_variable("SLURM_JOB_NODELIST", plan, i)])
        counts = _tasks_per_node(env[_variable("SLURM_TASKS_PER_NODE", plan, i)])
        hosts = [host for host, count in zip(nodes.values(), counts, strict=True) for _ in range(count)]
        for number, host in enumerate(hosts[: group.replicas], start=first):
            yield role, number, host, port
            port += 1


def run_script() -> int:
    """Start all steps, and return the job's exit code.

    The job ends with its workers, or with the first step that fails.
    """
    plan = as_allocated(_read_plan(), os.environ)
    folder = Path(os.environ.setdefault(FOLDER, f"{os.getcwd()}/sizewright-{os.environ['SLURM_JOB_ID']}"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # only its user may read the logs of the command
    os.environ[PLAN] = plan.model_dump_json(exclude_defaults=True)
    os.environ[_SLOTS] = json.dumps(list(slots_of(plan, os.environ, SlurmCli().addresses)))
    steps: list[_Step] = [
        (role, subprocess.Popen(_srun_words(plan, i, role, first, group)))
        for i, (role, first, group) in enumerate(components_of(plan))
    ]
    try:
        while True:
            codes = [step.poll() for _, step in steps]
            if failed := [code for code in codes if code]:
                return failed[0] if failed[0] > 0 else 128 - failed[0]
            if all(step.poll() is not None for role, step in steps if role in ("worker", "chief")):
                return 0
            time.sleep(_POLL_S)
    finally:
        _end_steps(steps, folder, command_of(plan.job).grace_s)


def exec_replica(role: Role, first: int) -> None:
    """Replace this process by the command of its task's replica."""
    plan = Plan.model_validate_json(os.environ[PLAN])
    groups = {(each, start + i): group for each, start, group in components_of(plan) for i in range(group.replicas)}
    slots = []
    for slot_role, number, host, port in json.loads(os.environ[_SLOTS]):
        group = groups[slot_role, number]
        size = Resources(cpu=group.cpu, memory_bytes=group.memory_bytes, gpu=group.gpu)
        slots.append(ReplicaSlot(slot_role, number, size, host, port))
    own_number = first + int(os.environ["SLURM_PROCID"])
    own_slot = next(slot for slot in slots if (slot.role, slot.number) == (role, own_number))
    try:
        job = plan.job.with_settings(SETTINGS.validate_json(os.environ.get(ENV, "{}")))
        command = command_of(job).with_values(os.environ)
    except InputError as error:
        raise SystemExit(str(error)) from None
    start = make_start(plan.job.model_copy(update={"command": command}), slots, own_slot, plan.target)
    folder = Path(os.environ[FOLDER]).absolute() / own_slot.name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for stale in (EXIT_FILE, _TERMINATED_FILE):  # of an earlier start, if Slurm has requeued the job
        (folder / stale).unlink(missing_ok=True)
    _write_replica_file(folder / REPLICA_FILE, own_slot)
    os.chdir(command.folder)
    env = start.env | {VARIABLE: str(folder), "SIZEWRIGHT_TASK": str(folder)}
    os.execve("/bin/sh", ["sh", "-c", _SHELL, "sh", *start.line], os.environ | env)


def _read_plan() -> Plan:
    file = Path(os.environ.get(FOLDER, ".")) / PLAN_FILE
    if FOLDER in os.environ and file.exists():
        return Plan.model_validate_json(file.read_text(encoding="utf-8"))
    return Plan.model_validate_json(os.environ[PLAN])


def _srun_words(plan: Plan, component: int, role: Role, first: int, group: Group) -> list[str]:
    """Return the srun command of a component, with its sizes, since srun does not take all of them from the job."""
    words = ["srun", *([f"--het-group={component}"] if len(components_of(plan)) > 1 else [])]
    words += ["--kill-on-bad-exit=1", "--distribution=block", "--input=none", f"--ntasks={group.replicas}"]
    cores = os.environ.get(_variable("SLURM_CPUS_PER_TASK", plan, component), str(whole_cores(group)))
    words += [f"--cpus-per-task={cores}"]
    gpus = os.environ.get(_variable("SLURM_GPUS_PER_TASK", plan, component))
    words += [f"--gpus-per-task={gpus}"] if gpus else []
    return [*words, sys.executable, "-m", "sizewright.executors.slurm.step", role, str(first)]


def _end_steps(steps: Sequence[_Step], folder: Path, grace_s: float) -> None:
    """Send SIGTERM to the replicas that still run, unless they had it, and end the steps after the grace period.

    srun ends its tasks when it gets SIGTERM itself.
    """
    if any(step.poll() is None for _, step in steps):
        if not any(folder.glob(f"*/{_TERMINATED_FILE}")):
            SlurmCli().terminate(os.environ["SLURM_JOB_ID"])
        deadline_s = time.monotonic() + grace_s
        while time.monotonic() < deadline_s and any(step.poll() is None for _, step in steps):
            time.sleep(_POLL_S)
    for _, step in steps:
        step.terminate()
    for _, step in steps:
        step.wait()


def _write_replica_file(path: Path, slot: ReplicaSlot) -> None:
    """Write where the replica runs, and what limits it to its cores."""
    cores = whole_cores(Group(replicas=1, cpu=slot.size.cpu, memory_bytes=0))
    if (container_usage().cpu_limit or cores + 1) <= cores:
        limited_by = "cgroup"
    else:
        limited_by = "affinity" if len(os.sched_getaffinity(0)) <= cores else "none"
    with open(path, "w", encoding="utf-8", opener=private) as file:
        json.dump({"host": slot.host, "port": slot.port, "limited_by": limited_by}, file)


def _variable(name: str, plan: Plan, component: int) -> str:
    """Return Slurm's name of a variable, which has the component's number in a heterogeneous job."""
    return f"{name}_HET_GROUP_{component}" if len(components_of(plan)) > 1 else name


def _tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks of each node: 2, 2, 2, 1 for `2(x3),1`."""
    matches = [_TASKS.fullmatch(part) for part in text.split(",")]
    return [int(match[1]) for match in matches if match for _ in range(int(match[2] or 1))]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        raise SystemExit(run_script())
    exec_replica(sys.argv[1], int(sys.argv[2]))  # type: ignore[arg-type]
