"""Where a verb writes its result, in which format, and what is left where it cannot."""

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
    told = json.loads(Path(name).read_text())
    assert told["kind"] == "launch"
    assert Plan.load(name).job.name == "criteo-dlrm"


@pytest.mark.parametrize("name", ["job.yaml", "job.yml"])
def test_a_plan_named_yaml_is_yaml(call, example, store, name):
    result = call("recommend", example, "--store", store, "--out", name)
    assert Path(name).read_text().startswith("#")
    assert yaml.safe_load(Path(name).read_text())["kind"] == "launch"
    assert "is written as" not in result.err


def test_any_other_name_gets_what_the_executor_writes_and_is_told(call, example, store):
    assert "plan.txt is written as YAML." in call("recommend", example, "--store", store, "--out", "plan.txt").err
    script = call("recommend", example, "--store", store, "--executor", "slurm", "--out", "job.txt")
    assert "job.txt is written as a shell script." in script.err
    assert (
        "written as" not in call("recommend", example, "--store", store, "--executor", "slurm", "--out", "job.sh").err
    )


@pytest.mark.parametrize("name", ["job.json", "job.yaml"])
def test_a_script_is_not_written_under_the_name_of_data(call, example, store, name):
    Path(name).write_text("old")
    result = call("recommend", example, "--store", store, "--executor", "slurm", "--out", name)
    assert result.code == 1
    assert "this manifest is a shell script. Choose a name such as job.sh." in result.err
    assert Path(name).read_text() == "old"


@pytest.mark.parametrize("executor", ["kubeflow", "volcano", "kuberay", "dlrover", "local", "slurm"])
def test_the_manifest_of_any_executor_is_printed_as_json(call, example, store, executor):
    result = call("recommend", example, "--store", store, "--executor", executor, "-o", "json")
    assert result.code == 0
    assert isinstance(json.loads(result.out), dict)
    written = call("recommend", example, "--store", store, "--executor", executor)
    assert written.out.startswith(("#", "apiVersion", "schema", "kind", "---"))


@pytest.mark.parametrize("name", [".", "plans/", "there"])
def test_a_folder_gets_a_file_of_the_jobs_name(call, example, store, name):
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
    words = [{"JOB": example, "STORE": store}.get(word, word) for word in verb]
    name = NAMES.get(verb[0], "x.yaml")
    assert call(*words, f"deep/down/{name}").code == 0
    assert [path.name for path in Path("deep/down").iterdir()] == [name]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_every_verb_says_in_one_sentence_that_a_place_cannot_be_written(call, example, store, verb):
    Path("file").write_text("old")
    words = [{"JOB": example, "STORE": store}.get(word, word) for word in verb]
    result = call(*words, f"file/{NAMES.get(verb[0], 'x.yaml')}")
    assert result.code == 1
    assert result.err.count("Error:") == 1
    assert "Traceback" not in result.err
    assert Path("file").read_text() == "old"


def test_a_report_is_written_into_a_folder_and_not_under_the_name_of_data(call, example, store):
    Path("there").mkdir()
    assert call("report", example, "--store", store, "--out", "there").code == 0
    assert Path("there/report.html").is_file()
    result = call("report", example, "--store", store, "--out", "report.json")
    assert "a report is HTML" in result.err
    assert result.code == 1


def test_apply_writes_the_format_of_the_name(call, example, store):
    call("recommend", example, "--store", store, "--out", "plan.yaml")
    words = ("apply", "plan.yaml", "--executor", "kubeflow", "--yes")
    assert call(*words, "--out", "job.json").code == 0
    assert json.loads(Path("job.json").read_text())["kind"] == "TFJob"
    again = call(*words, "--out", "job.json", "-o", "json")
    assert json.loads(again.out)["became"] == "unchanged"
    Path("there").mkdir()
    assert call(*words, "--out", "there").code == 0
    assert Path("there/plan.yaml").is_file()


def test_a_report_into_a_folder_that_is_to_be_made_is_a_page_in_it(call, example, store):
    assert call("report", example, "--store", store, "--out", "pages/").code == 0
    assert Path("pages/report.html").is_file()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("report", "--format", "svg", "--out", "a.svg"), "a picture for each figure, and a.svg is a file."),
        (("report", "--format", "png", "--out", "-"), "a picture for each figure, and - is a file."),
        (("report", "--out", "-"), "'-' is not a file name (/dev/stdout prints the result)"),
        (("recommend", "--out", "-"), "'-' is not a file name (/dev/stdout prints the result)"),
    ],
)
def test_a_path_that_is_none_is_refused(call, example, store, words, says):
    result = call(words[0], example, "--store", store, *words[1:])
    assert result.code == 1
    assert says in result.err
    assert list(Path().iterdir()) == []
