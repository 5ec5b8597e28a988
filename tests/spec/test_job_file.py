from __future__ import annotations

import copy
import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sizewright.spec
from sizewright.errors import JobError
from sizewright.formatting import GIB, MIB
from sizewright.models.memory.report import report
from sizewright.spec import Bounds, Cluster, Data, Gpu, Job, Model, Optimizer, Prices, RoleBounds, Tables, Training
from sizewright.spec._base import parse
from sizewright.spec.model import FIRST_CRITEO_ROWS

EXAMPLES = Path(__file__).parents[2] / "examples"
STARTER = Path(sizewright.spec.__file__).with_name("starter.yaml")


def load(folder: Path, text: str | bytes) -> Job:
    path = folder / "job.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Job.load(path)


def refusal(folder: Path, text: str | bytes) -> str:
    """Return the error message of loading this text, without its remedy."""
    with pytest.raises(JobError) as caught:
        load(folder, text)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)
    return caught.value.message


def test_starter_file_has_the_documented_values() -> None:
    job = Job.load(STARTER)
    assert job.name == "my-job"
    assert job.model.tables.max_rows == 100_000
    assert len(job.model.tables.sizes()) == 26
    assert max(job.model.tables.sizes()) == 100_000
    assert job.model.optimizer == Optimizer(name="adagrad")
    assert job.bounds.worker == RoleBounds(replicas=(1, 6), cpu=(0.2, 2.0), memory=(512 * MIB, 4 * GIB))
    assert job.bounds.batch_size is None
    assert (job.objective, job.deadline) == ("balanced", None)


def test_every_key_is_optional(tmp_path: Path) -> None:
    assert load(tmp_path, "name: job") == Job()


