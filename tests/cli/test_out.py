"""Tests of the output file of each verb: its format, its place, and what remains if writing fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sizewright.spec import Plan


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize("name", ["plan.json", "PLAN.JSON", "deep/down/plan.json"])
def test_a_plan_named_json_is_json_and_can_be_read_again(call, example, store, name):
    assert call("recommend", example, "--store", store, "--out", name).code == 0
    plan = json.loads(Path(name).read_text())
    assert plan["kind"] == "launch"
    assert Plan.load(name).job.name == "criteo-dlrm"


@pytest.mark.parametrize("name", ["job.yaml", "job.yml"])
def test_a_plan_named_yaml_is_yaml(call, example, store, name):
    result = call("recommend", example, "--store", store, "--out", name)
    assert Path(name).read_text().startswith("#")
    assert yaml.safe_load(Path(name).read_text())["kind"] == "launch"
    assert "is written as" not in result.err


def test_other_names_get_the_format_of_the_executor_with_a_note(call, example, store):
    assert "plan.txt is written as YAML." in call("recommend", example, "--store", store, "--out", "plan.txt").err
    script = call("recommend", example, "--store", store, "--executor", "slurm", "--out", "job.txt")
    assert "job.txt is written as a shell script." in script.err
    assert (
        "written as" not in call("recommend", example, "--store", store, "--executor", "slurm", "--out", "job.sh").err
    )


@pytest.mark.parametrize("name", ["job.json", "job.yaml"])
def test_script_is_not_written_to_a_json_or_yaml_name(call, example, store, name):
    Path(name).write_text("old")
    result = call("recommend", example, "--store", store, "--executor", "slurm", "--out", name)
    assert result.code == 1
    assert "this manifest is a shell script. Choose a name such as job.sh." in result.err
    assert Path(name).read_text() == "old"


@pytest.mark.parametrize("executor", ["kubeflow", "volcano", "kuberay", "dlrover", "local", "slurm"])
def test_manifest_of_every_executor_is_printed_as_json(call, example, store, executor):
    result = call("recommend", example, "--store", store, "--executor", executor, "-o", "json")
    assert result.code == 0
    assert isinstance(json.loads(result.out), dict)
    text_result = call("recommend", example, "--store", store, "--executor", executor)
    assert text_result.out.startswith(("#", "apiVersion", "schema", "kind", "---"))


@pytest.mark.parametrize("name", [".", "plans/", "there"])
def test_folder_as_output_gets_a_file_named_after_the_job(call, example, store, name):
    Path("there").mkdir()
    result = call("recommend", example, "--store", store, "--out", name)
    assert result.code == 0
    assert Plan.load(Path(name) / "criteo-dlrm.yaml").kind == "launch"
    assert "criteo-dlrm.yaml" in result.err


def test_without_a_target_nothing_is_written_and_the_old_file_stays(call, example, store):
    Path("plan.yaml").write_text("old")
    Path("other.yaml").write_text(example.read_text().replace("batch_size: 512", "batch_size: 64"))
    result = call("recommend", "other.yaml", "--store", store, "--out", "plan.yaml")
    assert result.code == 4
    assert "Nothing was written to plan.yaml." in result.err
    assert Path("plan.yaml").read_text() == "old"


VERBS = [
    ("recommend", "JOB", "--store", "STORE", "--out"),
    ("report", "JOB", "--store", "STORE", "--out"),
    ("trials", "export", "--store", "STORE"),
    ("history", "export", "--store", "STORE"),
    ("init",),
]
NAMES = {"report": "x.html", "trials": "x.csv", "history": "x.json"}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_every_verb_makes_the_folders_above_its_file(call, example, store, verb):
    args = [{"JOB": example, "STORE": store}.get(arg, arg) for arg in verb]
    name = NAMES.get(verb[0], "x.yaml")
    assert call(*args, f"deep/down/{name}").code == 0
    assert [path.name for path in Path("deep/down").iterdir()] == [name]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_every_verb_refuses_an_unwritable_path_in_one_sentence(call, example, store, verb):
    Path("file").write_text("old")
    args = [{"JOB": example, "STORE": store}.get(arg, arg) for arg in verb]
    result = call(*args, f"file/{NAMES.get(verb[0], 'x.yaml')}")
    assert result.code == 1
    assert result.err.count("Error:") == 1
    assert "Traceback" not in result.err
    assert Path("file").read_text() == "old"


def test_report_is_written_into_a_folder_but_not_to_a_json_name(call, example, store):
    Path("there").mkdir()
    assert call("report", example, "--store", store, "--out", "there").code == 0
    assert Path("there/report.html").is_file()
    result = call("report", example, "--store", store, "--out", "report.json")
    assert "a report is HTML" in result.err
    assert result.code == 1


def test_apply_writes_the_format_of_the_name(call, example, store):
    call("recommend", example, "--store", store, "--out", "plan.yaml")
    args = ("apply", "plan.yaml", "--executor", "kubeflow", "--yes")
    assert call(*args, "--out", "job.json").code == 0
    assert json.loads(Path("job.json").read_text())["kind"] == "TFJob"
    repeated = call(*args, "--out", "job.json", "-o", "json")
    assert json.loads(repeated.out)["became"] == "unchanged"
    Path("there").mkdir()
    assert call(*args, "--out", "there").code == 0
    assert Path("there/plan.yaml").is_file()


def test_report_into_a_new_folder_creates_the_folder_and_its_page(call, example, store):
    assert call("report", example, "--store", store, "--out", "pages/").code == 0
    assert Path("pages/report.html").is_file()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("report", "--format", "svg", "--out", "a.svg"), "a picture for each figure, and a.svg is a file."),
        (("report", "--format", "png", "--out", "-"), "a picture for each figure, and - is a file."),
        (("report", "--out", "-"), "'-' is not a file name (/dev/stdout prints the result)"),
        (("recommend", "--out", "-"), "'-' is not a file name (/dev/stdout prints the result)"),
    ],
)
def test_invalid_output_path_is_refused(call, example, store, args, message):
    result = call(args[0], example, "--store", store, *args[1:])
    assert result.code == 1
    assert message in result.err
    assert list(Path().iterdir()) == []
