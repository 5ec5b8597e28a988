"""Bytes per PS and per worker: counted from tables and optimizer, and corrected by measured peaks.

    PS:     base + Σ (rows·(width·bytes of one + state·4 + 9) + index places·4) + dense·(1 + its state)·4/p + buffers
    worker: base + dense·12 + m·bytes per sample

The sum runs over the kinds of rows: tables whose rows are alike share arrays and an index.
`dense` is the number of dense weights; a worker has these, their gradients, and a copy that it sends. `buffers` hold
the rows, keys and gradients that all workers exchange with the PS. The counted parts follow the engine's own data
structures: rows with their optimizer state in float32, a hash index of at most half load with 4 bytes a place, and a
key and a mark for each row (9 bytes). Everything else (the interpreter, libraries, allocator) is one constant per role,
`base`: the largest excess of a measured peak over the counted part. Before any trial it is the excess in runs of
similar jobs or, without these, on the reference host. The form is ours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sizewright.formatting import MIB
from sizewright.models.memory.peaks import MeasuredPeaks, log_errors, plane_over
from sizewright.models.table import Table, as_columns, batch_sizes, filled, successful
from sizewright.spec import Job, Role
from sizewright.spec.model import TableDtype, TableOptimizer

# Peaks of idle replicas beyond the counted part on the reference host (Linux, Python 3.11, Ray 2.60). With the margin
# they cover 99 in 100 PS of the shipped bank, whose jobs took 140 to 400 MiB beyond the counted part.
DEFAULT_PS_BASE_BYTES = 280 * MIB
DEFAULT_WORKER_BASE_BYTES = 420 * MIB
MARGIN = 0.15  # as Kubernetes VPA adds to its targets
VALUE_BYTES: dict[TableDtype, int] = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
_INT8_SCALE_BYTES = 8
INDEX_BYTES_PER_PLACE = 4
INDEX_BYTES_PER_ROW = 9
MIN_INDEX_PLACES = 1024
# The largest partition of hashed keys exceeds the mean by some standard deviations of a binomial.
_PARTITION_SIGMAS = 4.0
# Batch sizes must change a worker's peak by this share for trials to determine its batch factor.
_MIN_BATCH_SHARE = 0.1

Floats = NDArray[np.float64]


def state_floats(optimizer: TableOptimizer, width: int) -> int:
    """Return the floats of optimizer state per row of `width` weights, as FBGEMM keeps them."""
    per_row = {"sgd": 0, "rowwise_adagrad": 1, "lars_sgd": width, "adagrad": width, "adam": 2 * width}
    per_row |= {"lamb": 2 * width, "rowwise_adam": width + 1, "rowwise_lamb": width + 1}
    return per_row[optimizer]


class RowBytes(NamedTuple):
    """The bytes of the weights and of the optimizer state of one row."""

    weight: int
    state: int


def row_parts(job: Job) -> tuple[RowBytes, ...]:
    """Return the bytes of one row of each table, weights and optimizer state apart.

    A row of int8 has a scale and an offset in float32 as well; optimizer state is float32 for every data type.
    """
    kinds = zip(job.model.row_widths, job.model.tables.dtypes, job.model.table_optimizers, strict=True)
    return tuple(
        RowBytes(
            weight=width * VALUE_BYTES[dtype] + (_INT8_SCALE_BYTES if dtype == "int8" else 0),
            state=4 * state_floats(optimizer, width),
        )
        for width, dtype, optimizer in kinds
    )


def row_bytes(job: Job) -> tuple[int, ...]:
    """Return the bytes of one row of each table, with its optimizer state."""
    return tuple(sum(parts) for parts in row_parts(job))


def table_bytes(job: Job) -> int:
    """Return the bytes of the rows of all tables and their optimizer state."""
    return sum(rows * size for rows, size in zip(job.model.tables.sizes(), row_bytes(job), strict=True))


class GroupRows(NamedTuple):
    """The rows of all tables of one group, and the bytes of one of them with its optimizer state."""

    rows: float
    bytes_each: int


def group_rows(job: Job) -> list[GroupRows]:
    """Return the rows of each group of tables, in the order of `Model.table_groups`."""
    sizes, each = job.model.tables.sizes(), row_bytes(job)
    groups = job.model.table_groups
    return [GroupRows(float(sum(sizes[i] for i in group.tables)), each[group.tables[0]]) for group in groups]


def index_bytes(rows: Floats) -> Floats:
    """Return the bytes of the hash index of `rows` rows.

    Its places are a power of two and at most half full; each row has a key and a mark.
    """
    places = 2.0 ** np.ceil(np.log2(np.maximum(rows, 1) * 2))
    return cast(Floats, INDEX_BYTES_PER_PLACE * np.maximum(places, MIN_INDEX_PLACES) + INDEX_BYTES_PER_ROW * rows)


def largest_partition(rows: Floats | float, ps: Floats) -> Floats:
    """Return the rows of the fullest of `ps` partitions of hashed keys, with high probability."""
    mean = rows / ps
    return np.minimum(mean + _PARTITION_SIGMAS * np.sqrt(mean) * (ps > 1), rows)


def dense_floats(job: Job) -> int:
    """Return the number of dense weights of the network."""
    model = job.model
    tables, dims = model.tables.count, model.tables.dims
    dim = max(dims)
    projections = sum(each * dim for each in dims if each < dim)
    if model.family == "dlrm":
        fields = tables + 1
        bottom = _mlp(model.dense_features, (*model.bottom_mlp, dim))
        return bottom + projections + _mlp(dim + fields * (fields - 1) // 2, (*model.top_mlp, 1))
    width = sum(dims) + model.dense_features
    deep = _mlp(width, (*model.top_mlp, 1))
    if model.family == "dcn":
        return deep + model.cross_layers * width * (width + 1)
    if model.family == "xdeepfm":
        inputs = (tables, *model.cin[:-1])
        maps = sum(out * (into * tables + 1) for into, out in zip(inputs, model.cin, strict=True))
        return deep + projections + maps + sum(model.cin) + 1
    return deep


def id_floats(job: Job) -> float:
    """Return the mean floats of the rows of a sample's ids."""
    model = job.model
    return sum(float(ids * width) for ids, width in zip(model.tables.poolings, model.row_widths, strict=True))


