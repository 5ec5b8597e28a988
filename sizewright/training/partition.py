"""Which parameter server holds which key, and which slice of the dense weights."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.hash_index import Keys, hash_keys


class Lookup(NamedTuple):
    """The look-ups of one batch: distinct keys in order of their PS.

    `keys` (u,), `counts` of them per PS, and `inverse` (n·tables,) from look-up to position in `keys`.
    """

    keys: Keys
    counts: list[int]
    inverse: NDArray[np.int64]


def owner_of(keys: Keys, ps: int) -> NDArray[np.int64]:
    """The PS of each key; other bits of the hash than those of the index inside the PS."""
    return ((hash_keys(keys) & np.uint64(0xFFFFFFF)) % np.uint64(ps)).astype(np.int64)


def make_lookup(keys: Keys, ps: int) -> Lookup:
    """Distinct keys of a batch, grouped by PS."""
    distinct, inverse = np.unique(keys, return_inverse=True)
    if ps == 1:
        return Lookup(distinct, [len(distinct)], inverse)
    owners = owner_of(distinct, ps)
    order = np.argsort(owners, kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    counts = np.bincount(owners, minlength=ps).tolist()
    return Lookup(distinct[order], counts, position[inverse])


def dense_slices(size: int, ps: int) -> list[slice]:
    """Equal slices of a vector of dense weights, one a PS."""
    edges = [size * i // ps for i in range(ps + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]
