"""Tables are placed as wholes where that balances the servers, else in parts by rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.errors import InputError
from sizewright.models.memory.memory_model import table_bytes
from sizewright.recommender.table_placement.place import place_tables
from sizewright.spec import Job, Model, Optimizer, TablePlacement, Tables


def job(rows: list[int], dim: list[int] | int = 16, pooling: list[int] | int = 1) -> Job:
    tables = Tables(count=len(rows), rows=rows, dim=dim, pooling=pooling)  # type: ignore[arg-type]
    return Job(model=Model(tables=tables, optimizer=Optimizer(name="sgd")))


def bytes_of(placement: TablePlacement) -> list[int]:
    return [server.memory_bytes for server in placement.servers]


@given(
    st.lists(st.tuples(st.integers(1, 500), st.sampled_from([4, 8, 64]), st.integers(1, 30)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.booleans(),
)
def test_each_row_lies_on_one_server(tables: list[tuple[int, int, int]], servers: int, whole: bool) -> None:
    rows, dims, pooling = map(list, zip(*tables, strict=True))
    placement = place_tables(job(rows, dims, pooling), servers, whole=whole)
    seen = [np.zeros(count, int) for count in rows]
    for server in placement.servers:
        assert server.load == pytest.approx(sum(part.load for part in server.parts))
        for part in server.parts:
            seen[part.table][part.first_row : part.first_row + part.rows] += 1
            assert part.memory_bytes == pytest.approx(part.rows * dims[part.table] * 4, abs=1)
    assert all((count == 1).all() for count in seen)
    assert placement.largest_load == pytest.approx(max(server.load for server in placement.servers))
    assert placement.largest_load * (1 - placement.gap) >= 1 / servers - 1e-9, "the bound is at least the mean"
    assert not (whole and placement.split)
    assert sum(server.load for server in placement.servers) == pytest.approx(1)


def test_tables_that_balance_stay_whole() -> None:
    placement = place_tables(job([100] * 8), 4)
    assert placement.split == ()
    assert placement.gap == 0
    assert [len(server.parts) for server in placement.servers] == [2, 2, 2, 2]


def test_table_with_most_of_the_load_is_split() -> None:
    placement = place_tables(job([1000, 10, 10], pooling=[98, 1, 1]), 2)
    assert placement.split == (0,)
    assert placement.largest_load == pytest.approx(0.5, rel=0.011)


def test_table_that_is_too_large_is_split_by_rows() -> None:
    placement = place_tables(job([10_000, 10], pooling=[1, 20]), 2, memory_bytes=6000 * 16 * 4)
    assert 0 in placement.split
    assert max(bytes_of(placement)) <= 6000 * 16 * 4


def test_whole_tables_leave_the_load_where_it_is() -> None:
    placement = place_tables(job([1000, 10, 10], pooling=[98, 1, 1]), 2, whole=True)
    assert placement.largest_load == pytest.approx(0.98)
    assert placement.gap == pytest.approx(0), "no placement of whole tables is better"


def test_measured_loads_replace_counted_ones() -> None:
    placement = place_tables(job([10, 10, 10, 10]), 2, loads=[3, 1, 1, 1], whole=True)
    alone = next(server for server in placement.servers if any(part.table == 0 for part in server.parts))
    assert len(alone.parts) == 1
    assert placement.load_of == "as measured"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"memory_bytes": 10_000}, "The tables have 125.6 KiB .* 2 servers of 9.8 KiB have less. Take 13 servers"),
        ({"memory_bytes": 100_000, "whole": True}, "Table 0 alone has 125.0 KiB, more than a server's 97.7 KiB"),
    ],
)
def test_tables_that_do_not_fit(more: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        place_tables(job([2000, 10]), 2, **more)  # type: ignore[arg-type]


def test_a_row_cannot_be_split() -> None:
    placement = place_tables(job([1, 1]), 4)
    assert placement.largest_load == pytest.approx(0.5)
    assert placement.gap == pytest.approx(0)


def test_few_tables_are_split() -> None:
    """Of 26 equal tables on three servers two have to be split."""
    placement = place_tables(job([1000] * 26), 3)
    assert len(placement.split) == 2
    assert placement.largest_load == pytest.approx(1 / 3, rel=0.011)


@given(st.lists(st.sampled_from(["float32", "float16", "int8"]), min_size=2, max_size=8), st.integers(1, 4))
def test_bytes_of_the_servers_add_up_to_those_of_the_tables(dtypes: list[str], servers: int) -> None:
    tables = {"count": len(dtypes), "rows": 1000, "dtype": dtypes, "optimizer": "rowwise_adagrad"}
    described = Job.model_validate({"model": {"tables": tables}})
    placement = place_tables(described, servers)
    parts = sum(len(server.parts) for server in placement.servers)
    assert sum(bytes_of(placement)) == pytest.approx(table_bytes(described), abs=parts)


def test_load_of_a_table_counts_the_bytes_of_its_data_type() -> None:
    tables = {"count": 3, "rows": 100, "dtype": ["float32", "float16", "float16"]}
    placement = place_tables(Job.model_validate({"model": {"tables": tables}}), 2, whole=True)
    assert placement.load_of == "the bytes that a sample reads of it"
    assert [len(server.parts) for server in placement.servers] in ([1, 2], [2, 1])
    assert placement.largest_load == pytest.approx(0.5)
