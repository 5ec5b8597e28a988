"""Inside of a Slurm job: what its script starts, and what each of its tasks becomes.

    python -m sizewright.executors.slurm_step                  on the first node: a step for each group of replicas
    python -m sizewright.executors.slurm_step worker 0         in a task: the command of one replica

The plan is in the run's folder, else in SIZEWRIGHT_PLAN; its groups are the script's components, in order.
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

from sizewright.container import own_usage
from sizewright.errors import InputError
from sizewright.executors.plan_notes import SETTINGS
from sizewright.executors.slurm_cli import SlurmCli
from sizewright.executors.slurm_sizes import groups_of, regrouped, whole_cores
from sizewright.progress import VARIABLE
from sizewright.spec import Group, Job, Plan, Resources, Role
from sizewright.spec.command import Command
from sizewright.training.command.rendezvous import Seat, make_start

PLAN, FOLDER = "SIZEWRIGHT_PLAN", "SIZEWRIGHT_RUN"
ENV = "SIZEWRIGHT_ENV"
"""Values of plain settings as JSON: no plan has them. What may be a secret is in the submitter's environment."""
PLAN_FILE, REPLICA_FILE, EXIT_FILE, OUTPUT_FILE = "plan.json", "replica.json", "exit", "output"
_SEATS, _ASKED_FILE = "SIZEWRIGHT_SEATS", "asked-to-end"
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_FIRST_PORT, _PORTS, _OF_A_JOB = 20_000, 12_000, 1_000
_LOOK_S = 0.25
# Around a replica's command: its output and exit code are kept, and one that is asked to end (SIGTERM) may take its
# time without being taken for failed, at which Slurm or its own script would end the others.
_SHELL = """trap ': > "$SIZEWRIGHT_TASK/asked-to-end"' TERM
"$@" > "$SIZEWRIGHT_TASK/output" 2>&1
code=$?
echo $code > "$SIZEWRIGHT_TASK/exit"
[ -e "$SIZEWRIGHT_TASK/asked-to-end" ] && exit 0
exit $code
"""


def own_command(job: Job) -> Command:
    """The job's command; that of its deployment where it is of a built-in family."""
    return job.command or Command(run=job.deploy.command, rendezvous="hosts")


def as_given(plan: Plan, env: Mapping[str, str]) -> Plan:
    """The plan with as many replicas as Slurm gave tasks, which a script changed by hand may have asked for."""
    given = [
        group.model_copy(update={"replicas": int(env.get(_named("SLURM_NTASKS", plan, component), group.replicas))})
        for component, (_, _, group) in enumerate(groups_of(plan))
    ]
    return regrouped(plan, given)


def seats_of(
    plan: Plan, env: Mapping[str, str], addresses: Callable[[str], Mapping[str, str]]
) -> Iterator[tuple[Role, int, str, int]]:
    """Role, number, host and port of every replica, from the variables of a job's script; tasks fill one node after
    the other (Slurm's distribution `block`)."""
    port = _FIRST_PORT + int(env["SLURM_JOB_ID"]) * _OF_A_JOB % _PORTS
    for component, (role, first, group) in enumerate(groups_of(plan)):
        hosts = addresses(env[_named("SLURM_JOB_NODELIST", plan, component)])
        each = _counts(env[_named("SLURM_TASKS_PER_NODE", plan, component)])
        on = [host for host, count in zip(hosts.values(), each, strict=True) for _ in range(count)]
        for i, host in enumerate(on[: group.replicas]):
            yield role, first + i, host, port
            port += 1