def _mlp(width: int, widths: tuple[int, ...]) -> int:
    sizes = (width, *widths)
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


class Bases(NamedTuple):
    """Bytes of a replica beyond the counted part, where the job has no measured peaks."""

    ps: float = DEFAULT_PS_BASE_BYTES
    worker: float = DEFAULT_WORKER_BASE_BYTES


DEFAULT_BASES = Bases()


@dataclass(frozen=True)
class MemoryModel(MeasuredPeaks):
    """Memory that is counted from the job's description, plus one constant per role."""

    job: Job
    ps_base_bytes: float = DEFAULT_PS_BASE_BYTES
    worker_base_bytes: float = DEFAULT_WORKER_BASE_BYTES
    measured_ps_sum_bytes: float = 0.0
    """Largest measured sum of the peaks of all PS."""
    trials: int = 0
    """Number of trials with measured peaks of PS."""
    worker_batch_factor: float = 1.0
    """Factor of the counted bytes that grow with the batch, where trials of several batch sizes determine it."""
    log_errors: dict[Role, Floats] = field(default_factory=dict, compare=False)
    """Logarithms of measured over predicted peaks."""

    @classmethod
    def fit(cls, job: Job, trials: Table, usual: Bases = DEFAULT_BASES) -> MemoryModel:
        """Learn the constants from successful trials with memory peaks; without any peaks they are `usual`.

        Raises InputError for a table that cannot be used.
        """
        names = ("workers", "ps", "batch_size", "table_scale", "worker_memory_bytes", "ps_memory_bytes")
        succeeded = successful(trials)
        columns = {name: column[succeeded] for name, column in as_columns(trials, names).items()}
        workers, ps = columns["workers"], np.maximum(columns["ps"], 1)
        batch = filled(columns["batch_size"], batch_sizes(job, workers))
        scale = filled(columns["table_scale"], 1.0)
        worker_peaks = columns["worker_memory_bytes"]
        ps_peaks = np.where(columns["ps"] >= 1, columns["ps_memory_bytes"], np.nan)
        counted = cls(job, 0.0, 0.0)

        ps_base = largest_excess(ps_peaks - counted.ps_bytes(ps, workers, scale, batch), usual.ps)
        full_size = np.isfinite(ps_peaks) & (scale >= 1)
        ps_sums = (ps * ps_peaks)[full_size]

        worker_base = largest_excess(worker_peaks - counted.worker_bytes(batch), usual.worker)
        batch_factor = 1.0
        without_batch = counted.worker_bytes(np.zeros_like(batch))
        batch_bytes = counted.worker_bytes(batch) - without_batch
        measured_batch_bytes = batch_bytes[np.isfinite(worker_peaks)]
        if len(measured_batch_bytes) and np.ptp(measured_batch_bytes) > _MIN_BATCH_SHARE * np.nanmax(worker_peaks):
            worker_base, batch_factor = plane_over(worker_peaks - without_batch, batch_bytes)

        model = cls(
            job=job,
            ps_base_bytes=ps_base,
            worker_base_bytes=worker_base,
            measured_ps_sum_bytes=float(ps_sums.max()) if len(ps_sums) else 0.0,
            trials=int(np.isfinite(ps_peaks).sum()),
            worker_batch_factor=batch_factor,
        )
        return replace(
            model,
            log_errors={
                "worker": log_errors(worker_peaks, model.worker_bytes(batch)),
                "ps": log_errors(ps_peaks, model.ps_bytes(ps, workers, scale, batch)),
            },
        )

    def known(self, role: Role) -> bool:
        """Return True: the memory of both roles can always be counted."""
        return True

    def ps_bytes(
        self, ps: Floats, workers: Floats, table_scale: Floats | float = 1.0, batch_size: Floats | None = None
    ) -> Floats:
        """Return the peak bytes of the fullest of `ps` PS (n,), with the share `table_scale` of the job's rows."""
        rows_and_indexes: Floats = np.zeros(1)
        for group in group_rows(self.job):
            rows = largest_partition(group.rows, ps) * table_scale
            rows_and_indexes = rows_and_indexes + (rows * group.bytes_each + index_bytes(rows))
        state = state_floats(self.job.model.optimizer.name, 1)  # each dense weight is a row of its own
        dense = dense_floats(self.job) * 4 * (1 + state) / ps
        batch = batch_sizes(self.job, workers) if batch_size is None else batch_size
        exchanged = batch * self._exchanged_floats() + 2 * dense_floats(self.job)
        buffers: Floats = workers * 4 * exchanged / ps
        return self.ps_base_bytes + (rows_and_indexes + dense + buffers)

    def worker_bytes(self, batch_size: Floats, loaders: Floats | None = None) -> Floats:
        """Return the peak bytes of a worker (n,); `loaders`, processes of a command, are not among its own."""
        model = self.job.model
        tables, dims = model.tables.count, model.tables.dims
        activations = sum(model.top_mlp) + (tables + 1) ** 2
        if model.family == "dlrm":
            activations += sum(model.bottom_mlp)
        if model.family == "xdeepfm":
            activations += sum(model.cin) * tables * max(dims)
        if model.family == "dcn":
            activations += 2 * model.cross_layers * sum(dims)
        per_sample = 4 * (2 * self._exchanged_floats() + 3 * activations)
        batch_bytes: Floats = self.worker_batch_factor * batch_size * per_sample
        return self.worker_base_bytes + 12.0 * dense_floats(self.job) + batch_bytes

    def _exchanged_floats(self) -> float:
        """Return the floats of a sample's rows and keys, which are exchanged with the PS; a key takes two."""
        return id_floats(self.job) + 2 * sum(map(float, self.job.model.tables.poolings))

    def scale_that_fits(self, limit_bytes: float) -> float:
        """Return the largest table scale, at most 1, at which a single PS stays within `limit_bytes`."""
        one = np.ones(1)
        scale = 1.0
        while scale > 1e-6 and float(self.ps_bytes(one, one, scale)[0]) > limit_bytes:
            scale /= 2
        return scale

    def ps_request_bytes(self, ps: Floats, workers: Floats, batch_size: Floats | None = None) -> Floats:
        """Return the bytes to request per PS: with the margin, and at least its share of the measured sum of peaks."""
        needed = self.ps_bytes(ps, workers, batch_size=batch_size) * (1 + MARGIN)
        rows = float(sum(self.job.model.tables.sizes()))
        share = largest_partition(rows, ps) / rows
        return cast(Floats, np.maximum(needed, self.measured_ps_sum_bytes * share))

    def worker_request_bytes(self, batch_size: Floats, loaders: Floats | None = None) -> Floats:
        """Return the bytes to request per worker, with the margin; `loaders` processes as in `worker_bytes`."""
        return self.worker_bytes(batch_size) * (1 + MARGIN)


def largest_excess(excess: Floats, default: float) -> float:
    """Return the largest known excess of a peak over what is counted, at least 0; `default` where none is known."""
    finite = excess[np.isfinite(excess)]
    return float(max(finite.max(), 0.0)) if len(finite) else default
