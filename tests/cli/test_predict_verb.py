import json

import pytest
from jsonschema import validate


def test_table_compares_the_asked_allocation_with_the_recommended_one(call, example, store):
    result = call("predict", example, "--store", store, "--workers", 2, "--worker-cpu", "500m")
    assert result.code == 0
    assert "2 × 0.5" in result.out
    assert [line.split()[0] for line in result.out.splitlines()[3:5]] == ["asked", "recommended"]
    assert "times the throughput of the recommended allocation" in result.out


def test_json_has_the_published_schema(call, example, store):
    result = call("predict", example, "--store", store, "--workers", "2", "-o", "json")
    answer = json.loads(result.out)
    assert answer["schema"] == "sizewright/prediction/v1"
    assert answer["asked"]["allocation"]["worker"][0]["replicas"] == 2
    validate(answer, json.loads(call("schema", "prediction").out))


def test_not_enough_data_exits_with_4(call, example, tmp_path):
    (tmp_path / "t.csv").write_text("workers,ps,throughput\n1,1,100\n")
    result = call("predict", example, "--trials", tmp_path / "t.csv", "--workers", 2)
    assert result.code == 4
    assert "not enough data" in result.out


@pytest.mark.parametrize(
    ("option", "value", "code", "message"),
    [
        ("--workers", "0", 2, "must be at least 1"),
        ("--worker-cpu", "0", 1, "'worker_cpu' must be above 0"),
        ("--ps-cpu", "many", 1, "is not a number of cores"),
        ("--worker-memory", "lots", 1, "is not an amount of memory"),
    ],
)
def test_impossible_sizes_are_refused_in_one_sentence(call, example, store, option, value, code, message):
    result = call("predict", example, "--store", store, option, value)
    assert result.code == code
    assert message in " ".join(result.err.split())


def test_remedies_name_the_job_file_and_the_options(call, example, tmp_path):
    (tmp_path / "t.csv").write_text("workers,ps,throughput\n1,1,100\n")
    options = ("--trials", tmp_path / "t.csv", "--samples", 1000, "-o", "json")
    predicted, recommended = (json.loads(call(verb, example, *options).out) for verb in ("predict", "recommend"))
    assert f"sizewright profile {example}" in str(predicted["remedies"])
    assert predicted["remedies"] == recommended["remedies"]