def test_short_forms_equal_their_long_forms(tmp_path: Path) -> None:
    text = "{deadline: 4h, model: {optimizer: adam}, bounds: {worker: {replicas: 3, cpu: 500m, memory: 1Gi}}}"
    job = load(tmp_path, text)
    assert job.deadline == 14400
    assert job.model.optimizer.name == "adam"
    assert job.bounds.worker == RoleBounds(replicas=(3, 3), cpu=(0.5, 0.5), memory=(GIB, GIB))


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("nmae: x", "nmae", "name"),
        ("modle: {}", "modle", "model"),
        ("model: {tabels: {}}", "model.tabels", "tables"),
        ("model: {tables: {row: 3}}", "model.tables.row", "rows"),
        ("model: {optimizer: {learningrate: 1}}", "model.optimizer.learningrate", "learning_rate"),
        ("bounds: {worker: {memroy: 1Gi}}", "bounds.worker.memroy", "memory"),
        ("bounds: {ps: {replica: 2}}", "bounds.ps.replica", "replicas"),
        ("prices: {core_hours: 1}", "prices.core_hours", "core_hour"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(
    tmp_path: Path, text: str, key: str, nearest: str
) -> None:
    assert f"unknown key '{key}' (did you mean '{nearest}'?)" in refusal(tmp_path, text)


def test_an_unknown_key_like_no_other_lists_the_known_ones(tmp_path: Path) -> None:
    assert "unknown key 'prices.zzzz'; known: core_hour, gib_hour, gpu_hour" in refusal(tmp_path, "prices: {zzzz: 1}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds nothing"),
        ("# only a comment", "it holds nothing"),
        ("[1, 2]", "it holds list"),
        ("just words", "it holds str"),
        ("a: [1\n", "is not valid YAML at line 2, column 1"),
        ("a: 1\n\tb: 2", "is not valid YAML at line 2"),
        ("name: x\nname2: !!python/object:os.system {}", "is not valid YAML at line 2"),
        (b"\x00\x01\x02", "is not UTF-8: it holds NULs"),
        (b"\xff\xfe\x80binary", "has the byte order mark of UTF-16"),
        ("deadline: 2020-13-45", "'2020-13-45' is not a duration"),
        ("training: {samples: 0x_}", "'0x_' is not a whole number: digits are decimal"),
        ("a: " + "[" * 5000, "nested more than 100 levels deep"),
        ("1: 2", "keys must be text"),
        ('"a\\nb": 1', "unknown key 'a b'"),
    ],
)
def test_file_that_is_not_a_job_is_refused_in_one_sentence(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert message in refusal(tmp_path, text)


def test_missing_file_or_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"No job file at .*sizewright init"):
        Job.load(tmp_path / "none.yaml")
    with pytest.raises(JobError, match="Cannot read the job file"):
        Job.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bounds: {worker: {replicas: [4, 2]}}", "the minimum (4) is above the maximum (2)"),
        ("bounds: {worker: {cpu: [2, 500m]}}", "the minimum (2) is above the maximum (0.5)"),
        (
            "bounds: {ps: {replicas: 0}}",
            "bounds.ps.replicas is 0, but a built-in model needs at least 1 PS",
        ),
        ("bounds: {worker: {replicas: 0}}", "a job has at least 1 worker"),
        ("bounds: {ps: {cpu: 0}}", "cpu must be above 0"),
        ("bounds: {ps: {memory: 0}}", "memory must be above 0"),
        ("bounds: {ps: {replicas: [0, 2]}}", "replicas start at 1"),
        ("bounds: {ps: {replicas: -1}}", "'bounds.ps.replicas'"),
        ("bounds: {ps: {replicas: [1, 1000000000]}}", "must be at most 10,000"),
        ("bounds: {ps: {cpu: [0, 1]}}", "cpu must be above 0"),
        ("bounds: {ps: {memory: [1Gi]}}", "'bounds.ps.memory[1]' is missing"),
        ("bounds: {ps: {memory: 4h}}", "is not an amount of memory: it has no unit h (write 16Gi, 512M or bytes)"),
        ("bounds: {batch_size: [512, 256]}", "batch_size must be [minimum, maximum]"),
        ("{training: {global_batch_size: 512, batch_size: 64}}", "leave it out, or leave out global_batch_size"),
        ("{training: {global_batch_size: 512}, bounds: {batch_size: [1, 2]}}", "bounds.batch_size is for a batch per"),
        (
            "{training: {global_batch_size: 4096}, bounds: {worker: {replicas: [5, 7]}}}",
            "training.global_batch_size 4,096 cannot be shared evenly by any number of workers from 5 to 7 "
            "(bounds.worker.replicas), but by 1, 2, 4, 8, 16, 32",
        ),
        ("training: {global_batch_size: 0}", "'training.global_batch_size' must be at least 1"),
        ("bounds: {batch_size: [0, 256]}", "'bounds.batch_size[0]' must be at least 1, got 0"),
        ("objective: deadline", "objective deadline needs a `deadline`, such as 4h"),
        ("objective: fastest", "'objective'"),
        ("deadline: 0", "'deadline'"),
        ("name: Not A Name", "'name'"),
        ("data: {format: criteo}", "format criteo needs a path"),
        ("data: {path: x.tsv}", "synthetic data takes no path"),
        ("model: {tables: {count: 3}}", "count is 3, but rows are missing: give the rows of each table"),
        (
            "model: {tables: {count: 3, rows: criteo-kaggle}}",
            "criteo-kaggle has 26 tables but count is 3",
        ),
        ("model: {tables: {count: 2, rows: [1, 2, 3]}}", "rows lists 3 tables but count is 2"),
        ("model: {tables: {rows: 0}}", "rows must be 1 to"),
        ("model: {tables: {dim: 0}}", "dim must be 1 to 4,096 for every table"),
        ("model: {tables: {count: 2, dim: [8, 16, 8]}}", "dim lists 3 tables but count is 2"),
        ("model: {tables: {count: 2, pooling: [1, 0]}}", "pooling must be above 0 and at most 10,000 for every table"),
        ("model: {tables: {count: 2, rows: 9, dtype: [int8]}}", "dtype lists 1 table but count is 2"),
        ("model: {tables: {dtype: int4}}", "'model.tables.dtype'"),
        ("model: {tables: {optimizer: ftrl}}", "'model.tables.optimizer'"),
        ("{model: {tables: {pooling: 2}}, data: {format: criteo, path: log.txt}}", "needs data.format: synthetic"),
        ("model: {top_mlp: [0]}", "every width must be 1 to"),
        ("training: {batch_size: 0}", "'training.batch_size'"),
        ("training: {max_staleness: -1}", "'training.max_staleness'"),
        ("training: {embedding_device: gpu}", "'training.embedding_device'"),
        ("prices: {core_hour: -1}", "'prices.core_hour'"),
        ("training: {}\nbounds: []\nprices: 1\ndata: 2\nmodel: 3\ndeploy: 4", "and 1 more"),
    ],
)
def test_impossible_values_are_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(tmp_path, text)


