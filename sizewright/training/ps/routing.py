"""The routing, which assigns rows and dense weights to parameter servers.

Keys hash into a fixed number of partitions; a routing assigns partitions to servers, so that servers can come and go
while only the partitions that change hands move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.hash_index import Keys, hash_keys

# Shares of up to 16 servers are then even within 1 %, and a mask of partitions is small.
PARTITIONS = 2048
# The dense weights are cut into this many blocks, of which each server holds consecutive ones.
DENSE_BLOCKS = 1024
PARTS = PARTITIONS + DENSE_BLOCKS
"""The number of parts of all weights: partitions of the rows first, then blocks of the dense weights."""
Parts = NDArray[np.int64]
ALL_PARTS = slice(0, PARTS)
ROW_PARTS = slice(0, PARTITIONS)
DENSE_PARTS = slice(PARTITIONS, PARTS)
# Weights of partitions are in thousandths of their mean, because sums of integers are exact.
_MEAN_WEIGHT = 1000
# The minimum weight of a partition. It spreads partitions without look-ups too, since they hold rows.
_MIN_WEIGHT = 10
# Loads that differ by no more than this share of their mean count as even.
_TOLERANCE = 0.02
Address = tuple[str, int]
Owners = NDArray[np.int64]
Counts = NDArray[np.int64]
Loads = NDArray[np.int64] | NDArray[np.float64]


class Lookup(NamedTuple):
    """The look-ups of one batch, with distinct keys in the order of their servers.

    It has `keys` (u,), their `counts` per server, and `inverse` (n·tables,), the position in `keys` of each look-up.
    """

    keys: Keys
    counts: list[int]
    inverse: NDArray[np.int64]


class Server(NamedTuple):
    """The number and the address of a parameter server. Numbers are never reused."""

    id: int
    address: Address


class Routing(NamedTuple):
    """Assigns partitions and dense weights to servers.

    `owners` (PARTITIONS,) has the position in `servers` of the server of each partition. Server i holds the slice
    [edges[i], edges[i+1]) of the dense weights. Versions increase with each change.
    """

    version: int
    servers: tuple[Server, ...]
    owners: Owners
    edges: tuple[int, ...]

    @classmethod
    def even(cls, servers: tuple[Server, ...], dense_size: int, version: int = 1) -> Routing:
        """Return a routing with equal shares for all servers."""
        owners = np.arange(PARTITIONS) * len(servers) // PARTITIONS
        return cls(version, servers, owners.astype(np.int64), _edges(dense_size, len(servers)))

    def position(self, server_id: int) -> int:
        """Return the position of a server. Raise KeyError if it is not in the routing."""
        for i, server in enumerate(self.servers):
            if server.id == server_id:
                return i
        raise KeyError(server_id)

    def partitions_of(self, server_id: int) -> Owners:
        """Return the partitions that a server holds."""
        return np.flatnonzero(self.owners == self.position(server_id))

    def dense_of(self, server_id: int) -> slice:
        """Return the slice of the dense weights that a server holds."""
        i = self.position(server_id)
        return slice(self.edges[i], self.edges[i + 1])

    def parts_of(self, server_id: int) -> Parts:
        """Return the parts of all weights that a server holds."""
        i, n = self.position(server_id), len(self.servers)
        blocks = PARTITIONS + np.arange(DENSE_BLOCKS * i // n, DENSE_BLOCKS * (i + 1) // n)
        return np.concatenate([self.partitions_of(server_id), blocks])

    def slices(self) -> list[slice]:
        """Return the slices of the dense weights in the order of the servers."""
        return [slice(a, b) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]

    def lookup(self, keys: Keys) -> Lookup:
        """Return the distinct keys of a batch, grouped by server."""
        distinct, inverse = np.unique(keys, return_inverse=True)
        if len(self.servers) == 1:
            return Lookup(distinct, [len(distinct)], inverse)
        order, counts = self.split(distinct)
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        return Lookup(distinct[order], counts, position[inverse])

    def split(self, keys: Keys) -> tuple[NDArray[np.int64], list[int]]:
        """Return an order of the keys that groups them by server, and the number of keys per server."""
        owners = self.owners[partition_of(keys)]
        counts: list[int] = np.bincount(owners, minlength=len(self.servers)).tolist()
        return np.argsort(owners, kind="stable"), counts

    def with_servers(self, servers: tuple[Server, ...], loads: Loads | None = None) -> Routing:
        """Return the next version over `servers`, which balances the partitions' `loads` with few moves.

        Without loads all partitions count the same. A new server takes the partitions of a leaving one, up to its
        share. Nothing moves if the loads are even already.
        """
        positions = {server.id: i for i, server in enumerate(servers)}
        owners = np.array([positions.get(server.id, -1) for server in self.servers], np.int64)[self.owners]
        leaving = [i for i, server in enumerate(self.servers) if server.id not in positions]
        current = {server.id for server in self.servers}
        new = [i for i, server in enumerate(servers) if server.id not in current]
        for old, successor in zip(leaving, new, strict=False):
            owners[self.owners == old] = successor
        _balance(owners, len(servers), _weights(loads))
        return Routing(self.version + 1, servers, owners, _edges(self.edges[-1], len(servers)))


def partition_of(keys: Keys) -> NDArray[np.int64]:
    """Return the partition of each key, by other bits of the hash than the index inside a server uses."""
    return (hash_keys(keys) & np.uint64(PARTITIONS - 1)).astype(np.int64)


def likely_loads(counted: Counts, owners: Owners) -> Loads:
    """Return the expected look-ups of each partition, given the counted ones.

    Counts are shrunk to the mean of their server, because the heaviest of many partitions that differ by chance alone
    will not be the heaviest again. The less they vary beyond a Poisson distribution, the stronger is the shrinkage (the
    posterior mean under a gamma prior with the same moments). Counts that are forgotten bit by bit vary half as much,
    and are shrunk a little more than they need to be.
    """
    loads = counted.astype(np.float64)
    for owner in np.unique(owners):
        server_loads = loads[owners == owner]
        if mean := server_loads.mean():
            excess = max(0.0, server_loads.var() - mean) / mean**2
            loads[owners == owner] = mean * (1 + excess * server_loads) / (1 + excess * mean)
    return loads


def _weights(loads: Loads | None) -> Counts:
    if loads is None or not loads.any():
        return np.ones(PARTITIONS, np.int64)
    weights: Counts = np.rint(loads * (_MEAN_WEIGHT / loads.mean())).astype(np.int64) + _MIN_WEIGHT
    return weights


def _balance(owners: Owners, servers: int, weights: Counts) -> None:
    """Balance the servers' weights by changing `owners` in place.

    Partitions without an owner (-1) go to the server with the least weight, then partitions move from the heaviest
    server to the lightest.
    """
    totals = np.array([weights[owners == i].sum() for i in range(servers)])
    is_new = totals == 0
    unowned = np.flatnonzero(owners < 0)
    for partition in unowned[np.argsort(-weights[unowned], kind="stable")]:
        owners[partition] = low = totals.argmin()
        totals[low] += weights[partition]
    tolerance = _TOLERANCE * totals.mean() if np.ptp(weights) else 0
    can_give = np.ones(servers, bool)
    rng = np.random.default_rng(0)
    while True:
        high, low = np.where(can_give, totals, -1).argmax(), totals.argmin()
        difference = totals[high] - totals[low]
        if difference <= tolerance:
            return
        # A heavier partition would leave the receiver with more than the giver had.
        candidates = np.flatnonzero((owners == high) & (weights < difference))
        if not len(candidates):
            can_give[high] = False
            continue
        # Half of the difference evens out at once. A new server takes any partition, so it gets its share of rows too.
        if is_new[low]:
            partition = rng.choice(candidates)
        else:
            partition = candidates[np.abs(2 * weights[candidates] - difference).argmin()]
        owners[partition] = low
        totals[[high, low]] += [-weights[partition], weights[partition]]


def _edges(size: int, servers: int) -> tuple[int, ...]:
    return tuple(_dense_edge(DENSE_BLOCKS * i // servers, size) for i in range(servers + 1))


def _dense_edge(block: int, size: int) -> int:
    """Return the index at which a block of the dense weights begins."""
    return (size * block + DENSE_BLOCKS // 2) // DENSE_BLOCKS


def dense_runs(blocks: NDArray[np.bool_], size: int) -> list[slice]:
    """Return the slices of a vector of `size` weights that marked blocks (DENSE_BLOCKS,) cover, as few as possible."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], blocks, [False]]).astype(np.int8)))
    runs = (slice(_dense_edge(int(a), size), _dense_edge(int(b), size)) for a, b in edges.reshape(-1, 2))
    return [run for run in runs if run.start < run.stop]
