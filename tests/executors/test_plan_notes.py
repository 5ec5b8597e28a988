from __future__ import annotations

from pathlib import Path

import pytest

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.executors.plan_notes import notes, read_notes
from sizewright.spec import Allocation, Data, Deploy, Job, Plan
from sizewright.spec.command import Command

TARGET = Allocation.of(2, 1, 1.0, 1.0, 512)


def plan(job: Job) -> Plan:
    return Plan(id="p-1", kind="launch", job=job, target=TARGET, reason="Chosen.", asked_by="anna")


def test_a_plan_is_read_back_from_its_notes() -> None:
    made = plan(Job(name="ctr"))
    told = notes(made)
    assert (told["sizewright/plan"], told["sizewright/asked-by"]) == ("p-1", "anna")
    assert read_notes({"metadata": {"annotations": told}}) == made


def test_plain_settings_are_read_back_from_the_notes_and_no_secret_is_in_them() -> None:
    env = {"DB_PASSWORD": "abc123", "MODE": "quick", "STORE": "postgresql://me:abc123@db/x"}
    command = Command(run=("python", "train.py", "--url=s3://me:abc123@bucket/x"), env=env)
    text = "".join(notes(plan(Job(name="ctr", command=command))).values())
    assert "abc123" not in text
    read = read_notes({"metadata": {"annotations": notes(plan(Job(name="ctr", command=command)))}}).job.command
    assert read
    assert read.env == {"DB_PASSWORD": "hidden", "MODE": "quick", "STORE": "hidden"}
    logged = plan(Job(name="ctr", data=Data(format="criteo", path="https://me:abc123@host/log.tsv")))
    assert "abc123" not in "".join(notes(logged).values())


@pytest.mark.parametrize("annotations", [None, {}, {"sizewright/plan-record": "{"}, {"sizewright/plan-record": "{}"}])
def test_a_manifest_without_a_plan_is_refused(annotations: object) -> None:
    with pytest.raises(InputError, match="plan") as caught:
        read_notes({"metadata": {"annotations": annotations}})
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
def test_a_command_with_a_secret_is_not_rendered(words: tuple[str, ...], name: str) -> None:
    for job in (
        Job(name="ctr", deploy=Deploy(command=words)), Job(name="ctr", command=Command(run=words, rendezvous="hosts"))
    ):  # fmt: skip
        with pytest.raises(
            InputError, match=r"job\.(deploy\.command|command\.run) holds what looks like a secret"
        ) as caught:
            get_executor(name).render(plan(job))
        assert "abc123" not in str(caught.value)


def test_words_that_only_look_so_are_rendered() -> None:
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


def test_a_priority_class_is_a_name() -> None:
    with pytest.raises(ValueError, match="priority_class"):
        Deploy(priority_class="high\n#SBATCH --uid=0")


@pytest.mark.parametrize("name", ["volcano", "slurm"])
def test_a_manifest_whose_settings_have_placeholders_follows_new_sizes(name: str, tmp_path: Path) -> None:
    env = {"BS": "{batch_size}", "AT": "{index}", "MODE": "quick", "DB_PASSWORD": "abc123"}
    job = Job(name="ctr", command=Command(run=("python", "t.py", "--bs={batch_size}"), rendezvous="hosts", env=env))
    (tmp_path / "made").write_text(get_executor(name).render(plan(job)))
    executor = get_executor(name)
    read = executor.adopt(tmp_path / "made")  # type: ignore[attr-defined]
    assert read.job.hash == job.hash
    larger = read.model_copy(update={"target": Allocation.of(3, 1, 1.0, 1.0, 256)})
    fresh = plan(job).model_copy(update={"target": larger.target})
    assert executor.render(larger) == get_executor(name).render(fresh)
