"""What a job's step has to do, counted from its description: operations, floats moved, rows exchanged."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory import dense_floats, state_floats, table_bytes
from sizewright.spec import Job, Model

Floats = NDArray[np.float64]

_EXACT_IDS = 256
_BINS = 200
_FORWARD_AND_BACK = 6.0  # two operations each, forward, and twice that back
_SMALLEST = 1e-4  # share of a job's rows
_MAPPED_BYTES = 32 << 20  # the greatest M_MMAP_THRESHOLD of glibc on 64 bits


class Work(NamedTuple):
    """Of one step of one worker, columns (n,)."""

    samples: Floats
    numeric: Floats
    """Cells of the numeric columns."""
    ids: Floats
    rows: Floats
    """Distinct rows of the batch, which are exchanged with the PS."""
    row_floats: Floats
    """Floats of these rows."""
    row_state: Floats
    """Floats of optimizer state of these rows."""
    id_floats: Floats
    """Floats of the rows of all ids: gathered, and their gradients summed up."""
    flops: Floats
    layer_floats: Floats
    """Floats that layers put out."""
    outer_floats: Floats
    """Floats of outer products of rows, which xDeepFM's interaction makes."""
    large_floats: Floats
    """Those in arrays so large that the C library maps each anew, page by page."""
    weights: Floats
    """Dense weights."""
    weight_state: Floats
    """Floats of optimizer state of the dense weights."""
    embedding_bytes: Floats


def work_of(job: Job, batch_size: Floats, table_scale: Floats) -> Work:
    """Counted for each batch size and share of the job's rows (n,)."""
    batches, of_batch = np.unique(batch_size, return_inverse=True)
    scales, of_scale = np.unique(table_scale, return_inverse=True)
    counted = np.array([_one(job, batch, scale) for batch in batches for scale in scales])
    return Work(*counted.reshape(-1, len(Work._fields))[of_batch * len(scales) + of_scale].T)


def scale_of(job: Job, embedding_bytes: Floats) -> Floats:
    """Which share of the job's rows so many bytes (n,) are, in steps of a fifth; 1 where they are not known."""
    share = np.where(embedding_bytes > 0, embedding_bytes, np.nan) / table_bytes(job)
    steps = np.log2(np.clip(np.where(np.isnan(share), 1.0, share), _SMALLEST, 1.0))
    return np.asarray(2.0 ** (np.round(steps * 4) / 4))


def distinct_rows(rows: int, zipf: float, draws: float) -> float:
    """Expected distinct ids among so many draws by the continuous form of Zipf's law that synthetic logs follow."""
    edges = np.arange(1, min(rows, _EXACT_IDS) + 2, dtype=float)
    if rows > _EXACT_IDS:
        edges = np.concatenate([edges[:-1], np.geomspace(edges[-1], rows + 1, _BINS)])
    width = np.diff(edges)
    flatness = 1.0 - zipf
    reached = np.log(edges) if abs(flatness) < 1e-9 else (edges**flatness - 1) / flatness
    mass = np.diff(reached) / (reached[-1] - reached[0]) / width
    return float((width * -np.expm1(draws * np.log1p(-np.minimum(mass, 1 - 1e-12)))).sum())


def _one(job: Job, batch: float, scale: float) -> tuple[float, ...]:
    model = job.model
    sizes = Counter(model.tables.sizes(scale))
    rows = sum(count * distinct_rows(size, job.data.zipf, batch) for size, count in sizes.items())
    flops, floats, outer = network_work(model)
    large = sum(each for each in outer if 4 * batch * each >= _MAPPED_BYTES)
    ids, width, optimizer = batch * model.tables.count, model.row_width, model.optimizer.name
    weights = float(dense_floats(job))
    dense_optimizer = "adagrad" if optimizer == "rowwise_adagrad" else optimizer
    return (
        batch,
        batch * model.dense_features,
        ids,
        rows,
        rows * width,
        rows * state_floats(optimizer, width),
        ids * width,
        batch * flops,
        batch * floats,
        batch * sum(outer),
        batch * large,
        weights,
        weights * state_floats(dense_optimizer, 1),
        scale * table_bytes(job),
    )


def network_work(model: Model) -> tuple[float, float, list[int]]:
    """Floating-point operations of a sample, forward and back; floats that layers put out; floats of each outer product
    of rows."""
    outer: list[int] = []
    tables, dim = model.tables.count, model.tables.dim
    if model.family == "dlrm":
        fields = tables + 1
        pairs = fields * (fields - 1) // 2
        parts = [
            _mlp(model.dense_features, (*model.bottom_mlp, dim)),
            (fields * fields * dim, fields * (dim + fields)),
            _mlp(dim + pairs, (*model.top_mlp, 1)),
        ]
    else:
        width = tables * dim + model.dense_features
        parts = [_mlp(width, (*model.top_mlp, 1)), (0, width)]
        if model.family == "dcn":
            parts += [(width * width, 3 * width)] * model.cross_layers
        if model.family == "xdeepfm":
            inputs = (tables, *model.cin[:-1])
            outer = [maps * tables * dim for maps in inputs]
            parts += [(a * tables * b * dim, 2 * b * dim) for a, b in zip(inputs, model.cin, strict=True)]
    return _FORWARD_AND_BACK * sum(part[0] for part in parts), float(sum(part[1] for part in parts)), outer


def _mlp(width: int, widths: tuple[int, ...]) -> tuple[int, int]:
    pairs = list(itertools.pairwise((width, *widths)))
    return sum(a * b for a, b in pairs), sum(2 * b for _, b in pairs)
