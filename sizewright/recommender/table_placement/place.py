"""Place the embedding tables of a job: whole where that balances the servers, else in parts by rows."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sizewright.errors import InputError
from sizewright.formatting import format_bytes, format_count
from sizewright.models.memory.memory_model import VALUE_BYTES, row_bytes
from sizewright.recommender.table_placement.assignment import Assignment, Floats, Ints, assign
from sizewright.spec import Job, PlacedServer, TablePart, TablePlacement

_GOOD_GAP = 0.01
"""Tables are split until the largest load is within this share of the mean."""
_SOLVER_S = 0.6
_MAX_PARTS = 16
"""Parts on top of the number of tables, for each server, at most."""


def place_tables(
    job: Job, servers: int, *, memory_bytes: int = 0, loads: Sequence[float] | None = None, whole: bool = False
) -> TablePlacement:
    """Return which server holds which rows, so that the largest load is as small as possible.

    `memory_bytes` is that of each server for weights and optimizer state; 0 for no limit. `loads` are the loads of the
    tables in any unit; without them the load of a table is what a sample reads of it, pooling × dimension in the
    table's data type. A part of a table has its share of the rows as share of the load. With `whole` no table is split.

    Raises InputError if the tables do not fit.
    """
    rows = np.array(job.model.tables.sizes(), dtype=np.int64)
    sizes = rows * np.array(row_bytes(job), dtype=float)
    tables = job.model.tables
    kinds = zip(tables.poolings, tables.dims, tables.dtypes, strict=True)
    read = [pooling * dim * VALUE_BYTES[dtype] for pooling, dim, dtype in kinds]
    unit = "floats" if set(tables.dtypes) == {"float32"} else "bytes"
    load = np.array(read if loads is None else loads, dtype=float)
    capacity = float(memory_bytes or math.inf)
    _check(sizes, servers, capacity, whole=whole)
    if whole:
        counts = np.ones(len(rows), dtype=np.int64)
        found = assign(load, sizes, servers, capacity, seconds=_SOLVER_S)
    else:
        split = _split_until_balanced(rows, load, sizes, servers, capacity, deepens=True)  # which splits few tables
        if split.over_bound > 1 + _GOOD_GAP:
            wider = _split_until_balanced(rows, load, sizes, servers, capacity, deepens=False)
            split = min(split, wider, key=lambda each: each.over_bound)
        counts, found = split.counts, split.found
    if found is None:
        raise InputError(
            f"No placement of the tables was found that fits on {format_count(servers, 'server')} with "
            f"{format_bytes(capacity)} each.",
            "Give the servers more memory, or take one more."
            if not whole
            else "Give the servers more memory, take one more, or let tables be split by rows.",
        )
    loads_of, _, _ = _parts(rows, load, sizes, counts)
    peak = float(np.bincount(found.server, loads_of, servers).max())
    placed = _servers(rows, load, sizes, counts, found.server, servers)
    parts_of = Counter(part.table for server in placed for part in server.parts)
    load_of = f"the {unit} that a sample reads of it" if loads is None else "as measured"
    split_tables = tuple(sorted(table for table, parts in parts_of.items() if parts > 1))
    evenly = ("The rows of a split table are read evenly, so that each part has its share of the rows as load.",)
    return TablePlacement(
        job=job.name,
        servers=placed,
        largest_load=peak / load.sum(),
        gap=max(0.0, 1 - (found.bound if whole else _least_load(rows, load, servers)) / peak),
        split=split_tables,
        load_of=load_of,
        assumptions=(f"The load of a table is {load_of}.", *(evenly if split_tables else ())),
    )


def _check(sizes: Floats, servers: int, capacity: float, *, whole: bool) -> None:
    """Raise InputError for tables that cannot fit in any way."""
    if sizes.sum() > servers * capacity:
        needed = math.ceil(sizes.sum() / capacity)
        raise InputError(
            f"The tables have {format_bytes(sizes.sum())} of weights and optimizer state, and "
            f"{format_count(servers, 'server')} of {format_bytes(capacity)} have less.",
            f"Take {needed} servers or more, or give them more memory.",
        )
    if whole and sizes.max() > capacity:
        table = int(np.argmax(sizes))
        raise InputError(
            f"Table {table} alone has {format_bytes(sizes[table])}, more than a server's {format_bytes(capacity)}.",
            "Let tables be split by rows, or give the servers more memory.",
        )


class _Split(NamedTuple):
    """The number of parts of each table, the servers of the parts, and the largest load over its bound."""

    counts: Ints
    found: Assignment | None
    over_bound: float


def _split_until_balanced(
    rows: Ints, load: Floats, sizes: Floats, servers: int, capacity: float, *, deepens: bool
) -> _Split:
    """Split tables until the servers are balanced, or nothing helps any more.

    Tables begin whole, but for those that are larger than a server's memory or its fair share of the load. As long as
    the largest load is too high, or the parts do not fit, the largest part of the fullest server is split, or else the
    part with the most memory. With `deepens` a table is split into more and more parts before another one is split.
    """
    bound, most = _least_load(rows, load, servers), np.minimum(rows, servers)
    least = np.maximum(np.ceil(load / bound - 1e-9), np.ceil(sizes / capacity - 1e-9)).astype(np.int64)
    counts = np.minimum(np.maximum(least, 1), most)
    best: tuple[Ints, Assignment | None] = counts, None
    best_peak = math.inf
    deepened: int | None = None
    while True:
        loads_of, sizes_of, table_of = _parts(rows, load, sizes, counts)
        can_be_split = counts[table_of] < most[table_of]
        is_last = not can_be_split.any() or len(table_of) >= len(rows) + _MAX_PARTS * servers
        found = assign(loads_of, sizes_of, servers, capacity, seconds=_SOLVER_S if is_last else 0.0)
        chosen, weight = can_be_split, sizes_of  # smaller parts fit better
        if found is not None:
            filled = np.bincount(found.server, loads_of, servers)
            if filled.max() < best_peak:
                best, best_peak = (counts.copy(), found), filled.max()
            of_fullest = can_be_split & (found.server == int(np.argmax(filled)))
            if of_fullest.any():
                chosen, weight = of_fullest, loads_of
        if is_last or best_peak <= (1 + _GOOD_GAP) * bound:
            return _Split(*best, best_peak / bound)
        if not deepens or deepened is None or counts[deepened] >= most[deepened]:
            deepened = int(table_of[int(np.argmax(np.where(chosen, weight, -1.0)))])
        counts[deepened] += 1


def _least_load(rows: Ints, load: Floats, servers: int) -> float:
    """Return what the largest load cannot be below, however tables are split: a row lies on one server."""
    return float(max(load.sum() / servers, (load / np.minimum(rows, servers)).max()))


def _parts(rows: Ints, load: Floats, sizes: Floats, counts: Ints) -> tuple[Floats, Floats, Ints]:
    """Return load, size and table of each part, table by table."""
    table_of = np.repeat(np.arange(len(rows)), counts)
    share = np.concatenate([np.diff(_edges(int(n), int(k))) / n for n, k in zip(rows, counts, strict=True)])
    return load[table_of] * share, sizes[table_of] * share, table_of


def _edges(rows: int, count: int) -> Ints:
    """Return the first rows of `count` almost equal parts of a table, and its number of rows."""
    return np.arange(count + 1, dtype=np.int64) * rows // count


def _servers(
    rows: Ints, load: Floats, sizes: Floats, counts: Ints, server: Ints, servers: int
) -> tuple[PlacedServer, ...]:
    parts: list[list[TablePart]] = [[] for _ in range(servers)]
    number = 0
    for table, count in enumerate(counts):
        edges = _edges(int(rows[table]), int(count))
        for first, end in itertools.pairwise(edges):
            share = (end - first) / rows[table]
            part = TablePart(
                table=table,
                first_row=int(first),
                rows=int(end - first),
                load=float(load[table] * share / load.sum()),
                memory_bytes=round(sizes[table] * share),
            )
            of_server = parts[server[number]]
            if of_server and of_server[-1].table == table and of_server[-1].first_row + of_server[-1].rows == first:
                of_server[-1] = _joined(of_server[-1], part)
            else:
                of_server.append(part)
            number += 1
    return tuple(
        PlacedServer(
            server=n,
            load=sum(part.load for part in of_server),
            memory_bytes=sum(part.memory_bytes for part in of_server),
            parts=tuple(of_server),
        )
        for n, of_server in enumerate(parts)
    )


def _joined(first: TablePart, second: TablePart) -> TablePart:
    """Return two neighbouring parts of one table as one."""
    sums = {name: getattr(first, name) + getattr(second, name) for name in ("rows", "load", "memory_bytes")}
    return first.model_copy(update=sums)
