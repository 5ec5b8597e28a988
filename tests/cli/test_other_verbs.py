import json

import pytest
import yaml
from jsonschema import Draft202012Validator, validate

from sizewright.cli.choices import SCHEMAS
from sizewright.datasets.trials.store import TrialStore
from sizewright.spec import Job


def test_init_writes_a_starter_that_loads_and_fits_the_published_schema(call, tmp_path):
    path = tmp_path / "job.yaml"
    assert call("init", path).code == 0
    assert Job.load(path).name == "my-job"
    schema = json.loads(call("schema").out)
    validate(yaml.safe_load(path.read_text()), schema)
    repeated = call("init", path)
    assert repeated.code == 1
    assert "--force" in repeated.err
    assert call("init", path, "--force").code == 0


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_schema_is_a_valid_json_schema(call, kind):
    Draft202012Validator.check_schema(json.loads(call("schema", kind).out))


def test_memory_reports_each_table_and_server(call, example):
    result = call("memory", example, "-o", "json")
    assert result.code == 0
    report = json.loads(result.out)
    assert len(report["tables"]) == 26
    rows = sum(t["rows"] for t in report["tables"])
    assert report["embedding_bytes"] == rows * 16 * 4 * 2  # adagrad keeps one float of state a weight
    assert [s["ps"] for s in report["servers"]] == [1, 2, 3]
    table = call("memory", example).out
    assert "fewest that fit" in table


def test_memory_shows_dimensions_and_ids_where_tables_differ(call, example, tmp_path):
    path = tmp_path / "mixed.yaml"
    path.write_text("model: {tables: {count: 2, rows: [1000, 50], dim: [8, 128], pooling: [1, 24]}}")
    shown = [line.split()[:4] for line in call("memory", path).out.splitlines()]
    assert ["table", "rows", "dim", "ids"] in shown
    assert ["0", "1,000", "8", "1"] in shown
    assert ["1", "50", "128", "24"] in shown
    assert " dim " not in call("memory", example).out


def test_memory_of_a_command_is_that_of_its_described_tables(call, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("command: {run: python train.py}\nbounds: {worker: {replicas: [1, 3]}}")
    bare = call("memory", path)
    assert bare.code == 1
    assert "Describe them beside the command: model.tables with count, rows and dim." in bare.err
    tables = "{count: 2, rows: 100000, dim: 64, dtype: [float16, int8], optimizer: rowwise_adam}"
    path.write_text(path.read_text() + f"\nmodel: {{tables: {tables}}}")
    result = call("memory", path)
    assert result.code == 0
    shown = [line.split() for line in result.out.splitlines()]
    assert any(line[:4] == ["0", "100,000", "float16", "rowwise_adam"] for line in shown)
    assert any(line[:1] == ["3"] for line in shown)
    assert "the workers share all rows evenly" in " ".join(result.out.split())
    report = json.loads(call("memory", path, "-o", "json").out)
    assert [option["workers"] for option in report["workers"]] == [1, 2, 3]
    assert call("place", path, "--servers", "2").code == 0
    path.write_text(path.read_text().replace("[1, 3]}", "[1, 3], memory: 256Mi}"))
    assert call("memory", path).code == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("recommend", "JOB", "--objective", "deadline"),
            "deadline needs a `deadline`, such as 4h. Correct it.",
        ),
        (("memory", "JOB", "--cluster", "LIST"), "`sizewright schema cluster` lists its keys."),
        (("memory", "JOB", "--cluster", "BYTES"), "The cluster file BYTES is not UTF-8: byte 0xe9 at line 1."),
        (("run", "JOB", "--rails", "."), "Cannot read the guardrails file .: Is a directory."),
    ],
)
def test_error_names_the_input_that_is_wrong(call, example, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "LIST").write_text("- a")
    (tmp_path / "BYTES").write_bytes(b"\xe9")
    result = call(*(example if arg == "JOB" else arg for arg in args))
    assert (result.code, len(result.err.strip().splitlines())) == (1, 1)
    assert message in result.err


