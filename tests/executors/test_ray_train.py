"""Plans as scaling configurations of Ray Train."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sizewright.errors import InputError
from sizewright.executors.ray_train import scaling_config
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Gpu, Group, Job, Plan

pytest.importorskip("ray.train")
TARGET = Allocation.of(3, 0, 0.5, 1.0, 64, GIB)


def plan(target: Allocation = TARGET, **others: Allocation) -> Plan:
    return Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=target, reason="best", **others)  # type: ignore[arg-type]


def test_workers_get_their_size() -> None:
    config = scaling_config(plan())
    assert (config.num_workers, config.use_gpu) == (3, False)
    assert config.resources_per_worker == {"CPU": 0.5, "memory": GIB}
    with_gpus = Allocation(worker=(Group(replicas=2, cpu=4, memory_bytes=0, gpu=Gpu(count=2)),), ps=(), batch_size=64)
    config = scaling_config(plan(with_gpus))
    assert (config.num_workers, config.use_gpu) == (2, True)
    assert config.resources_per_worker == {"CPU": 4, "GPU": 2}


def test_number_of_an_elastic_job_is_a_range() -> None:
    lower, upper = (Allocation.of(n, 0, 0.5, 1.0, 64, GIB) for n in (2, 5))
    assert scaling_config(plan(lower=lower, upper=upper), elastic=True).num_workers == (2, 5)
    assert scaling_config(plan(lower=upper, upper=lower), elastic=True).num_workers == (2, 5)
    assert scaling_config(plan(lower=lower, upper=upper)).num_workers == 3
    assert scaling_config(plan(), elastic=True).num_workers == 3


def test_what_ray_train_cannot_express_is_refused() -> None:
    with pytest.raises(InputError, match="Ray Train has workers only, but plan p-1 has ps"):
        scaling_config(plan(Allocation.of(2, 1, 0.5, 0.5, 64)))
    groups = tuple(Group(replicas=1, cpu=cpu, memory_bytes=0) for cpu in (1.0, 2.0))
    with pytest.raises(InputError, match="workers of 2 sizes"):
        scaling_config(plan(Allocation(worker=groups, ps=(), batch_size=64)))


TRAINS = """
import ray, ray.train
from pathlib import Path
from ray.train import RunConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from sizewright.executors.ray_train import scaling_config
from sizewright.spec import Allocation
from tests.executors.test_ray_train import plan

def train():
    context = ray.train.get_context()
    Path(FOLDER, f"rank-{context.get_world_rank()}-of-{context.get_world_size()}").touch()

ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR")
config = scaling_config(plan(Allocation.of(2, 0, 0.5, 1.0, 64, 1 << 28)))
DataParallelTrainer(train, scaling_config=config, run_config=RunConfig(storage_path=FOLDER)).fit()
ray.shutdown()
"""


@pytest.mark.long
def test_ray_train_starts_the_workers(tmp_path: Path) -> None:
    program = f"FOLDER = {str(tmp_path)!r}\n{TRAINS}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(path.name for path in tmp_path.glob("rank-*")) == ["rank-0-of-2", "rank-1-of-2"]
