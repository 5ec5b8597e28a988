"""The work of a job's step, counted from its description: operations, floats moved, rows exchanged."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory.memory_model import dense_floats, id_floats, state_floats, table_bytes
from sizewright.spec import Job, Model

Floats = NDArray[np.float64]

_EXACT_IDS = 256
_BINS = 200
_FORWARD_AND_BACK = 6.0  # operations per multiplication: two forward, and twice that backward
_MIN_SCALE = 1e-4  # share of a job's rows
_MAPPED_BYTES = 32 << 20  # the greatest M_MMAP_THRESHOLD of glibc on 64 bits


class Work(NamedTuple):
    """Work of one step of one worker, columns (n,)."""

    samples: Floats
    numeric: Floats
    """Cells of the numeric columns of the batch."""
    ids: Floats
    rows: Floats
    """Distinct rows of the batch, which the worker exchanges with the PS."""
    row_floats: Floats
    """Floats of these rows."""
    row_state: Floats
    """Floats of optimizer state of these rows."""
    id_floats: Floats
    """Floats of the rows of all ids: they are gathered, and their gradients summed up."""
    flops: Floats
    layer_floats: Floats
    """Floats that layers put out."""
    outer_floats: Floats
    """Floats of outer products of rows, which xDeepFM's interaction makes."""
    large_floats: Floats
    """Floats of outer products whose arrays are so large that the C library maps each one page by page."""
    weights: Floats
    """Dense weights."""
    weight_state: Floats
    """Floats of optimizer state of the dense weights."""
    embedding_bytes: Floats


def work_of(job: Job, batch_size: Floats, table_scale: Floats) -> Work:
    """Return the work for each batch size and share of the job's rows (n,)."""
    batches, batch_index = np.unique(batch_size, return_inverse=True)
    scales, scale_index = np.unique(table_scale, return_inverse=True)
    counts = np.array([_count(job, batch, scale) for batch in batches for scale in scales])
    return Work(*counts.reshape(-1, len(Work._fields))[batch_index * len(scales) + scale_index].T)


def scale_of(job: Job, embedding_bytes: Floats) -> Floats:
    """Return the share of the job's rows that `embedding_bytes` (n,) are, in steps of a fifth; 1 where unknown."""
    share = np.where(embedding_bytes > 0, embedding_bytes, np.nan) / table_bytes(job)
    steps = np.log2(np.clip(np.where(np.isnan(share), 1.0, share), _MIN_SCALE, 1.0))
    return np.asarray(2.0 ** (np.round(steps * 4) / 4))


def distinct_rows(rows: int, zipf: float, draws: float) -> float:
    """Return the expected number of distinct ids among `draws` from `rows` ids.

    Ids follow the continuous form of Zipf's law that synthetic logs follow.
    """
    edges = np.arange(1, min(rows, _EXACT_IDS) + 2, dtype=float)
    if rows > _EXACT_IDS:
        edges = np.concatenate([edges[:-1], np.geomspace(edges[-1], rows + 1, _BINS)])
    width = np.diff(edges)
    flatness = 1.0 - zipf
    cumulative = np.log(edges) if abs(flatness) < 1e-9 else (edges**flatness - 1) / flatness
    mass = np.diff(cumulative) / (cumulative[-1] - cumulative[0]) / width
    return float((width * -np.expm1(draws * np.log1p(-np.minimum(mass, 1 - 1e-12)))).sum())


def _count(job: Job, batch: float, scale: float) -> tuple[float, ...]:
    """Return the fields of `Work` for one batch size and share of the rows."""
    model = job.model
    optimizer = model.optimizer.name
    kinds = Counter(zip(model.tables.sizes(scale), model.row_widths, model.tables.poolings, strict=True))
    rows = row_floats = row_state = 0.0
    for (size, width, ids), count in kinds.items():
        distinct = count * distinct_rows(size, job.data.zipf, batch * ids)
        rows += distinct
        row_floats += distinct * width
        row_state += distinct * state_floats(optimizer, width)
    flops, layer_floats, outer = network_work(model)
    dense_optimizer = "adagrad" if optimizer == "rowwise_adagrad" else optimizer
    weights = float(dense_floats(job))
    return (
        batch,
        batch * model.dense_features,
        batch * sum(model.tables.poolings),
        rows,
        row_floats,
        row_state,
        batch * id_floats(job),
        batch * flops,
        batch * layer_floats,
        batch * sum(outer),
        batch * sum(floats for floats in outer if 4 * batch * floats >= _MAPPED_BYTES),
        weights,
        weights * state_floats(dense_optimizer, 1),
        scale * table_bytes(job),
    )


def network_work(model: Model) -> tuple[float, float, list[int]]:
    """Return operations of a sample, forward and back, floats that layers put out, and floats of each outer product."""
    outer: list[int] = []
    tables, dims = model.tables.count, model.tables.dims
    dim = max(dims)
    narrow = [each for each in dims if each < dim]
    projections = (sum(each * dim for each in narrow), len(narrow) * dim)
    if model.family == "dlrm":
        fields = tables + 1
        pairs = fields * (fields - 1) // 2
        parts = [
            _mlp(model.dense_features, (*model.bottom_mlp, dim)),
            (fields * fields * dim, fields * (dim + fields)),
            _mlp(dim + pairs, (*model.top_mlp, 1)),
            projections,
        ]
    else:
        width = sum(dims) + model.dense_features
        parts = [_mlp(width, (*model.top_mlp, 1)), (0, width)]
        if model.family == "dcn":
            parts += [(width * width, 3 * width)] * model.cross_layers
        if model.family == "xdeepfm":
            inputs = (tables, *model.cin[:-1])
            outer = [maps * tables * dim for maps in inputs]
            layers = [(a * tables * b * dim, 2 * b * dim) for a, b in zip(inputs, model.cin, strict=True)]
            parts += [projections, *layers]
    return _FORWARD_AND_BACK * sum(part[0] for part in parts), float(sum(part[1] for part in parts)), outer


def _mlp(width: int, widths: tuple[int, ...]) -> tuple[int, int]:
    pairs = list(itertools.pairwise((width, *widths)))
    return sum(a * b for a, b in pairs), sum(2 * b for _, b in pairs)
