"""Placement of embedding tables on servers or ranks, compared with simple rules: `make bench NAME=torchrec`.

Sets of tables are drawn with rows, dimensions and poolings of several sizes; memory is 1.2 times the mean. Loads are
compared with round-robin, and with size-greedy: the largest table goes to the server with the least memory in use. Both
place whole tables, so ours does, too, in `whole_*`.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from benchmarks._report import choose, finish
from sizewright.recommender.table_placement.place import place_tables
from sizewright.spec import Job, Model, Tables

COUNTS = choose((26, 50, 100, 200, 500), (26, 100, 500), (26,))
SERVERS = choose((4, 8, 16), (4, 8, 16), (4,))
SETS = choose(5, 3, 1)
TARGETS = {
    "placement_gap": "≤ 0.02 (the largest of all)",
    "placement_s": "≤ 1 (the longest)",
    "load_vs_size_greedy": "< 1 (mean)",
}
Floats = NDArray[np.float64]


def main() -> None:
    rng = np.random.default_rng(1)
    gaps, whole_gaps, seconds = list[float](), list[float](), list[float]()
    over_greedy, over_round_robin, split = list[float](), list[float](), list[float]()
    for count in COUNTS:
        for servers in SERVERS:
            for _ in range(SETS):
                job, load, size = drawn(rng, count)
                began = time.perf_counter()
                ours = place_tables(job, servers, memory_bytes=int(1.2 * size.sum() / servers))
                seconds.append(time.perf_counter() - began)
                gaps.append(ours.gap)
                split.append(len(ours.split) / count)
                whole = place_tables(job, servers, whole=True)
                whole_gaps.append(whole.gap)
                over_greedy.append(whole.largest_load / size_greedy(load, size, servers))
                over_round_robin.append(whole.largest_load / round_robin(load, servers))
    figures = {
        "sets": float(len(gaps)),
        "placement_gap": max(gaps),
        "placement_s": max(seconds),
        "split_tables": float(np.mean(split)),
        "whole_gap": float(np.median(whole_gaps)),
        "load_vs_size_greedy": float(np.mean(over_greedy)),
        "load_vs_round_robin": float(np.mean(over_round_robin)),
    }
    finish("torchrec", figures, TARGETS, {"gaps": gaps, "whole_gaps": whole_gaps})


def drawn(rng: np.random.Generator, count: int) -> tuple[Job, Floats, Floats]:
    """Return a job with random tables, and the load and the bytes of each."""
    rows = np.exp(rng.uniform(np.log(10), np.log(1e7), count)).astype(int)
    dims, poolings = rng.choice([8, 16, 32, 64, 128], count), rng.choice([1, 1, 1, 5, 20, 50], count)
    columns = {"rows": rows, "dim": dims, "pooling": poolings}
    tables = Tables.model_validate({"count": count, **{name: tuple(map(int, each)) for name, each in columns.items()}})
    return Job(model=Model(tables=tables)), (dims * poolings).astype(float), (rows * dims * 8).astype(float)


def size_greedy(load: Floats, size: Floats, servers: int) -> float:
    """Return the largest share of the load, where tables go by size to the server with the least memory in use."""
    used, filled = np.zeros(servers), np.zeros(servers)
    for table in np.argsort(-size):
        server = int(np.argmin(used))
        used[server] += size[table]
        filled[server] += load[table]
    return float(filled.max() / load.sum())


def round_robin(load: Floats, servers: int) -> float:
    """Return the largest share of the load, where tables go to the servers in turn."""
    return float(np.bincount(np.arange(load.size) % servers, load, servers).max() / load.sum())


if __name__ == "__main__":
    main()
