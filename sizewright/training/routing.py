"""Which parameter server holds which rows and which dense weights, and how that changes.

Keys hash into a fixed number of partitions; a routing assigns partitions to servers, so that servers can come and go
while only the partitions that change hands move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.hash_index import Keys, hash_keys

# Shares of up to 16 servers are then even within 1 %, and a mask of partitions is small.
PARTITIONS = 2048
# The dense weights are cut into so many blocks, of which each server holds some that follow each other.
DENSE_BLOCKS = 1024
PARTS = PARTITIONS + DENSE_BLOCKS
"""Parts of all weights, by number: partitions of the rows first, then blocks of the dense weights."""
Parts = NDArray[np.int64]
ALL_PARTS, ROW_PARTS, DENSE_PARTS = slice(0, PARTS), slice(0, PARTITIONS), slice(PARTITIONS, PARTS)
# Weights of partitions are in thousandths of their mean: sums of whole numbers are exact.
_MEAN_WEIGHT = 1000
# What a partition weighs at least, so that those without look-ups, which hold rows too, are spread as well.
_LEAST_WEIGHT = 10
# Loads that differ by no more than this share of their mean are even.
_EVEN = 0.02
Address = tuple[str, int]
Owners = NDArray[np.int64]
Counts = NDArray[np.int64]
Loads = NDArray[np.int64] | NDArray[np.float64]


class Lookup(NamedTuple):
    """The look-ups of one batch: distinct keys in order of their server.

    `keys` (u,), `counts` of them per server, and `inverse` (n·tables,) from look-up to position in `keys`.
    """

    keys: Keys
    counts: list[int]
    inverse: NDArray[np.int64]


class Server(NamedTuple):
    """One parameter server: its number is never given to another."""

    id: int
    address: Address


class Routing(NamedTuple):
    """Servers, the position of the server of each partition, and the slice [edges[i], edges[i+1]) of the dense
    weights of server i. A later routing has a greater version."""

    version: int
    servers: tuple[Server, ...]
    owners: Owners
    edges: tuple[int, ...]

    @classmethod
    def even(cls, servers: tuple[Server, ...], dense_size: int, version: int = 1) -> Routing:
        """Equal shares for all."""
        owners = np.arange(PARTITIONS) * len(servers) // PARTITIONS
        return cls(version, servers, owners.astype(np.int64), _edges(dense_size, len(servers)))

    def position(self, server_id: int) -> int:
        """Where a server stands; raises KeyError for a stranger."""
        for i, server in enumerate(self.servers):
            if server.id == server_id:
                return i
        raise KeyError(server_id)

    def partitions_of(self, server_id: int) -> Owners:
        """The partitions that a server holds."""
        return np.flatnonzero(self.owners == self.position(server_id))

    def dense_of(self, server_id: int) -> slice:
        """The slice of the dense weights that a server holds."""
        i = self.position(server_id)
        return slice(self.edges[i], self.edges[i + 1])

    def parts_of(self, server_id: int) -> Parts:
        """The parts of all weights that a server holds."""
        i, n = self.position(server_id), len(self.servers)
        blocks = PARTITIONS + np.arange(DENSE_BLOCKS * i // n, DENSE_BLOCKS * (i + 1) // n)
        return np.concatenate([self.partitions_of(server_id), blocks])

    def slices(self) -> list[slice]:
        """The slices of the dense weights, server by server."""
        return [slice(a, b) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]

    def lookup(self, keys: Keys) -> Lookup:
        """Distinct keys of a batch, grouped by server."""
        distinct, inverse = np.unique(keys, return_inverse=True)
        if len(self.servers) == 1:
            return Lookup(distinct, [len(distinct)], inverse)
        order, counts = self.split(distinct)
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        return Lookup(distinct[order], counts, position[inverse])

    def split(self, keys: Keys) -> tuple[NDArray[np.int64], list[int]]:
        """An order of the keys that groups them by server, and how many each has."""
        owners = self.owners[partition_of(keys)]
        counts: list[int] = np.bincount(owners, minlength=len(self.servers)).tolist()
        return np.argsort(owners, kind="stable"), counts

    def with_servers(self, servers: tuple[Server, ...], loads: Loads | None = None) -> Routing:
        """The next version over `servers`, equal shares of the partitions' `loads`, moving as few as it can.

        Without loads all partitions count the same. A server at the place of one that goes takes over all that it held,
        up to its share. What is even by the same loads already stays as it is.
        """
        place = {server.id: i for i, server in enumerate(servers)}
        owners = np.array([place.get(server.id, -1) for server in self.servers], np.int64)[self.owners]
        gone = [i for i, server in enumerate(self.servers) if server.id not in place]
        known = {server.id for server in self.servers}
        new = [i for i, server in enumerate(servers) if server.id not in known]
        for old, heir in zip(gone, new, strict=False):
            owners[self.owners == old] = heir
        _level(owners, len(servers), _weights(loads))
        return Routing(self.version + 1, servers, owners, _edges(self.edges[-1], len(servers)))


def partition_of(keys: Keys) -> NDArray[np.int64]:
    """The partition of each key, by other bits of the hash than those of the index inside a server."""
    return (hash_keys(keys) & np.uint64(PARTITIONS - 1)).astype(np.int64)


def likely_loads(counted: Counts, owners: Owners) -> Loads:
    """The look-ups to expect of each partition, of which so many were counted.

    The heaviest of many partitions that differ by chance alone are no heavier next time: counts are drawn to the mean
    of their server, the more the less they vary beyond what Poisson's do (the gamma prior of the same moments).
    """
    loads = counted.astype(np.float64)
    for owner in np.unique(owners):
        own = loads[owners == owner]
        if mean := own.mean():
            beyond = max(0.0, own.var() - mean) / mean**2
            loads[owners == owner] = mean * (1 + beyond * own) / (1 + beyond * mean)
    return loads


def _weights(loads: Loads | None) -> Counts:
    if loads is None or not loads.any():
        return np.ones(PARTITIONS, np.int64)
    weights: Counts = np.rint(loads * (_MEAN_WEIGHT / loads.mean())).astype(np.int64) + _LEAST_WEIGHT
    return weights


def _level(owners: Owners, servers: int, weights: Counts) -> None:
    """Give partitions of nobody (-1) to those with least, then move some from those with most to those with least."""
    have = np.array([weights[owners == i].sum() for i in range(servers)])
    new = have == 0
    free = np.flatnonzero(owners < 0)
    for partition in free[np.argsort(-weights[free], kind="stable")]:
        owners[partition] = low = have.argmin()
        have[low] += weights[partition]
    slack = _EVEN * have.mean() if np.ptp(weights) else 0
    gives, rng = np.ones(servers, bool), np.random.default_rng(0)
    while True:
        high, low = np.where(gives, have, -1).argmax(), have.argmin()
        gap = have[high] - have[low]
        if gap <= slack:
            return
        fit = np.flatnonzero((owners == high) & (weights < gap))  # else the receiver would have more than the giver had
        if not len(fit):
            gives[high] = False
            continue
        # Half of the gap closes it at once. A newcomer takes any, and by that its share of the rows as well.
        moved = rng.choice(fit) if new[low] else fit[np.abs(2 * weights[fit] - gap).argmin()]
        owners[moved] = low
        have[[high, low]] += [-weights[moved], weights[moved]]


def _edges(size: int, servers: int) -> tuple[int, ...]:
    return tuple(_dense_edge(DENSE_BLOCKS * i // servers, size) for i in range(servers + 1))


def _dense_edge(block: int, size: int) -> int:
    """Where a block of the dense weights begins."""
    return (size * block + DENSE_BLOCKS // 2) // DENSE_BLOCKS


def dense_runs(blocks: NDArray[np.bool_], size: int) -> list[slice]:
    """The weights of a vector of `size` that belong to marked blocks (DENSE_BLOCKS,), in as few slices as can be."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], blocks, [False]]).astype(np.int8)))
    runs = (slice(_dense_edge(int(a), size), _dense_edge(int(b), size)) for a, b in edges.reshape(-1, 2))
    return [run for run in runs if run.start < run.stop]