NUMBERS = [
    "deadline", "training.samples", "training.batch_size", "training.dense_sync_steps",
    "training.max_staleness", "data.zipf",
    "data.max_broken_share", "prices.core_hour", "prices.gib_hour", "prices.gpu_hour", "bounds.worker.replicas",
    "bounds.worker.cpu", "bounds.worker.memory", "bounds.ps.cpu", "bounds.batch_size", "model.dense_features",
    "model.tables.count", "model.tables.rows", "model.tables.dim", "model.tables.max_rows", "model.top_mlp",
    "model.cin", "model.cross_layers", "model.optimizer.learning_rate",
]  # fmt: skip


def with_value(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_must_be_finite(tmp_path: Path, key: str, value: float) -> None:
    assert key in refusal(tmp_path, yaml.safe_dump(with_value(key, value)))


ODD = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-3, 10**9), st.sampled_from([10**18, 10**400, -(10**400)]),
    st.sampled_from(["1e999", "4h", "16Gi", "", "\n", "from-data"]), st.text(max_size=5),
    st.lists(st.integers(-1, 10**13), max_size=3), st.just({}), st.just({"x": 1}),
)  # fmt: skip


@given(
    key=st.sampled_from([*NUMBERS, "name", "model", "bounds", "objective", "data.format", "deploy.command"]), value=ODD
)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_value_at_any_key_is_a_job_that_can_be_sized_or_one_sentence(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(yaml.safe_dump(with_value(key, value)), encoding="utf-8")
    try:
        job = Job.load(path)
    except JobError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    assert len(job.hash) == 12
    if job.model.tables.known and job.model.tables.count < 100:
        assert report(job, []).worker_memory_bytes > 0


def test_hash_depends_only_on_what_is_trained_and_how() -> None:
    job = Job.load(STARTER)
    neutral_changes = [
        {"name": "other"},
        {"training": job.training.model_copy(update={"samples": 1})},
        {"bounds": Bounds()},
        {"prices": Prices(core_hour=7)},
        {"objective": "time"},
        {"deadline": 3600.0},
        {"data": job.data.model_copy(update={"max_broken_share": 0.5})},
    ]
    assert {job.model_copy(update=change).hash for change in neutral_changes} == {job.hash}

    def model(**change: Any) -> dict[str, Any]:
        return {"model": job.model.model_copy(update=change)}

    hash_changes = [
        model(family="dcn"),
        model(top_mlp=(8,)),
        model(optimizer=Optimizer(name="adam")),
        model(tables=Tables(dim=8)),
        {"data": job.data.model_copy(update={"zipf": 1.2})},
        {"training": job.training.model_copy(update={"batch_size": 64})},
        {"training": job.training.model_copy(update={"sync": "sync"})},
        {"training": Training(dense_sync_steps=4)},
        {"training": Training(embedding_device="cuda")},
        {"training": Training(max_staleness=0)},
        {"training": Training(max_staleness=1)},
    ]
    hashes = {job.model_copy(update=change).hash for change in hash_changes}
    assert len(hashes) == len(hash_changes)
    assert job.hash not in hashes


@pytest.mark.parametrize(
    ("training", "old_hash"),
    [(Training(), "6119d3ac283d"), (Training(sync="sync", batch_size=64), "748ae99b383a")],
)
def test_older_hashes_stay_valid(training: Training, old_hash: str) -> None:
    """Hashes from before these fields existed stay the same, so that old trials still belong to their jobs."""
    assert (training.embedding_device, training.max_staleness) == ("cpu", None)
    old_model = Model(tables=Tables(rows=FIRST_CRITEO_ROWS))
    assert Job(model=old_model, training=training).hash == old_hash


def test_the_hash_stays_when_the_file_is_written_again(tmp_path: Path) -> None:
    job = Job.load(STARTER)
    reloaded = load(tmp_path, yaml.safe_dump(job.model_dump(mode="json", by_alias=True)))
    assert reloaded == job
    assert reloaded.hash == job.hash


def test_with_methods_return_changed_copies() -> None:
    job = Job.load(STARTER)
    assert job.with_batch_size(64).training.batch_size == 64
    assert job.with_rows((5,) * 26).model.tables.sizes() == (5,) * 26
    assert job.with_data("x.tsv").data.format == "criteo"
    assert job.with_objective("time").objective == "time"
    for objective in ("deadline", "fun"):
        with pytest.raises(JobError, match="objective and deadline"):
            job.with_objective(objective)


@given(
    rows=st.lists(st.integers(1, 10**7), min_size=1, max_size=5), cap=st.integers(1, 10**6), scale=st.floats(1e-6, 1)
)
def test_tables_are_folded_then_scaled(rows: list[int], cap: int, scale: float) -> None:
    tables = Tables(count=len(rows), rows=tuple(rows), max_rows=cap)
    assert tables.sizes() == tuple(min(size, cap) for size in rows)
    assert all(1 <= size <= max(1, full) for size, full in zip(tables.sizes(scale), tables.sizes(), strict=True))


def test_records_are_frozen() -> None:
    job = copy.copy(Job())
    with pytest.raises(ValueError, match="records are frozen"):
        job.name = "x"


def test_measured_jobs_keep_their_hash_and_criteo_kaggle_is_the_full_log() -> None:
    """Trials were measured when `criteo-kaggle` stood for a part of the log; these jobs list its rows."""
    with (EXAMPLES / "criteo-trials.csv").open(encoding="utf-8") as file:
        measured = {row["job_hash"] for row in csv.DictReader(file)}
    assert measured == {Job.load(EXAMPLES / "criteo.yaml").hash}
    old_tables, current_tables = Tables(rows=FIRST_CRITEO_ROWS), Tables()
    assert (sum(old_tables.sizes()), sum(current_tables.sizes())) == (9_247_304, 33_762_577)
    assert Job(model=Model(tables=old_tables)).hash == "6119d3ac283d"
    assert (
        Job(model=Model(tables=current_tables)).hash
        == Job(model=Model(tables=Tables(rows=current_tables.sizes()))).hash
    )
    assert Job(model=Model(tables=current_tables)).hash != Job(model=Model(tables=old_tables)).hash


def test_every_table_of_the_benchmarks_is_of_the_job_that_it_describes() -> None:
    folder = EXAMPLES.with_name("benchmarks") / "tables"
    for card in folder.glob("*.json"):
        job = Job.model_validate(json.loads(card.read_text(encoding="utf-8"))["job"])
        with card.with_suffix(".csv").open(encoding="utf-8") as file:
            assert {row["job_hash"] for row in csv.DictReader(file)} == {job.hash}, card.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {tables: {rows: abc}}",
         "'model.tables.rows' must be a whole number, a list, 'criteo-kaggle' or 'from-data', got 'abc'"),
        ("model: {tables: {rows: [1, x]}}", "'model.tables.rows[1]': 'x' is not a whole number"),
        ("model: {optimizer: adagard}", "'model.optimizer' must be 'sgd', 'adagrad'"),
        ("model: {cin: []}", "'model.cin' must be a list of at least 1 value, got []"),
        ("name: Not A Name", "'name' must be small letters, digits and inner hyphens, at most 52 characters, got 'Not"),
        ("name: 3", "'name' must be text, got 3; put it in quotes"),
        ("name: null", "'name' must be text, got nothing"),
        ("objective: speed", "'objective' must be 'balanced', 'cost', 'time' or 'deadline', got 'speed'"),
        ("bounds: {worker: {replicas: four}}", "'bounds.worker.replicas': 'four' is not a whole number"),
        ("bounds: {worker: {replicas: [1, 2, 3]}}", "'bounds.worker.replicas' must be a list of at most 2 values"),
        ("bounds: {worker: {memory_bytes: [1Gi, much]}}", "'bounds.worker.memory_bytes[1]': 'much' is not an amount"),
        ("bounds: 3", "'bounds' must be a mapping of keys and values, got 3"),
        ("command: {run: x, env: {A: 1}}", "'command.env.A' must be text; put it in quotes"),
        ("training: {batch_size: true}", "'training.batch_size': true is not a whole number"),
        ("training: {batch_size: 1.5}", "'training.batch_size' must be a whole number, got 1.5"),
        ("data: {max_broken_share: 2}", "'data.max_broken_share' must be at most 1, got 2"),
        ("deploy: {namespace: A_B}", "'deploy.namespace' must be small letters, digits and inner hyphens, at most 63"),
        ("prices: {core_hour: 1,5}", "'prices': keys must be text (in braces a comma ends a value)"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_key_as_written_the_value_and_what_is_allowed(
    tmp_path: Path, text: str, message: str
) -> None:
    error = refusal(tmp_path, text)
    assert message in error
    for word in ("Input", "Value error", "tuple[", "should", "pattern", "function"):
        assert word not in error


@pytest.mark.parametrize("no_rendezvous", ["0", "[0, 0]"])
@pytest.mark.parametrize("rendezvous", ["tf_config", "hosts", "torchrun"])
def test_command_with_0_ps_has_none(tmp_path: Path, rendezvous: str, no_rendezvous: str) -> None:
    path = tmp_path / "job.yaml"
    text = f"command: {{run: python x.py, rendezvous: {rendezvous}}}\n"
    path.write_text(text + f"bounds: {{ps: {{replicas: {no_rendezvous}, cpu: 0.5}}}}")
    job = Job.load(path)
    assert not job.has_ps
    path.write_text(text)
    assert Job.load(path).has_ps == (rendezvous != "torchrun")
    assert Job.load(path).hash == job.hash  # trials of both belong to one job and differ in their PS


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_job_file_with_a_byte_order_mark_is_read(tmp_path: Path, encoding: str) -> None:
    assert load(tmp_path, "# é\r\nname: ctr\r\n".encode(encoding)).name == "ctr"


@pytest.mark.parametrize(
    ("data", "message", "remedy"),
    [
        ("name: a\n# é\n".encode("latin-1"), "is not UTF-8: byte 0xe9 at line 2", "iconv"),
        ("name: é\n".encode("utf-16-le"), "is not UTF-8: it holds NULs, as UTF-16", "Save it as UTF-8"),
        (b"\x1f\x8b\x08\x00", "is compressed", "Unpack"),
        (b"name: {{ .Values.name }}\n", "is a template of Helm or Jinja: it holds {{ .Values.name }}", "helm template"),
        (b"{{- if .a }}\nname: a\n{{- end }}\n", "line 1, is a template", "helm template"),
        (b"{% if a %}\nname: a\n{% endif %}\n", "holds {% if a %}", "Render the template first"),
        (b'deploy: {image: "{{ image }}:1"}\n', "holds {{ image }}", "Render the template first"),
    ],
)
def test_file_of_another_kind_is_refused_with_a_way_to_make_a_job(
    tmp_path: Path, data: bytes, message: str, remedy: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(data)
    with pytest.raises(JobError) as caught:
        Job.load(path)
    assert message in caught.value.message
    assert remedy in caught.value.remedy


def test_braces_in_a_comment_or_command_are_not_a_template(tmp_path: Path) -> None:
    job = load(tmp_path, "# {{ x }}\ncommand: {run: \"docker ps --format '{{.ID}}'\"}\n")
    assert job.command is not None
    assert job.command.run[-1] == "{{.ID}}"


SECTIONS = sorted(name for name, field in Job.model_fields.items() if name not in ("name", "objective"))


@pytest.mark.parametrize("section", SECTIONS)
def test_empty_section_equals_a_missing_section(tmp_path: Path, section: str) -> None:
    assert load(tmp_path, f"name: a\n{section}:\n") == load(tmp_path, "name: a\n")
    assert load(tmp_path, "name: a\nbounds:\n  worker:\n  ps:\n") == load(tmp_path, "name: a\n")


def test_an_empty_value_is_still_refused(tmp_path: Path) -> None:
    assert "'training.batch_size' must be a whole number, got nothing" in refusal(
        tmp_path, "training: {batch_size: }\n"
    )


@pytest.mark.parametrize(
    ("text", "lower_case"),
    [
        ("objective: Cost\n", "objective: cost\n"),
        ("objective: DEADLINE\ndeadline: PT4H\n", "objective: deadline\ndeadline: 14400\n"),
        ("training: {device: CUDA, sync: Async}\n", "training: {device: cuda, sync: async}\n"),
        ("model: {family: DCN, optimizer: Adagrad}\n", "model: {family: dcn, optimizer: adagrad}\n"),
        ("command: {run: python a.py, progress: JSON, rendezvous: TF_Config}\n",
         "command: {run: python a.py, progress: json, rendezvous: tf_config}\n"),
    ],
)  # fmt: skip
def test_choices_are_taken_in_any_case(tmp_path: Path, text: str, lower_case: str) -> None:
    assert load(tmp_path, text) == load(tmp_path, lower_case)


@pytest.mark.parametrize("device", ["cuda:0", "CUDA:1", "gpu"])
def test_a_device_with_a_number_says_what_to_write(tmp_path: Path, device: str) -> None:
    assert f"must be cpu or cuda, got '{device}' (write cuda: " in refusal(
        tmp_path, f"training: {{device: '{device}'}}"
    )


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("2", Gpu(count=2)),
        ("'2'", Gpu(count=2)),
        ("a100:2", Gpu(kind="a100", count=2)),
        ("{kind: a100, count: 2}", Gpu(kind="a100", count=2)),
        ("0", None),
        ("", None),
    ],
)
def test_gpus_of_a_host_are_a_number_or_a_kind_and_a_number(tmp_path: Path, text: str, gpu: Gpu | None) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"hosts:\n- kind: a\n  cpu: 4\n  memory: 8Gi\n  gpu: {text}\nquota:\n")
    assert Cluster.load(path).hosts[0].gpu == gpu


