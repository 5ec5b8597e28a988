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
Address = tuple[str, int]
Owners = NDArray[np.int64]


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

    def with_servers(self, servers: tuple[Server, ...]) -> Routing:
        """The next version over `servers`, equal shares, moving as few partitions as it can.

        A server at the place of one that goes takes over all that it held, up to its share.
        """
        place = {server.id: i for i, server in enumerate(servers)}
        owners = np.array([place.get(server.id, -1) for server in self.servers], np.int64)[self.owners]
        gone = [i for i, server in enumerate(self.servers) if server.id not in place]
        known = {server.id for server in self.servers}
        new = [i for i, server in enumerate(servers) if server.id not in known]
        for old, heir in zip(gone, new, strict=False):
            owners[self.owners == old] = heir
        _level(owners, len(servers))
        return Routing(self.version + 1, servers, owners, _edges(self.edges[-1], len(servers)))


def partition_of(keys: Keys) -> NDArray[np.int64]:
    """The partition of each key, by other bits of the hash than those of the index inside a server."""
    return (hash_keys(keys) & np.uint64(PARTITIONS - 1)).astype(np.int64)


def _level(owners: Owners, servers: int) -> None:
    """Move partitions from those with more than their share, and from nobody (-1), to those with less."""
    share = np.full(servers, PARTITIONS // servers)
    share[: PARTITIONS % servers] += 1
    have = np.bincount(owners[owners >= 0], minlength=servers)
    # The larger shares go to those who have the most already.
    share[np.argsort(-have, kind="stable")] = np.sort(share)[::-1]
    spare = [np.flatnonzero(owners < 0)]
    spare += [np.flatnonzero(owners == i)[share[i] :] for i in range(servers)]
    free = np.concatenate(spare)
    owners[free] = np.repeat(np.arange(servers), np.maximum(share - have, 0))


def _edges(size: int, servers: int) -> tuple[int, ...]:
    return tuple(size * i // servers for i in range(servers + 1))
