from __future__ import annotations

import json

import pytest

from sizewright.errors import JobError
from sizewright.spec import Allocation, Gpu, Job, Resources, Role
from sizewright.spec._base import parse
from sizewright.training.command.rendezvous import ReplicaSlot, make_start

ALLOCATION = Allocation.of(1, 0, 1.0, 1.0, 64)


def job(rendezvous: str, run: str = "python train.py", **command: object) -> Job:
    return Job.model_validate({"command": {"run": run, "rendezvous": rendezvous, **command}})


def slots(**counts: int) -> list[ReplicaSlot]:
    slots_so_far: list[ReplicaSlot] = []
    for role, count in counts.items():
        for i in range(count):
            host = f"10.0.0.{i % 2 + 1}"
            known: Role = role  # type: ignore[assignment]
            slots_so_far.append(
                ReplicaSlot(known, i, Resources(cpu=1.5, memory_bytes=0), host, 7000 + len(slots_so_far))
            )
    return slots_so_far


def test_torchrun_variables_give_the_rank_and_the_address_of_rank_0() -> None:
    workers = slots(worker=3)
    envs = [make_start(job("torchrun"), workers, me, ALLOCATION).env for me in workers]
    assert [env["RANK"] for env in envs] == ["0", "1", "2"]
    assert {env["WORLD_SIZE"] for env in envs} == {"3"}
    assert {(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in envs} == {("10.0.0.1", "7000")}
    assert [(env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) for env in envs] == [("0", "2"), ("0", "1"), ("1", "2")]
    assert [env["GROUP_RANK"] for env in envs] == ["0", "1", "0"]


def test_tf_config_lists_the_cluster_without_its_evaluator() -> None:
    all_slots = slots(worker=2, ps=1, chief=1, evaluator=1)
    configs = [json.loads(make_start(job("tf_config"), all_slots, me, ALLOCATION).env["TF_CONFIG"]) for me in all_slots]
    assert all(
        each["cluster"]
        == {"chief": ["10.0.0.1:7003"], "worker": ["10.0.0.1:7000", "10.0.0.2:7001"], "ps": ["10.0.0.1:7002"]}
        for each in configs
    )
    assert [each["task"] for each in configs] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "ps", "index": 0},
        {"type": "chief", "index": 0},
        {"type": "evaluator", "index": 0},
    ]


def test_hosts_are_listed_by_role() -> None:
    all_slots = slots(worker=2, ps=2)
    env = make_start(job("hosts"), all_slots, all_slots[3], ALLOCATION).env
    assert env["WORKER_HOSTS"] == "10.0.0.1:7000,10.0.0.2:7001"
    assert env["PS_HOSTS"] == "10.0.0.1:7002,10.0.0.2:7003"
    assert (env["JOB_NAME"], env["TASK_INDEX"]) == ("ps", "1")
    assert "CHIEF_HOSTS" not in env


def test_placeholders_are_filled_and_other_braces_kept() -> None:
    hosts_job = job("hosts", run="run --b {batch_size} --j '{\"a\": 1}' {role}-{index}", env={"N": "{workers}/{ps}"})
    all_slots = slots(worker=2, ps=1)
    start = make_start(hosts_job, all_slots, all_slots[1], Allocation.of(1, 1, 1.0, 1.0, 96))
    assert start.words == ("run", "--b", "96", "--j", '{"a": 1}', "worker-1")
    assert start.env["N"] == "2/1"
    assert start.env["SIZEWRIGHT_BATCH_SIZE"] == "96"
    assert start.env["OMP_NUM_THREADS"] == "2"


