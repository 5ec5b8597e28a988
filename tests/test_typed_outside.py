"""Types as a user's own checker sees them, strict and without pydantic's plugin: nothing public is `Any`."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.public_names import MODULES, fields, methods, public

ROOT = Path(__file__).resolve().parents[1]
# Theirs: arrays of any shape or kind to numpy, rows of a data frame, and what a process writes, as it depends on how it
# is started.
OF_OTHERS = re.compile(
    r"tuple\[Any, \.\.\.\]|numpy\.(integer|dtype)\[Any\]|Series\[Any\]|subprocess\.Popen\[Any\]|\*\*options: Any"
)
# matplotlib sets them for each of its subclasses
MADE_BY_OTHERS = {"sizewright.plots.Picture.set"}

PROGRAM = """
import pandas as pd

import sizewright as sw
from sizewright.executors import get_executor
from sizewright.runtime import Tuning
from sizewright.models import get_model
from sizewright.profiler import TrialPlanner
from sizewright.spec import Bounds, Command, HostKind, Plan, RoleBounds

bounds = Bounds(worker=RoleBounds(replicas=(1, 4), memory_bytes=(2**30, 2**32)))
job = sw.Job(name="ctr", bounds=bounds, objective="deadline", deadline=3600.0)
cluster = sw.Cluster(hosts=(HostKind(kind="host", cpu=4.0, memory_bytes=2**34),))
answer = sw.recommend(job, trials=[sw.Trial(workers=1, ps=1, throughput=10.0)], cluster=cluster)
if answer.target is not None and answer.predicted is not None:
    rate: float = answer.predicted.throughput.value
    plan = Plan(id="p-1", kind="launch", job=job, target=answer.target, reason="first")
    local = get_executor("local", samples=1000)
    seconds: float = local.change_cost(plan).seconds
    outcome: sw.Outcome = sw.run(plan, tune=Tuning(dry_run=True), folder="snapshots")

candidates = pd.DataFrame({"workers": [1, 2], "ps": [1, 1], "worker_cpu": [0.5, 1.0]})
planner = TrialPlanner(candidates, objective="cost", max_trials=4)
while (asked := planner.ask()) is not None:
    planner.tell(asked, throughput=100.0 * asked["workers"], worker_cpu_used=asked["worker_cpu"])
low, high = get_model("default").fit(planner.trials).predict_interval(candidates)

sw.recomend(job)
sw.recommend(job, clustre=cluster)
sw.Job(nam="ctr")
Plan(id="p-2", kind="lunch", job=job, target=job, reason="")
Command(run=("python", "train.py"), rendezvous="nowhere")
planner.tell("first", 1.0)
"""
FAULTS = (
    "has no attribute \"recomend\"", 'argument "clustre" for "recommend"', 'argument "nam" for "Job"',
    'expected "Literal[\'launch\', \'adjust\', \'keep\']"', 'expected "Allocation"',
    'expected "Literal[\'torchrun\', \'tf_config\', \'hosts\']"', 'Argument 1 to "tell" of "TrialPlanner"',
)  # fmt: skip


def uses() -> Iterator[str]:
    """Yield a line for each public name, and for each method and field of a class."""
    yield from (f"import {name}" for name in MODULES)
    visited = set()
    for name, thing in public():
        yield f"reveal_type({name})"
        if inspect.isclass(thing) and id(thing) not in visited and not issubclass(thing, BaseException):
            visited.add(id(thing))
            yield f"def of_{len(visited)}(it: {name}) -> None:"
            typed = issubclass(thing, dict)
            expressions = (f"it['{each}']" if typed else f"it.{each}" for each, *_ in fields(thing))
            yield from (f"    reveal_type({each})" for each in expressions)
            yield from (
                f"    reveal_type(it.{each})" for each, _ in methods(thing) if f"{name}.{each}" not in MADE_BY_OTHERS
            )
            yield "    return"


def checked(folder: Path, **texts: str) -> list[str]:
    """Return the lines that mypy prints about programs outside the package."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    completed = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary",
         f"--cache-dir={folder / 'cache'}", *(f"{name}.py" for name in texts)],
        cwd=folder, env=os.environ | {"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not completed.stderr, completed.stderr
    return completed.stdout.splitlines()


@pytest.mark.long
def test_types_hold_outside_of_the_package(tmp_path: Path) -> None:
    """Both programs are checked in one run, because most of the time goes into reading the package."""
    lines = list(uses())
    output = checked(tmp_path, uses="\n".join(lines) + "\n", program=PROGRAM)
    revealed = [line for line in output if "Revealed type is" in line]
    assert len(revealed) == sum("reveal_type(" in line for line in lines)
    unknown = [line for line in revealed if "Any" in OF_OTHERS.sub("", line)]
    assert not unknown, "\n".join(f"{lines[int(line.split(':')[1]) - 1]}  {line}" for line in unknown)

    errors = [line for line in output if ": error: " in line and line.startswith(("uses.py", "program.py"))]
    assert not [line for line in errors if line.startswith("uses.py")]
    first = PROGRAM[: PROGRAM.index("sw.recomend")].count("\n") + 1
    assert [line for line in errors if int(line.split(":")[1]) < first] == []
    text = "\n".join(errors)
    assert [fault for fault in FAULTS if fault not in text] == []
