"""The time estimator for SkyPilot, alone and in SkyPilot's optimizer."""

from __future__ import annotations

import os
import subprocess
import venv
from importlib.metadata import requires
from pathlib import Path
from typing import NamedTuple

import pytest

import sizewright as sw
from sizewright.errors import InputError, JobError, NoTrialsError

ROOT = Path(__file__).parents[1]
SKYPILOT = "skypilot==0.14.1"


class Machine(NamedTuple):
    """A stand-in for `sky.Resources`."""

    cpus: str | None = "4"
    memory: str | None = "16"
    accelerators: dict[str, float] | None = None

    def __str__(self) -> str:
        return "AWS(m6i)"


def test_seconds_are_those_of_the_fastest_allocation_that_fits(example: Path, store: str) -> None:
    estimate = sw.skypilot.time_estimator(example, store=store)
    cluster = {"name": "AWS(m6i)", "hosts": [{"kind": "m6i", "cpu": 2, "memory": "8Gi"}]}
    fastest = sw.recommend(example, store=store, cluster=cluster, objective="time")
    assert fastest.predicted is not None
    assert fastest.predicted.completion_time_s is not None
    assert estimate(Machine("2", "8")) == fastest.predicted.completion_time_s.value
    assert estimate(Machine("2", "8")) > estimate(Machine("4", "16"))


def test_forms_of_cpus_and_memory_are_those_of_skypilot(example: Path, store: str) -> None:
    estimate = sw.skypilot.time_estimator(example, store=store)
    assert len({estimate(Machine(*each)) for each in (("2", "8"), ("2.0", "8.0"), ("2+", "8+"), ("2", "4x"))}) == 1


def test_all_nodes_of_the_task_count(example: Path, store: str) -> None:
    one, two = (sw.skypilot.time_estimator(example, store=store, num_nodes=n)(Machine("1", "8")) for n in (1, 2))
    assert two < one
    with pytest.raises(InputError, match="num_nodes must be at least 1, got 0"):
        sw.skypilot.time_estimator(example, store=store, num_nodes=0)


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Machine(cpus=None), r"The number of vCPUs of AWS\(m6i\) is unknown\. Give the candidate an infra"),
        (Machine(memory=None), r"The memory of AWS\(m6i\) is unknown\. Give the candidate"),
        (Machine(cpus="0"), r"The number of vCPUs of AWS\(m6i\) must be above 0, got 0"),
        (Machine("1", "0.1"), r"^Infeasible: no host of AWS\(m6i\) has more than .* Lower the minimum sizes"),
    ],
)
def test_machines_that_cannot_be_estimated_are_errors_with_remedies(
    example: Path, store: str, machine: Machine, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        sw.skypilot.time_estimator(example, store=store)(machine)


def test_missing_data_is_an_error_with_its_remedy(example: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Not enough data: there are no trials of this job\. Run: sizewright profile"):
        sw.skypilot.time_estimator(example, trials=[])(Machine())
    with pytest.raises(NoTrialsError):
        sw.skypilot.time_estimator(example, store=tmp_path / "none.db")(Machine())
    with pytest.raises(JobError):
        sw.skypilot.time_estimator(tmp_path / "none.yaml")


def test_time_without_samples_is_unknown() -> None:
    job = {"name": "own", "command": {"run": "train"}, "bounds": {"ps": {"replicas": 0}}}
    trials = [
        {"workers": n, "worker_cpu": cpu, "throughput": 900 * (n * cpu) ** 0.8} for n in (1, 2, 4) for cpu in (0.5, 1)
    ]
    with pytest.raises(InputError, match=r"The number of samples of own is unknown, and so is its time\. Pass samples"):
        sw.skypilot.time_estimator(job, trials=trials)(Machine())
    assert sw.skypilot.time_estimator(job, trials=trials, samples="1M")(Machine()) > 0


def test_jobs_on_gpus_are_refused() -> None:
    job = {"name": "own", "command": {"run": "train"}, "bounds": {"ps": {"replicas": 0}}}
    trials = [
        {"workers": n, "worker_cpu": cpu, "worker_gpu": 1, "throughput": 900 * (n * cpu) ** 0.8}
        for n in (1, 2, 4)
        for cpu in (0.5, 1)
    ]
    estimate = sw.skypilot.time_estimator(job, trials=trials, samples="1M")
    with pytest.raises(InputError, match="do not record their kind, so its time on AWS"):
        estimate(Machine(accelerators={"V100": 4}))
    with pytest.raises(InputError, match="Infeasible"):
        estimate(Machine())


# What SkyPilot would download and find out about accounts; it reads both from the home folder.
CATALOG = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch
m6i.large,,,2.0,8.0,,0.096,0.03,us-east-1,us-east-1a,x86_64
m6i.8xlarge,,,32.0,128.0,,1.536,0.5,us-east-1,us-east-1a,x86_64
"""
PROGRAM = """
import sys
import sky
from sky import check, global_user_state
from sky.clouds import CloudCapability
from sky.optimizer import Optimizer
from sky.skylet.constants import SKYPILOT_DEFAULT_WORKSPACE as WORKSPACE
import sizewright as sw

global_user_state.set_allowed_clouds(check._get_workspace_allowed_clouds(WORKSPACE), WORKSPACE)
global_user_state.set_enabled_clouds(["AWS"], CloudCapability.COMPUTE, WORKSPACE)
small, large = (sky.Resources(infra="aws", instance_type=f"m6i.{size}") for size in ("large", "8xlarge"))
with sky.Dag() as dag:
    task = sky.Task(run="true")
    task.set_resources({small, large})
    task.set_time_estimator(sw.skypilot.time_estimator(sys.argv[1], store=sys.argv[2]))
for target in (sky.OptimizeTarget.COST, sky.OptimizeTarget.TIME):
    task.best_resources = None
    Optimizer.optimize(dag, minimize=target, quiet=True)
    print("chosen", task.best_resources.instance_type)
print("seconds", *map(task.estimate_runtime, (small, large, sky.Resources(cpus=2, memory="4x"))))
"""


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_skypilots_optimizer_chooses_by_the_estimates(example: Path, store: str, tmp_path: Path) -> None:
    """It runs in a separate environment, since SkyPilot is no dependency."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    core = [each for each in requires("sizewright") or () if "extra ==" not in each]
    install = [python, "-m", "pip", "install", "-q", "--no-cache-dir", SKYPILOT, *core]
    subprocess.run(install, check=True, timeout=900)
    catalogs = tmp_path / ".sky" / "catalogs" / "v8" / "aws"
    catalogs.mkdir(parents=True)
    (catalogs / "vms.csv").write_text(CATALOG)
    env = os.environ | {"HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        [python, "-c", PROGRAM, example, store], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("chosen", "seconds"))]
    chosen = [words[1] for words in lines if words[0] == "chosen"]
    small_s, large_s, by_size_s = map(float, lines[-1][1:])
    assert small_s == by_size_s == sw.skypilot.time_estimator(example, store=store)(Machine("2", "8"))
    assert large_s < small_s
    cheapest = "m6i.large" if 0.096 * small_s < 1.536 * large_s else "m6i.8xlarge"
    assert chosen == [cheapest, "m6i.8xlarge"]