@pytest.mark.parametrize("text", ["a100", "true", "2.5", "[1]", "-1", "2 x a100"])
def test_invalid_gpus_are_refused_with_the_right_spelling(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"hosts:\n- kind: a\n  cpu: 4\n  memory: 8Gi\n  gpu: {text}\n")
    with pytest.raises(JobError, match=r"'hosts\[0\].gpu' must look like {kind: a100, count: 2}, a100:2 or 2, got"):
        Cluster.load(path)


@given(st.integers(1, 10**6), st.integers(1, 64), st.integers(0, 64))
def test_workers_share_a_global_batch_evenly_or_the_job_is_refused(total: int, low: int, more: int) -> None:
    description = {
        "training": {"global_batch_size": total},
        "bounds": {"worker": {"replicas": [low, low + more]}},
    }
    counts = [workers for workers in range(low, low + more + 1) if total % workers == 0]
    if not counts:
        with pytest.raises(JobError, match="cannot be shared evenly"):
            Job.model_validate(description)
        return
    job = Job.model_validate(description)
    assert list(job.worker_counts) == counts
    assert all(workers * job.batch_size_for(workers) == total for workers in counts)


def test_a_job_with_a_global_batch_stays_the_same_when_it_is_written_again() -> None:
    job = Job.model_validate({"training": {"global_batch_size": 4096}})
    again = Job.model_validate(job.model_dump(mode="json", by_alias=True))
    assert again == job
    assert again.hash == job.hash
    assert job.hash not in {Job().hash, Job().with_batch_size(4096).hash}
    others = [{"bounds": {"worker": {"replicas": [2, 4]}}}, {"training": {"global_batch_size": 8192}}]
    same, other = (Job.model_validate({"training": {"global_batch_size": 4096}} | change) for change in others)
    assert same.hash == job.hash != other.hash