def run() -> int:
    """Start all steps; the job ends with its workers, or with the first step that fails."""
    plan = as_given(_plan(), os.environ)
    folder = Path(os.environ.setdefault(FOLDER, f"{os.getcwd()}/sizewright-{os.environ['SLURM_JOB_ID']}"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # logs of the command are for its user alone
    os.environ[PLAN] = plan.model_dump_json(exclude_defaults=True)
    os.environ[_SEATS] = json.dumps(list(seats_of(plan, os.environ, SlurmCli().addresses)))
    steps = [
        (role, subprocess.Popen(_srun(plan, component, role, first, group)))
        for component, (role, first, group) in enumerate(groups_of(plan))
    ]
    try:
        return _until_ended(steps)
    finally:
        _end(steps, folder, own_command(plan.job).grace_s)


def become(role: Role, first: int) -> None:
    """The command of this task's replica, which is told of the others."""
    plan = Plan.model_validate_json(os.environ[PLAN])
    sizes = {(r, first + i): group for r, first, group in groups_of(plan) for i in range(group.replicas)}
    seats = [Seat(r, n, _size(sizes[r, n]), host, port) for r, n, host, port in _told_seats()]
    me = next(s for s in seats if (s.role, s.number) == (role, first + int(os.environ["SLURM_PROCID"])))
    try:
        job = plan.job.with_settings(SETTINGS.validate_json(os.environ.get(ENV, "{}")))
        command = own_command(job).with_values(os.environ)
    except InputError as error:
        raise SystemExit(str(error)) from None
    start = make_start(plan.job.model_copy(update={"command": command}), seats, me, plan.target.batch_size)
    told = Path(os.environ[FOLDER]).absolute() / me.name
    told.mkdir(mode=0o700, parents=True, exist_ok=True)
    for stale in (EXIT_FILE, _ASKED_FILE):  # of a start that Slurm has put into its queue again
        (told / stale).unlink(missing_ok=True)
    _tell(told / REPLICA_FILE, me)
    os.chdir(command.folder)
    env = start.env | {VARIABLE: str(told), "SIZEWRIGHT_TASK": str(told)}
    os.execve("/bin/sh", ["sh", "-c", _SHELL, "sh", *start.words], os.environ | env)


def _plan() -> Plan:
    kept = Path(os.environ.get(FOLDER, ".")) / PLAN_FILE
    if FOLDER in os.environ and kept.exists():
        return Plan.model_validate_json(kept.read_text(encoding="utf-8"))
    return Plan.model_validate_json(os.environ[PLAN])


def _srun(plan: Plan, component: int, role: Role, first: int, group: Group) -> list[str]:
    """srun does not take all sizes over from the job."""
    words = ["srun", *([f"--het-group={component}"] if len(groups_of(plan)) > 1 else [])]
    words += ["--kill-on-bad-exit=1", "--distribution=block", "--input=none", f"--ntasks={group.replicas}"]
    cores = os.environ.get(_named("SLURM_CPUS_PER_TASK", plan, component), str(whole_cores(group)))
    words += [f"--cpus-per-task={cores}"]
    gpus = os.environ.get(_named("SLURM_GPUS_PER_TASK", plan, component))
    words += [f"--gpus-per-task={gpus}"] if gpus else []
    return [*words, sys.executable, "-m", "sizewright.executors.slurm_step", role, str(first)]


def _until_ended(steps: Sequence[tuple[Role, subprocess.Popen[bytes]]]) -> int:
    while True:
        codes = [step.poll() for _, step in steps]
        if failed := [code for code in codes if code]:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if all(step.poll() is not None for role, step in steps if role in ("worker", "chief")):
            return 0
        time.sleep(_LOOK_S)


def _end(steps: Sequence[tuple[Role, subprocess.Popen[bytes]]], folder: Path, grace_s: float) -> None:
    """Those that still run are asked to, where they were not yet, and given `grace_s`; then they are made to: that is
    what srun does at a SIGTERM of its own."""
    if any(step.poll() is None for _, step in steps):
        if not any(folder.glob(f"*/{_ASKED_FILE}")):
            SlurmCli().terminate(os.environ["SLURM_JOB_ID"])
        until_s = time.monotonic() + grace_s
        while time.monotonic() < until_s and any(step.poll() is None for _, step in steps):
            time.sleep(_LOOK_S)
    for _, step in steps:
        step.terminate()
    for _, step in steps:
        step.wait()


def _tell(path: Path, me: Seat) -> None:
    """For whoever looks: that it runs, where, and what holds it to its cores."""
    cores = whole_cores(Group(replicas=1, cpu=me.size.cpu, memory_bytes=0))
    held = "affinity" if len(os.sched_getaffinity(0)) <= cores else "none"
    by = "cgroup" if (own_usage().cpu_limit or cores + 1) <= cores else held
    path.write_text(json.dumps({"host": me.host, "port": me.port, "limited_by": by}), encoding="utf-8")


def _told_seats() -> list[tuple[Role, int, str, int]]:
    return [(role, number, host, port) for role, number, host, port in json.loads(os.environ[_SEATS])]


def _size(group: Group) -> Resources:
    return Resources(cpu=group.cpu, memory_bytes=group.memory_bytes, gpu=group.gpu)


def _named(variable: str, plan: Plan, component: int) -> str:
    """As Slurm calls it: for each component where there are several."""
    return f"{variable}_HET_GROUP_{component}" if len(groups_of(plan)) > 1 else variable


def _counts(tasks: str) -> list[int]:
    """`2(x3),1` → 2, 2, 2, 1: tasks of each node."""
    found = [_TASKS.fullmatch(part) for part in tasks.split(",")]
    return [int(m[1]) for m in found if m for _ in range(int(m[2] or 1))]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        raise SystemExit(run())
    become(sys.argv[1], int(sys.argv[2]))  # type: ignore[arg-type]
