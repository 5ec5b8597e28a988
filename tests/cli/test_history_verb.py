from __future__ import annotations

import json
from pathlib import Path

import pytest

CSV = (
    "id,name,status,workers,ps,batch_size,duration_s,samples,expected,expected_lower,expected_upper\n"
    "a-1,ctr,finished,4,2,512,100,50000,480,400,560\n"
    "a-2,ctr,failed,4,2,512,30,,,,\n"
)


@pytest.fixture
def imported(call, tmp_path: Path, example: Path) -> Path:
    (tmp_path / "runs.csv").write_text(CSV)
    result = call("history", "import", tmp_path / "runs.csv", "--job", example, "--store", tmp_path / "h.db")
    assert result.code == 0, result.err
    assert "Added 2 finished jobs" in result.out
    return tmp_path / "h.db"


def test_runs_are_imported_listed_and_exported(call, imported, tmp_path):
    repeated = call("history", "import", tmp_path / "runs.csv", "--store", imported)
    assert repeated.code == 0
    assert repeated.out.startswith(f"Nothing to add: {imported} already has all of the 2 finished jobs")
    listed = call("history", "list", "--store", imported).out
    assert "ctr" in listed
    assert "500" in listed
    assert "480" in listed
    listed_runs = json.loads(call("history", "list", "--store", imported, "-o", "json").out)
    assert [run["id"] for run in listed_runs] == ["a-1", "a-2"]
    exported = call("history", "export", tmp_path / "out.json", "--store", imported, "-o", "json")
    assert json.loads(exported.out)["finished_jobs"] == 2
    preview = call(
        "history", "import", tmp_path / "out.json", "--store", tmp_path / "other.db", "--dry-run", "-o", "json"
    )
    assert (json.loads(preview.out)["added"], (tmp_path / "other.db").exists()) == (2, False)
    assert "Added 2" in call("history", "import", tmp_path / "out.json", "--store", tmp_path / "other.db").out


def test_jobs_of_slurms_accounting_are_added_once(call, tmp_path):
    tables = Path(__file__).parents[1] / "datasets" / "runs" / "sacct"
    store = tmp_path / "h.db"
    preview = call("history", "sacct", tables / "slurm-22.05.txt", "--store", store, "--dry-run", "-o", "json")
    assert (json.loads(preview.out)["added"], store.exists()) == (7, False)
    assert "Added 7 finished jobs" in call("history", "sacct", tables / "slurm-22.05.txt", "--store", store).out
    (tmp_path / "cut.txt").write_text((tables / "slurm-22.05.txt").read_text()[:-40])
    refused = call("history", "sacct", tables / "slurm-22.05.txt", tmp_path / "cut.txt", "--store", store)
    assert refused.code == 1
    assert "The table may be cut short" in refused.err
    (tmp_path / "ctr.yaml").write_text("name: ctr")
    described = call(
        "history", "sacct", tables / "slurm-22.05.txt", "--job", tmp_path / "ctr.yaml", "--store", tmp_path / "other.db"
    )
    assert described.code == 0, described.err
    runs = json.loads(call("history", "list", "--store", tmp_path / "other.db", "-o", "json").out)
    assert [bool(run["job"]) for run in runs] == [run["name"] == "ctr" for run in runs]


def test_invalid_arguments_are_refused_in_one_sentence_each(call, tmp_path):
    for args in (
        ("import", tmp_path / "none.csv"),
        ("import", tmp_path),
        ("prometheus", "http://127.0.0.1:9"),
        ("prometheus", "nowhere"),
        ("prometheus", "http://127.0.0.1:9", "--since", "soon"),
        ("prometheus", "http://127.0.0.1:9", "--step", "0s"),
        ("sacct", tmp_path / "none.txt"),
        ("sacct", __file__),
        ("list", "--store", tmp_path / "none.db"),
    ):
        result = call("history", *args)
        assert result.code == 1, args
        assert len(result.err.strip().splitlines()) == 1, result.err
        assert result.err.startswith("Error: ")


def test_drift_of_imported_runs_sets_the_exit_code(call, tmp_path):
    header, row = CSV.splitlines()[:2]
    good = [row.replace("a-1", f"g-{i}") for i in range(12)]
    bad = [row.replace("a-1", f"b-{i}").replace("50000", "20000") for i in range(12)]
    for name, rows, code in (("good", good, 0), ("bad", bad, 5)):
        (tmp_path / "runs.csv").write_text("\n".join([header, *rows]))
        store = tmp_path / f"{name}.db"
        assert call("history", "import", tmp_path / "runs.csv", "--store", store).code == 0
        result = call("models", "drift", "--store", store, "-o", "json")
        assert result.code == code, result.err
        assert json.loads(result.out)["drifted"] == (code == 5)
