import json
from pathlib import Path

import pytest

from sizewright.models import model_names

TABLES = Path(__file__).resolve().parents[2] / "benchmarks" / "tables"


def test_models_are_compared_on_measured_tables(call):
    result = call("models", "compare", TABLES / "counts.csv", "--seeds", 1, "-o", "json")
    assert result.code == 0, result.err
    rows = json.loads(result.out)
    assert {row["model"] for row in rows} == set(model_names())
    best = next(row for row in rows if row["model"] == "default")
    assert best["anywhere"] < 0.2
    assert best["fitted"] == 1.0


def test_table_marks_the_smallest_error_of_each_file(call):
    options = ("--seeds", 1, "--model", "default", "--model", "usl")
    result = call("models", "compare", TABLES / "counts.csv", TABLES / "network.csv", *options)
    assert result.code == 0, result.err
    assert result.out.count("→") == 2
    assert "network" in result.out


def test_models_are_listed_by_name(call):
    assert call("models", "list").out.split() == list(model_names())


@pytest.mark.parametrize(
    ("args", "message"),
    [(["nothing.csv"], "No table at"), ([TABLES / "counts.csv", "--model", "oracle"], "no throughput model")],
)
def test_invalid_comparison_is_refused_in_one_sentence(call, args, message):
    result = call("models", "compare", *args)
    assert result.code == 1
    assert message in result.err
    assert "Traceback" not in result.err


def test_table_with_too_few_allocations_is_reported(call, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("workers,ps,throughput\n1,1,10\n2,1,20\n")
    result = call("models", "compare", path)
    assert result.code == 1
    assert "6 distinct allocations" in result.err


def test_map_option_maps_columns_of_a_compared_table(call, tmp_path):
    rows = "num_workers;speed\n" + "".join(f"{w};{10 * w / (1 + 0.1 * w):.1f}\n" for w in (1, 2, 3, 4, 6, 8))
    (tmp_path / "mine.csv").write_text(rows.replace(".", ","))
    args = ("models", "compare", tmp_path / "mine.csv", "--model", "usl", "--trials", 4, "--seeds", 1, "-o", "json")
    assert call(*args, "--map", "speed=throughput").code == 0
    assert "lacks the column throughput" in " ".join(call(*args).err.split())