def test_sides_are_part_of_every_allocation() -> None:
    side_job = job("tf_config", chief={"cpu": "300m"}, evaluator={"cpu": 1, "memory": "2Gi"})
    allocation = side_job.with_sides(Allocation.of(2, 1, 1.0, 1.0, 64))
    assert (allocation.cores("chief"), allocation.cores("evaluator"), allocation.memory_bytes("evaluator")) == (
        0.3,
        1.0,
        2 << 30,
    )
    assert side_job.with_sides(allocation) == allocation


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"run": ""}, "run is empty"),
        ({"run": "x", "chief": {"cpu": 1}}, "torchrun has no chief"),
        ({"run": "x", "progress": "regex"}, "source regex needs one"),
        ({"run": "x", "progress": {"source": "regex", "pattern": "(?P<samples>"}}, "not a regular expression"),
        ({"run": "x", "progress": {"source": "regex", "pattern": "a(?P<b>c)"}}, "exactly one group named"),
    ],
)
def test_invalid_command_is_refused(command: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Job.model_validate({"command": command})


def test_job_with_a_command_has_no_data() -> None:
    with pytest.raises(ValueError, match="has no `data`"):
        Job.model_validate({"command": {"run": "x"}, "data": {"format": "criteo", "path": "x.tsv"}})
    with pytest.raises(ValueError, match="from-data needs `data`, which a command reads itself"):
        Job.model_validate({"command": {"run": "x"}, "model": {"tables": {"rows": "from-data"}}})
    with pytest.raises(ValueError, match=r"bounds\.ps is for commands with PS"):
        Job.model_validate({"command": {"run": "x"}, "bounds": {"ps": {"replicas": [2, 3]}}})
    with pytest.raises(ValueError, match=r"needs \{batch_size\} in the command"):
        Job.model_validate({"command": {"run": "x"}, "bounds": {"batch_size": [64, 128]}})
    again = Job.model_validate(job("torchrun").model_dump(by_alias=True))
    assert again == job("torchrun")


def test_hash_covers_the_command() -> None:
    one = job("torchrun")
    assert one.hash == job("torchrun", start_s=5).hash
    assert len({one.hash, job("hosts").hash, job("torchrun", "python other.py").hash, Job().hash}) == 4


def test_cluster_without_ps_names_none() -> None:
    workers = slots(worker=2)
    config = json.loads(make_start(job("tf_config"), workers, workers[1], ALLOCATION).env["TF_CONFIG"])
    assert config == {"cluster": {"worker": ["10.0.0.1:7000", "10.0.0.2:7001"]}, "task": {"type": "worker", "index": 1}}
    assert make_start(job("hosts"), workers, workers[1], ALLOCATION).env["PS_HOSTS"] == ""  # whatever it inherits


def test_loaders_are_those_of_the_allocation_or_else_of_the_job() -> None:
    workers = slots(worker=1)
    described = Job.model_validate({"command": {"run": "python t.py --loaders {loaders}"}, "training": {"loaders": 2}})
    start = make_start(described, workers, workers[0], ALLOCATION)
    assert start.words[-1] == start.env["SIZEWRIGHT_LOADERS"] == "2"
    more = ALLOCATION.model_copy(update={"loaders": 5})
    assert make_start(described, workers, workers[0], more).words[-1] == "5"
    assert "SIZEWRIGHT_LOADERS" not in make_start(job("torchrun"), workers, workers[0], ALLOCATION).env


def test_worker_with_gpus_of_its_own_is_a_node() -> None:
    on_one_host = [
        ReplicaSlot("worker", i, Resources(cpu=4, memory_bytes=0, gpu=Gpu(count=count)), "10.0.0.1", 7000 + i)
        for i, count in enumerate((2, 2))
    ]
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    one, per_gpu = job("torchrun"), gpu_job()
    assert [[make_start(one, on_one_host, me, ALLOCATION).env[name] for name in names] for me in on_one_host] == [
        ["0", "2", "0", "1", "0"], ["1", "2", "0", "1", "1"],
    ]  # fmt: skip
    starts = [make_start(per_gpu, on_one_host, me, ALLOCATION) for me in on_one_host]
    assert [[start.env[name] for name in names] for start in starts] == [
        ["0", "4", "0", "2", "0"], ["2", "4", "0", "2", "1"],
    ]  # fmt: skip
    assert [start.line[-2:] for start in starts] == [["python", "train.py"]] * 2
    assert [len(start.line) for start in starts] == [4, 4]
    assert starts[0].env["OMP_NUM_THREADS"] == "2"


def gpu_job(**bounds: object) -> Job:
    command = {"run": "python train.py", "rendezvous": "torchrun", "processes": "gpu"}
    return Job.model_validate({"command": command, "bounds": {"worker": {"gpu": 2, **bounds}}})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": {"run": "x", "processes": 2, "rendezvous": "hosts"}}, "only ranks of rendezvous torchrun"),
        ({"command": {"run": "x", "processes": 2, "progress": "json"}}, "share one log, which mixes their counts"),
        ({"command": {"run": "x", "processes": "gpu"}}, "so bounds.worker.gpu must say how many"),
        ({"command": {"run": "x", "processes": 0}}, "processes"),
    ],
)
def test_ranks_that_cannot_be_started_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(JobError, match=message):
        parse(Job, fields, "job.yaml")


def test_one_rank_for_each_worker_leaves_the_hash_as_it_was() -> None:
    assert job("torchrun", processes=1).hash == job("torchrun").hash == "50ef0db703a3"
    assert job("torchrun", processes=2).hash != job("torchrun").hash
    one_gpu = Job.model_validate({"command": {"run": "python train.py"}, "bounds": {"worker": {"gpu": "a100:1"}}})
    assert one_gpu.hash == job("torchrun").hash
