"""A written job contains no secret and no value of a variable; at the start they come from the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sizewright as sw
from sizewright.errors import InputError
from sizewright.spec import Allocation, Job, Plan
from sizewright.spec.command import Command
from sizewright.spec.withheld import is_withheld, split, with_values
from tests.test_redaction import SECRET_NAMES, SECRET_VALUES

ENV = {"MODE": "fast", "DB_PASSWORD": "s3cret", "STORE": "postgresql://me:s3cret@db/x", "INDEX": "{index}"}
JOB = Job(name="own", command=Command(run=("python", "t.py", "--db-token", "s3cret"), env=ENV))
VALUES = st.dictionaries(st.text("ABC_TOKEN", min_size=1), st.text(max_size=20).filter(lambda v: not is_withheld(v)))


def test_restored_record_has_the_names_and_the_same_hash() -> None:
    restored = Job.model_validate_json(JOB.model_dump_json())
    assert restored.command
    assert list(restored.command.env) == list(ENV)
    assert not set(restored.command.env.values()) & set(ENV.values())
    assert restored.command.run == ("python", "t.py", "--db-token", "<hidden>")
    assert restored.hash == JOB.hash
    assert restored.model_dump() == JOB.model_dump()


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_no_form_of_a_job_or_plan_shows_a_secret(name: str) -> None:
    job = Job(command=Command(run=("train", f"--{name.lower()}=s3cret"), env={name: "s3cret", "FREE": "plain-value"}))
    plan = Plan(id="p", kind="launch", job=job, target=Allocation.of(1, 0, 1.0, 0.0, 64), reason="x")
    for record in (job, plan):
        for text in (
            record.model_dump_json(),
            record.to_yaml() if record is plan else "",
            repr(record),
            str(record.model_dump()),
        ):
            assert "s3cret" not in text
            assert "plain-value" not in text


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_value_with_the_form_of_a_key_leaves_its_name_alone(value: str) -> None:
    assert Command(run=("t",), env={"FREE": value}).model_dump()["env"] == {"FREE": "hidden"}


@given(VALUES)
def test_restored_command_starts_with_the_same_values(env: dict[str, str]) -> None:
    command = Command(run=("t",), env=env)
    restored = Command.model_validate_json(command.model_dump_json())
    assert restored.with_values(env).env == command.with_values({}).env == env
    plain, secret = split(env)
    assert split(restored.env)[0].keys() == plain.keys()
    assert {**plain, **secret} == env


def test_missing_variables_are_named_in_one_sentence() -> None:
    restored = Job.model_validate_json(JOB.model_dump_json()).command
    assert restored
    with pytest.raises(InputError, match="the environment does not set DB_PASSWORD, STORE") as caught:
        with_values(restored.env, {"MODE": "fast", "INDEX": "{index}"})
    assert caught.value.remedy.endswith("export DB_PASSWORD=... STORE=...")
    with pytest.raises(InputError, match="MODE has another value in the environment"):
        with_values(restored.env, ENV | {"MODE": "slow"})
    with pytest.raises(InputError, match=r"The words of command.run contained a secret.*--db-token \*\*\*\)"):
        restored.with_values(ENV)


def test_a_name_without_a_value_is_taken_from_the_environment() -> None:
    job = sw.load_job({"command": {"run": "python t.py", "env": {"WANDB_API_KEY": None}}})
    assert job.command
    assert job.command.with_values({"WANDB_API_KEY": "k"}).env == {"WANDB_API_KEY": "k"}
    assert job.hash == sw.load_job({"command": {"run": "python t.py", "env": {"WANDB_API_KEY": "k"}}}).hash


def test_a_change_of_the_objective_keeps_the_values() -> None:
    assert JOB.with_objective("cost").command == JOB.command


def test_a_wrong_value_of_a_variable_is_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        sw.load_job({"command": {"run": "t", "env": {"API_KEY": ["s3cret"], "N": 5}}})
    assert "'command.env.API_KEY' must be text; 'command.env.N' must be text; put it in quotes" in str(caught.value)


def test_a_command_that_takes_its_batch_size_by_a_variable_is_read_back() -> None:
    command = {"run": "python t.py", "env": {"BS": "{batch_size}", "AT": "x{index}y"}}
    job = sw.load_job({"command": command, "bounds": {"batch_size": [64, 256]}})
    restored = Job.model_validate_json(job.model_dump_json())
    assert restored.hash == job.hash
    assert restored.command is not None
    assert restored.command.takes_batch_size
    assert job.with_objective("cost").command == job.command


def test_numbers_and_common_names_count_in_the_hash() -> None:
    for name in ("TOKENS_PER_BATCH", "PIN_MEMORY", "NUM_PASS"):
        first, second = (Job(command=Command(run=("t",), env={name: value})) for value in ("1", "2"))
        assert first.hash != second.hash
    first, second = (Job(command=Command(run=("t", "--tokens-per-sample", value))) for value in ("512", "4096"))
    assert first.hash != second.hash


def test_ordinary_words_and_paths_come_back_as_they_were() -> None:
    run = ("sh", "-c", "echo '*** start ***'; python t.py", "data/***/x", "--pin-memory", "true")
    job = Job(command=Command(run=run))
    restored = Job.model_validate_json(job.model_dump_json()).command
    assert restored is not None
    assert restored.with_values({}).run == run
    path = "/data/hf_datasets_criteo_kaggle/day.tsv"
    restored = Job.model_validate_json(Job(data={"format": "criteo", "path": path}).model_dump_json())  # type: ignore[arg-type,assignment]
    assert restored.data.path == path  # type: ignore[union-attr]