def test_memory_that_fits_nowhere_exits_3(call, example, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(example.read_text().replace("max_rows: 100000", "max_rows: 100000000").replace("4Gi]}", "512Mi]}"))
    assert call("memory", job).code == 3


def test_exported_trials_are_imported_unchanged(call, example, store, tmp_path):
    for name in ("t.csv", "t.parquet"):
        assert call("trials", "export", tmp_path / name, "--store", store, "--job", example).code == 0
        copy = tmp_path / f"{name}.db"
        assert call("trials", "import", tmp_path / name, "--store", copy).code == 0
        with TrialStore(copy) as copied, TrialStore(store) as original:
            assert copied.trials() == original.trials()
    listed = json.loads(call("trials", "list", "--store", store, "-o", "json").out)
    assert len(listed) == 8
    assert "test-host" not in call("trials", "list", "--store", store).err


def test_imported_measurements_count_for_the_named_job(call, example, tmp_path):
    csv = tmp_path / "mine.csv"
    rows = [f"{w},{p},{1000 * w / (1 + 0.2 * w / p):.1f}" for w in (1, 2, 4, 6) for p in (1, 2, 3)]
    csv.write_text("\n".join(["workers,ps,throughput", *rows]))
    store = tmp_path / "mine.db"
    assert call("trials", "import", csv, "--store", store, "--job", example).code == 0
    result = call("recommend", example, "--store", store, "-o", "json", "--extrapolate")
    assert json.loads(result.out)["evidence"]["trials"] == 12


def test_trials_file_replaces_the_store(call, example, store, tmp_path):
    csv = tmp_path / "t.csv"
    call("trials", "export", csv, "--store", store)
    from_file = call("recommend", example, "--trials", csv, "-o", "json")
    from_store = call("recommend", example, "--store", store, "-o", "json")
    assert json.loads(from_file.out)["target"] == json.loads(from_store.out)["target"]


def test_the_same_trials_are_not_added_twice(call, store, tmp_path):
    call("trials", "export", tmp_path / "t.csv", "--store", store)
    result = call("trials", "import", tmp_path / "t.csv", "--store", store, "-o", "json")
    counts = json.loads(result.out)
    assert (counts["added"], counts["already_there"], counts["left_out"], counts["dry_run"]) == (0, 8, [], False)
    assert "Nothing to add:" in call("trials", "import", tmp_path / "t.csv", "--store", store).out


def test_import_names_mapped_and_ignored_columns(call, example, store, tmp_path):
    csv = tmp_path / "mine.csv"
    csv.write_text("num_workers;ps;speed;note\n1;1;22,5;x\n")
    args = ("trials", "import", csv, "--store", store, "--job", example, "--map", "speed=throughput")
    result = call(*args)
    assert "Added 1 trial to" in result.out
    assert "Read num_workers as workers, speed as throughput. Left out: note." in " ".join(result.err.split())
    refused = call(*args[:-2], "-o", "json")
    assert refused.code == 1
    assert "lacks the column throughput; it has num_workers, ps, speed, note" in " ".join(refused.err.split())


def test_dry_run_of_import_counts_trials_and_adds_none(call, example, store, tmp_path):
    csv, new_store = tmp_path / "mine.csv", tmp_path / "other.db"
    csv.write_text("workers,ps,throughput\n1,1,800\n2,1,1500\n")
    assert "Would add 2 trials to a new store" in call("trials", "import", csv, "--store", new_store, "--dry-run").out
    assert not new_store.exists()
    counts = json.loads(call("trials", "import", csv, "--store", store, "--dry-run", "-o", "json").out)
    assert (counts["added"], counts["dry_run"]) == (2, True)
    assert len(json.loads(call("trials", "list", "--store", store, "-o", "json").out)) == 8


def test_tables_from_data_keep_their_hash_after_counting(example, shared, tmp_path):
    description = yaml.safe_load(example.read_text())
    description["model"]["tables"] = {"count": 26, "rows": "from-data", "dim": 16}
    log = shared / "data" / "criteo-sample" / "criteo_sample.txt"
    description["data"] = {"format": "criteo", "path": str(log)}
    job = Job.model_validate(description)
    counted = job.with_rows((5,) * 26)
    assert counted.hash == job.hash
    assert counted.model.tables.sizes() == (5,) * 26


def test_every_verb_prints_yaml(call, example, store, tmp_path):
    for args in (
        ("init", tmp_path / "j.yaml"),
        ("memory", example),
        ("schema", "plan"),
        ("trials", "list", "--store", store),
        ("trials", "export", tmp_path / "t.csv", "--store", store),
        ("recommend", example, "--store", store),
    ):
        assert yaml.safe_load(call(*args, "-o", "yaml").out)


def test_memory_names_the_number_of_servers_that_would_fit(call, example, tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(example.read_text().replace("max_rows: 100000", "max_rows: 100000000").replace("4Gi]}", "512Mi]}"))
    report = json.loads(call("memory", job, "-o", "json").out)
    assert report["least_ps"] is None
    assert report["needed_ps"] > 3
    assert f"{report['needed_ps']} PS would fit" in call("memory", job).out
