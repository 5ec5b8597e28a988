"""YAML with aliases that expand too far is refused before it is expanded."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes.yaml_text import YamlText
from sizewright.executors.yaml_documents import from_yaml
from sizewright.spec import Cluster, Job, Plan, _text_files
from sizewright.spec._text_files import read_yaml


def repeated(by: str, levels: int = 12) -> str:
    """Return YAML that grows eightfold at each level, by aliases in lists or by merges."""
    begin, line = {
        "lists": ("a0: &a0 [1]", "a{n}: &a{n} [{aliases}]"),
        "merges": ("a0: &a0 {x: 1, y: 2}", "a{n}: &a{n} {{<<: [{aliases}]}}"),
    }[by]
    lines = [line.format(n=n, aliases=", ".join([f"*a{n - 1}"] * 8)) for n in range(1, levels)]
    return "\n".join([begin, *lines]) + "\n"


BOMBS = {by: repeated(by) for by in ("lists", "merges")}
BOMBS |= {"itself": "a: &a [*a]\n", "below itself": "a: &a {b: {c: *a}}\n"}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("load", [Job.load, Cluster.load, Plan.load, YamlText.load], ids=lambda f: f.__qualname__)
def test_a_file_that_expands_without_end_is_refused(load, text: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"file.yaml: (with its aliases expanded|an alias refers to a value)"):
        load(path)


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_manifest_that_expands_without_end_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="alias"):
        from_yaml(f"kind: Job\n---\n{text}")
    (tmp_path / "base.yaml").write_text(f"kind: Job\n---\n{text}")
    with pytest.raises(InputError, match="alias"):
        get_executor("volcano", base=tmp_path / "base.yaml").render(Plan.model_validate(PLAN))


PLAN = {
    "id": "p-1", "kind": "launch", "job": {"name": "ctr"}, "reason": "first",
    "target": {"worker": [{"replicas": 1, "cpu": 1, "memory_bytes": 1}], "batch_size": 512},
}  # fmt: skip


def test_aliases_that_people_write_are_read(tmp_path: Path) -> None:
    text = "name: ctr\nbounds:\n  worker: &size {replicas: [1, 2], cpu: [1, 2]}\n  ps: {<<: *size, replicas: 1}\n"
    (tmp_path / "job.yaml").write_text(text)
    assert Job.load(tmp_path / "job.yaml").bounds.ps.replicas == (1, 1)


@pytest.mark.parametrize(
    "value",
    ["!!float ''", "!!int ''", "!!timestamp x", "!!bool x", "!!binary x", "!!int [1]"],
)
@pytest.mark.parametrize("load", [Job.load, YamlText.load])
def test_value_that_contradicts_its_tag_is_refused_in_one_sentence(load, tmp_path: Path, value: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "file.yaml"
    path.write_text(f"training: {{samples: {value}}}\n")
    with pytest.raises(InputError, match=r"is not (valid )?YAML"):
        load(path)


@pytest.mark.parametrize("load", [Job.load, YamlText.load])
def test_a_file_that_would_take_minutes_is_refused_at_once(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "file.yaml"
    path.write_text("rows: [" + "1, " * (2 << 20) + "]\n")
    with pytest.raises(InputError, match="longer than 4 MiB"):
        load(path)


DEEP = {
    "flow": "[" * 60_000, "block": "- " * 60_000, "mappings": "".join(f"{' ' * n}a:\n" for n in range(1_000)),
    "second document": "n: !!int 1:2\n---\n" + "[" * 40_000, "closed": "a: " + "[" * 101 + "]" * 101,
}  # fmt: skip


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("read", [YamlText, from_yaml])
def test_deep_nesting_is_refused_before_it_overflows_the_stack(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="nested more than 100 levels deep"):
        read(text)


@pytest.mark.parametrize("read", [YamlText, from_yaml])
def test_nesting_of_99_levels_is_read(read) -> None:  # type: ignore[no-untyped-def]
    read("a: " + "[" * 98 + "]" * 98)


@pytest.mark.parametrize("read", [YamlText, from_yaml])
def test_limit_of_values_holds_for_all_documents_together(read) -> None:  # type: ignore[no-untyped-def]
    document = repeated("merges", 5)
    read(document)
    with pytest.raises(InputError, match=r"with its aliases expanded it has more than 1[0,]+ values"):
        read("---\n".join([document] * 60))


def test_base_of_too_many_values_is_refused_before_its_layout_is_read() -> None:
    with pytest.raises(InputError, match="more than 100,000 values"):
        YamlText("rows:\n" + "- 1\n" * 100_000)


def test_repeated_key_of_an_ordered_mapping_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="is not YAML: a value does not have the type of its tag"):
        YamlText("n: !!omap [{a: 1}, {a: 1}]\n")


@pytest.mark.timeout(60)
def test_long_list_is_read_by_the_parser_of_libyaml() -> None:
    """PyYAML's own parser took 20 s."""
    assert issubclass(_text_files.BaseLoader, yaml.cyaml.CParser)
    assert len(read_yaml("[" + "1, " * 400_000 + "]")) == 400_000


def test_number_of_thousands_of_digits_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Python refuses to convert such a number to text, also for the error message."""
    path = tmp_path / "file.yaml"
    path.write_text(f"training: {{samples: !!int 0x{4_500 * 'f'}}}\n")
    with pytest.raises(InputError, match="more than 300 digits"):
        Job.load(path)
