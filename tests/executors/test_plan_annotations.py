from __future__ import annotations

from pathlib import Path

import pytest

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.executors.plan_annotations import plan_annotations, read_plan
from sizewright.spec import Allocation, Data, Deploy, Job, Plan
from sizewright.spec.command import Command

TARGET = Allocation.of(2, 1, 1.0, 1.0, 512)


def plan(job: Job) -> Plan:
    return Plan(id="p-1", kind="launch", job=job, target=TARGET, reason="Chosen.", asked_by="anna")


def test_plan_is_read_back_from_annotations() -> None:
    launch = plan(Job(name="ctr"))
    annotations = plan_annotations(launch)
    assert (annotations["sizewright/plan"], annotations["sizewright/asked-by"]) == ("p-1", "anna")
    assert read_plan({"metadata": {"annotations": annotations}}) == launch


def test_annotations_contain_plain_settings_and_no_secret() -> None:
    env = {"DB_PASSWORD": "abc123", "MODE": "quick", "STORE": "postgresql://me:abc123@db/x"}
    command = Command(run=("python", "train.py", "--url=s3://me:abc123@bucket/x"), env=env)
    text = "".join(plan_annotations(plan(Job(name="ctr", command=command))).values())
    assert "abc123" not in text
    read = read_plan(
        {"metadata": {"annotations": plan_annotations(plan(Job(name="ctr", command=command)))}}
    ).job.command
    assert read
    assert read.env == {"DB_PASSWORD": "hidden", "MODE": "quick", "STORE": "hidden"}
    logged = plan(Job(name="ctr", data=Data(format="criteo", path="https://me:abc123@host/log.tsv")))
    assert "abc123" not in "".join(plan_annotations(logged).values())


@pytest.mark.parametrize("annotations", [None, {}, {"sizewright/plan-record": "{"}, {"sizewright/plan-record": "{}"}])
def test_manifest_without_a_plan_is_refused(annotations: object) -> None:
    with pytest.raises(InputError, match="plan") as caught:
        read_plan({"metadata": {"annotations": annotations}})
    assert caught.value.remedy


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--password=abc123"), ("train", "--db-token", "abc123"), ("train", "--api_key=abc123"),
        ("train", "--url=s3://me:abc123@bucket/x"), ("sh", "-c", "train --password=abc123"),
        ("sh", "-c", "API_TOKEN=abc123 train"), ("env", "API_TOKEN=abc123", "train"), ("train", "--db-pass", "abc123"),
        ("curl", "-H", "Authorization: Bearer abc123"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["kubeflow", "kuberay", "slurm", "file"])
def test_command_with_a_secret_is_not_rendered(words: tuple[str, ...], name: str) -> None:
    for job in (
        Job(name="ctr", deploy=Deploy(command=words)), Job(name="ctr", command=Command(run=words, rendezvous="hosts"))
    ):  # fmt: skip
        with pytest.raises(
            InputError, match=r"job\.(deploy\.command|command\.run) contains what looks like a secret"
        ) as caught:
            get_executor(name).render(plan(job))
        assert "abc123" not in str(caught.value)


def test_words_that_resemble_secrets_are_rendered() -> None:
    words = (
        "train",
        "--tokenizer=bert",
        "--token-file",
        "/x",
        "--secret",
        "--epochs=3",
        "tokens",
        "https://host/x@y",
        "--bypass=1",
        "--passes",
        "3",
        "--password=$PASSWORD",
        "--max-tokens=512",
    )
    assert "tokenizer" in get_executor("kubeflow").render(plan(Job(name="ctr", deploy=Deploy(command=words))))


def test_priority_class_must_be_a_name() -> None:
    with pytest.raises(ValueError, match="priority_class"):
        Deploy(priority_class="high\n#SBATCH --uid=0")


@pytest.mark.parametrize("name", ["volcano", "slurm"])
def test_manifest_with_placeholders_follows_new_sizes(name: str, tmp_path: Path) -> None:
    env = {"BS": "{batch_size}", "AT": "{index}", "MODE": "quick", "DB_PASSWORD": "abc123"}
    job = Job(name="ctr", command=Command(run=("python", "t.py", "--bs={batch_size}"), rendezvous="hosts", env=env))
    (tmp_path / "manifest").write_text(get_executor(name).render(plan(job)))
    executor = get_executor(name)
    read = executor.adopt(tmp_path / "manifest")  # type: ignore[attr-defined]
    assert read.job.hash == job.hash
    larger = read.model_copy(update={"target": Allocation.of(3, 1, 1.0, 1.0, 256)})
    fresh = plan(job).model_copy(update={"target": larger.target})
    assert executor.render(larger) == get_executor(name).render(fresh)
