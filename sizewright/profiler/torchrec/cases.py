"""Draw sets of tables with sharding plans, small enough that a step takes milliseconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

KINDS = ("table_wise", "row_wise", "mixed", "column_wise", "data_parallel", "table_wise at random")
"""The sharding type of all tables that allow it, or one drawn for each; the last is placed at random."""
PLANS_OF_A_SET = 3
_MAX_IDS, _MAX_FLOATS = 100_000, 3_000_000
"""Of a batch on one rank, look-ups and the floats that they read."""
_MAX_COPIED_FLOATS = 400_000
"""A larger table is not data-parallel: each step would exchange all of it."""


class Table(NamedTuple):
    """The rows and the dimension of an embedding table, and the mean number of ids of a sample."""

    rows: int
    dim: int
    pooling: int


class Case(NamedTuple):
    """A sharding plan of a set of tables: `types` has the sharding type of each.

    TorchRec's partitioner places the shards, unless they lie `at_random`.
    """

    number: int
    table_set: int
    kind: str
    tables: tuple[Table, ...]
    types: tuple[str, ...]
    batch: int
    ranks: int
    held_out: bool
    at_random: bool = False
    optimizer: str = "rowwise_adagrad"

    def to_task(self) -> dict[str, Any]:
        """Return the case as the measuring script reads it."""
        return {**self._asdict(), "seed": self.number}


def draw_cases(count: int, ranks: int, *, seed: int = 0) -> list[Case]:
    """Return `count` plans, about a quarter of them for one rank, with other tables for every three of them.

    Every second set of tables is held out, so that no plan of it enters a fit.
    """
    rng = np.random.default_rng(seed)
    cases: list[Case] = []
    for table_set in range(-(-count // PLANS_OF_A_SET)):
        tables, batch = _draw_tables(rng)
        of_set = 1 if table_set % 8 in (2, 5) else ranks
        # The kinds rotate so that both halves, which are every second set, see all of them.
        first = 3 * ((table_set // 2) % 2) + table_set // 4
        for i in range(PLANS_OF_A_SET):
            kind = KINDS[(first + i) % len(KINDS)]
            if of_set == 1 and kind == "table_wise at random":  # one rank has no other place
                kind = "mixed"
            types = tuple(_sharding_type(kind, table, rng) for table in tables)
            held_out = table_set % 2 == 1
            at_random = kind in ("mixed", "table_wise at random")
            shown = types[0] if len(set(types)) == 1 else "mixed"
            cases.append(Case(len(cases), table_set, shown, tables, types, batch, of_set, held_out, at_random))
    return cases[:count]


def _draw_tables(rng: np.random.Generator) -> tuple[tuple[Table, ...], int]:
    """Return tables of several sizes, and a batch size with which a step stays short."""
    while True:
        count = int(rng.integers(2, 13))
        rows = np.exp(rng.uniform(np.log(1e3), np.log(2e5), count)).astype(int)
        dims, poolings = rng.choice([8, 16, 32, 64, 128], count), rng.choice([1, 1, 2, 5, 10, 20], count)
        batch = int(rng.choice([256, 512, 1024, 2048]))
        ids, floats = batch * poolings.sum(), batch * (dims * poolings).sum()
        if ids <= _MAX_IDS and _MAX_FLOATS / 30 <= floats <= _MAX_FLOATS:
            return tuple(Table(*map(int, each)) for each in zip(rows, dims, poolings, strict=True)), batch


def _sharding_type(kind: str, table: Table, rng: np.random.Generator) -> str:
    if kind == "mixed":
        kind = str(rng.choice(["table_wise", "row_wise", "column_wise", "data_parallel"]))
    if kind == "data_parallel" and table.rows * table.dim > _MAX_COPIED_FLOATS:
        return "row_wise"
    return kind.partition(" ")[0]
