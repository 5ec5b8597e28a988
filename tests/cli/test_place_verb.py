"""`sizewright place` and `sw.place_tables`: inputs, output and faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import sizewright as sw
from sizewright.errors import InputError
from tests.cli.conftest import Result

Call = Callable[..., Result]


def test_table_names_the_tables_of_each_server(call: Call, example: Path) -> None:
    result = call("place", str(example), "--servers", "4")
    assert result.code == 0
    assert "tables on 4 servers" in result.out
    assert "No placement has one that is lower by more than" in result.out


def test_json_is_what_code_reads(call: Call, example: Path) -> None:
    result = call("place", str(example), "--servers", "2", "--whole", "-o", "json")
    placement = json.loads(result.out)
    assert placement["schema"] == "sizewright/table-placement/v1"
    assert sorted(part["table"] for server in placement["servers"] for part in server["parts"]) == list(range(26))


def test_loads_of_a_file(tmp_path: Path, example: Path) -> None:
    loads = tmp_path / "loads.csv"
    loads.write_text("table,load\n" + "".join(f"{table},{100 if table == 7 else 1}\n" for table in range(26)))
    placement = sw.place_tables(example, servers=2, loads=loads, whole=True)
    assert placement.load_of == "as measured"
    assert placement.largest_load == pytest.approx(100 / 125)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table,load\n0,1\n", "has no load of table 1, but the job has the tables 0 to 25"),
        ("table,work\n0,1\n", "has no column load"),
        ("table,load\n" + "".join(f"{t},1\n" for t in range(27)), "has a table 26"),
        ("table,load\n" + "".join(f"{t},{t}\n" for t in range(26)), "the load of table 0 is 0"),
        ("table,load\n" + "".join(f"{t},much\n" for t in range(26)), "'much' is not a number"),
        ("table,load\n0,1\n0,2\n", "has table 0 twice"),
    ],
)
def test_faults_of_loads(text: str, message: str, tmp_path: Path, example: Path) -> None:
    loads = tmp_path / "loads.csv"
    loads.write_text(text)
    with pytest.raises(InputError, match=message):
        sw.place_tables(example, servers=2, loads=loads)


def test_faults_of_options(call: Call, example: Path, tmp_path: Path) -> None:
    assert "at least 1" in call("place", str(example), "--servers", "0").err
    small = call("place", str(example), "--servers", "2", "--memory", "1Mi")
    assert small.code == 1
    assert "servers or more" in small.err
    assert "memory" in call("place", str(example), "--servers", "2", "--memory", "much").err
    command = tmp_path / "command.yaml"
    command.write_text("name: own\ncommand: {run: python train.py}\n")
    assert "Describe them beside the command" in call("place", str(command), "--servers", "2").err


TIGHT = """
name: tight
command: {run: python train.py}
model: {tables: {count: 5, rows: [3M, 3M, 2M, 2M, 2M], dim: 16, optimizer: sgd, pooling: [1.5, 2, 1, 0.25, 1]}}
"""


def test_tight_tables_are_placed_whole_and_split_ones_are_assumed_to_be_read_evenly(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "tight.yaml"
    path.write_text(TIGHT)
    placed = call("place", path, "--servers", "2", "--memory", "367Mi", "--whole")
    assert placed.code == 0, placed.err
    assert "read evenly" not in placed.out
    split = call("place", path, "--servers", "2", "--memory", "366300Ki", "-o", "json")
    assert split.code == 1
    assert "have less" in split.err
    three = json.loads(call("place", path, "--servers", "5", "-o", "json").out)
    assert three["split"]
    assert three["assumptions"][1].startswith("The rows of a split table are read evenly")
    assert "assumes: The rows of a split table are read evenly" in " ".join(
        call("place", path, "--servers", "5").out.split()
    )


@pytest.mark.parametrize("table", ["0.5", "1.9", "one"])
def test_numbers_of_tables_in_loads_are_whole(call: Call, tmp_path: Path, table: str) -> None:
    path, loads = tmp_path / "tight.yaml", tmp_path / "loads.csv"
    path.write_text(TIGHT)
    loads.write_text(f"table,load\n{table},1\n1,1\n2,1\n3,1\n4,1\n")
    result = call("place", path, "--servers", "2", "--loads", loads)
    assert result.code == 1
    assert f"'{table}' is not a whole number" in " ".join(result.err.split())
    assert "Write the number of a table" in " ".join(result.err.split())