def test_the_chief_of_a_command_without_ps_shares_the_global_batch() -> None:
    command = {"run": "python train.py", "rendezvous": "tf_config", "chief": {}}
    job = Job.model_validate(
        {"command": command, "training": {"global_batch_size": 12}, "bounds": {"ps": {"replicas": 0}}}
    )
    assert job.worker_counts == (1, 2, 3, 5)
    assert job.batch_size_for(3) == 3
    with_ps = job.model_copy(update={"bounds": Bounds()})
    assert with_ps.batch_size_for(3) == 4


DESCRIPTIONS = [{"tables": {"rows": "criteo-kaggle"}}, {"tables": {"count": 2, "rows": 9, "dtype": "int8"}}, {}]


@pytest.mark.parametrize("model", DESCRIPTIONS)
def test_description_beside_a_command_is_kept_and_does_not_count_in_the_hash(model: dict[str, Any]) -> None:
    bare = Job.model_validate({"command": {"run": "python train.py"}})
    described = Job.model_validate({"command": {"run": "python train.py"}, "model": model})
    assert (bare.describes_tables, described.describes_tables) == (False, True)
    assert described.hashes == bare.hashes
    for job in (bare, described):
        for again in (job.model_dump(), job.model_dump(mode="json", by_alias=True)):
            assert Job.model_validate(again).describes_tables == job.describes_tables
        assert job.with_objective("time").describes_tables == job.describes_tables
        assert job.with_samples(5).describes_tables == job.describes_tables


