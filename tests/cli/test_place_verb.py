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
