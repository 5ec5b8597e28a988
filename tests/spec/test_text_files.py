from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sizewright.errors import InputError, JobError, SizewrightError, StoreError
from sizewright.spec import Cluster, Job, Plan, Queue, Rails
from sizewright.spec._text_files import KeyTwiceError, read_json, read_yaml


@pytest.mark.parametrize("load", [Job.load, Cluster.load, Queue.load, Rails.load, Plan.load])
def test_duplicate_key_is_refused_with_both_lines(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("name: a\nbounds:\n  worker: {replicas: [1, 4]}\ntraining: {batch_size: 256}\nbounds:\n  ps: {}\n")
    with pytest.raises(JobError, match=r"the key 'bounds' is given twice, at line 2 and at line 5\. Keep one"):
        load(path)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("a: {b: 1, b: 2}", "'b' is given twice, both at line 1"),
        ('{"a": [{"b": 1,\n"b": 2}]}', "'b' is given twice, at line 1 and at line 2"),
        ("- x: 1\n  y: 2\n  x: 1", "'x' is given twice, at line 1 and at line 3"),
        ("base: &base {k: 1}\nb:\n  <<: *base\n  k: 2\n  k: 3", "'k' is given twice, at line 4 and at line 5"),
        ("'a': 1\n\"a\": 2", "'a' is given twice"),
    ],
)
def test_duplicate_key_is_refused_at_any_depth(text: str, location: str) -> None:
    with pytest.raises(KeyTwiceError, match=location):
        read_yaml(text)


def test_a_key_that_overrides_a_merged_one_is_legal() -> None:
    text = "base: &b {k: 1, m: 1}\nx:\n  a: &A {<<: *b, k: 2}\nb: {<<: *A, k: 3}\n"
    assert read_yaml(text)["b"] == {"k": 3, "m": 1}


def test_json_with_a_key_twice_is_refused_with_both_lines() -> None:
    with pytest.raises(KeyTwiceError, match="'c' is given twice, at line 2 and at line 3"):
        read_json('{"a": 1,\n "b": {"c": 1,\n "c": 2}}')
    assert read_json('{"a": {"c": 1}, "b": {"c": 2}}') == {"a": {"c": 1}, "b": {"c": 2}}


def _history(path: Path, text: str) -> None:
    from sizewright.datasets.runs.history_files import import_history

    path = path.with_suffix(".json")
    path.write_text(text)
    import_history(path)


def _plan(path: Path, text: str, form: Any) -> None:
    from sizewright.executors.file import FileExecutor

    FileExecutor(format=form).parse(text)


def _manifest(path: Path, text: str) -> None:
    from sizewright.executors.yaml_documents import from_yaml

    from_yaml(text)


def _base_manifest(path: Path, text: str) -> None:
    from sizewright.executors.kubernetes.yaml_text import YamlText

    YamlText(text)


@pytest.mark.parametrize(
    "read",
    [_history, lambda p, t: _plan(p, t, "json"), lambda p, t: _plan(p, t, "yaml"), _manifest, _base_manifest],
    ids=["history", "plan-json", "plan-yaml", "manifest", "base"],
)
def test_every_reader_of_user_files_refuses_duplicate_keys(tmp_path: Path, read: Callable[..., None]) -> None:
    with pytest.raises((StoreError, InputError, SizewrightError), match="'id' is given twice, at line 1 and at line 2"):
        read(tmp_path / "file", '{"id": "a",\n"id": "b"}')


def test_yaml_1_1_special_values_are_read_as_intended(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: on\n"
        "command: {run: 'python t.py {batch_size}', env: {WHEN: 2026-01-31, DEBUG: yes, START: 12:30:00}}\n"
        "training: {batch_size: 0100, samples: 4.5e7}\n"
        "bounds: {batch_size: [1e2, 1_000], worker: {memory: [1e9, 9007199254740993.0]}}\n"
        "deadline: 4:00:00\n"
    )
    job = Job.load(path)
    assert job.name == "on"
    assert job.command
    assert job.command.env == {"WHEN": "2026-01-31", "DEBUG": "yes", "START": "12:30:00"}
    assert (job.training.batch_size, job.training.samples, job.bounds.batch_size) == (100, 45_000_000, (100, 1000))
    assert job.bounds.worker.memory_bytes == (10**9, 2**53 + 1)
    assert job.deadline == 4 * 3600


@pytest.mark.parametrize("word", ["on", "yes", "true", "True", "Yes", "ON"])
def test_a_switch_takes_every_word_for_true(tmp_path: Path, word: str) -> None:
    path = tmp_path / "rails.yaml"
    path.write_text(f"paused: {word}\n")
    assert Rails.load(path).paused is True


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("abc01_.:-+eExyn ~<=\n'\""),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abno01", min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_output_of_pyyaml_is_read_back(value: Any) -> None:
    assert read_yaml(yaml.safe_dump(value)) == value


def test_field_files_are_read_as_intended(shared: Path) -> None:
    from sizewright.api import memory

    field = shared / "field"
    assert Cluster.load(field / "U01" / "cluster.yaml").hosts[0].memory_bytes == 2_899_102_925
    assert Rails.load(field / "U01" / "rails.yaml").worker.memory_bytes == (1_288_490_189,) * 2
    assert memory(field / "U01" / "job.yaml", cluster=field / "U01" / "cluster.yaml").least_ps is None
    assert Job.load(field / "J02" / "sci2.yaml").training.model_dump(include={"samples", "batch_size"}) == {
        "samples": 45_000_000,
        "batch_size": 1000,
    }
    with pytest.raises(JobError, match="'bounds' is given twice, at line 2 and at line 5"):
        Job.load(field / "J01" / "j1.yaml")
    named, listed = (memory(field / "E04" / name) for name in ("ck.yaml", "ck2.yaml"))
    assert named.servers == listed.servers
    assert sum(table.rows for table in named.tables) == 33_762_577