def test_older_dump_of_a_command_describes_no_tables() -> None:
    older = {"model": Model().model_dump(), "data": Data().model_dump(), "command": {"run": "python train.py"}}
    assert not Job.model_validate(older).describes_tables
    assert Job().describes_tables


@pytest.mark.parametrize(
    ("written", "kind", "count"),
    [(2, "gpu", (2, 2)), ("a100:2", "a100", (2, 2)), ([1, 8], "gpu", (1, 8)), ({"count": 4}, "gpu", (4, 4)),
     ({"kind": "a100", "count": [0, 8]}, "a100", (0, 8))],
)  # fmt: skip
def test_gpus_of_a_worker_are_bounded(written: object, kind: str, count: tuple[int, int]) -> None:
    bounds = Bounds.model_validate({"worker": {"gpu": written}})
    assert bounds.worker.gpu is not None
    assert (bounds.worker.gpu.kind, bounds.worker.gpu.count) == (kind, count)
    assert Bounds.model_validate(bounds.model_dump(by_alias=True)) == bounds
    assert Bounds.model_validate({"worker": {"gpu": 0}}).worker.gpu is None


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"worker": {"gpu": ["a100", "h100"]}}, "kinds of GPUs are not mixed; name one"),
        ({"worker": {"gpu": {"kind": ["a100", "h100"], "count": 1}}}, "kinds of GPUs are not mixed; name one"),
        ({"worker": {"gpu": [4, 1]}}, r"'bounds.worker.gpu': the minimum \(4\) is above the maximum \(1\)"),
        ({"worker": {"gpu": {"count": 0}}}, "the maximum is 0; leave gpu out"),
        ({"worker": {"gpu": "many"}}, "'bounds.worker.gpu' must look like"),
        ({"worker": {"gpu": {"kind": "a 100", "count": 1}}}, "letters, digits, points"),
        ({"ps": {"gpu": 1}}, "only workers have GPUs"),
        ({"worker": {"gpu": 1}}, "needs training.device: cuda"),
    ],
)
def test_gpus_that_cannot_be_meant_are_refused(bounds: dict[str, object], message: str) -> None:
    with pytest.raises(JobError, match=message):
        parse(Job, {"bounds": bounds}, "job.yaml")
