"""Bytes per PS and per worker: counted from tables and optimizer, the rest learned from measured peaks.

    PS:     base + rows·((width + state)·4 + 9) + index places·4 + dense·(1 + state of one)·4/p + buffers
    worker: base + dense·12 + m·bytes per sample

`dense` are floats of dense weights; a worker has these, their gradients, and a copy that is sent. `buffers` are what
all workers exchange with the PS: rows, keys and gradients. The counted parts follow the engine's own data structures:
rows with their optimizer state in float32, a hash index of at most half load with 4 bytes a place, and a key and a mark
for each row (9 bytes). What they leave out (the interpreter, libraries, allocator) is one constant a role: the greatest
excess of a measured peak over the counted part, or, before any trial, what runs of jobs like it showed, or what was
seen on the reference host. The form is ours.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from sizewright.models.peaks import line_over, log_errors, oom_probability
from sizewright.models.table import Table, as_columns, ended_well, known
from sizewright.spec import Job, Role
from sizewright.spec.units import MIB

# Peaks beyond the counted part that idle replicas showed on the reference host (Linux, Python 3.11, Ray 2.60).
# With the margin it holds 99 in 100 PS of the shipped bank, whose jobs took 140 to 400 MiB beyond what is counted.
DEFAULT_PS_BASE_BYTES = 280 * MIB
DEFAULT_WORKER_BASE_BYTES = 420 * MIB
MARGIN = 0.15  # as Kubernetes VPA adds to its targets
INDEX_BYTES_PER_PLACE = 4
INDEX_BYTES_PER_ROW = 9
LEAST_INDEX_PLACES = 1024
# The largest partition of hashed keys exceeds the mean by some standard deviations of a binomial.
_PARTITION_SIGMAS = 4.0
# Batch sizes must make such a share of a worker's peak for the trials to tell more of it than counting does.
_TOLD_BY_BATCH = 0.1

Floats = NDArray[np.float64]


def state_floats(optimizer: str, width: int) -> int:
    """Floats of optimizer state per row of `width` weights."""
    return {"sgd": 0, "rowwise_adagrad": 1, "adagrad": width, "adam": 2 * width}[optimizer]


def row_bytes(job: Job) -> int:
    """Bytes of one row and its optimizer state."""
    width = job.model.row_width
    return 4 * (width + state_floats(job.model.optimizer.name, width))


def table_bytes(job: Job) -> int:
    """Bytes of all tables' rows and their optimizer state."""
    return sum(job.model.tables.sizes()) * row_bytes(job)


def index_bytes(rows: Floats) -> Floats:
    """Bytes of the hash index of `rows` rows: places, a power of two and at most half full; a key and a mark a row."""
    places = 2.0 ** np.ceil(np.log2(np.maximum(rows, 1) * 2))
    return cast(Floats, INDEX_BYTES_PER_PLACE * np.maximum(places, LEAST_INDEX_PLACES) + INDEX_BYTES_PER_ROW * rows)


def largest_partition(rows: Floats | float, ps: Floats) -> Floats:
    """Rows of the fullest of `ps` partitions of hashed keys, with high probability."""
    mean = rows / ps
    return np.minimum(mean + _PARTITION_SIGMAS * np.sqrt(mean) * (ps > 1), rows)


def dense_floats(job: Job) -> int:
    """Dense weights of the network."""
    model = job.model
    tables, dim = model.tables.count, model.tables.dim
    if model.family == "dlrm":
        fields = tables + 1
        bottom = _mlp(model.dense_features, (*model.bottom_mlp, dim))
        return bottom + _mlp(dim + fields * (fields - 1) // 2, (*model.top_mlp, 1))
    width = tables * dim + model.dense_features
    deep = _mlp(width, (*model.top_mlp, 1))
    if model.family == "dcn":
        return deep + model.cross_layers * width * (width + 1)
    if model.family == "xdeepfm":
        inputs = (tables, *model.cin[:-1])
        maps = sum(out * (into * tables + 1) for into, out in zip(inputs, model.cin, strict=True))
        return deep + maps + sum(model.cin) + 1
    return deep


def _mlp(width: int, widths: tuple[int, ...]) -> int:
    sizes = (width, *widths)
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


class Bases(NamedTuple):
    """Bytes beyond the counted part of a replica of each role, where no peak of the job itself tells them."""

    ps: float = DEFAULT_PS_BASE_BYTES
    worker: float = DEFAULT_WORKER_BASE_BYTES


USUAL = Bases()


@dataclass(frozen=True)
class MemoryModel:
    """Counted parts of a job plus one constant per role."""

    job: Job
    ps_base_bytes: float = DEFAULT_PS_BASE_BYTES
    worker_base_bytes: float = DEFAULT_WORKER_BASE_BYTES
    measured_ps_sum_bytes: float = 0.0
    trials: int = 0
    worker_batch_factor: float = 1.0
    """Of the counted bytes that go with the batch, where trials of several batch sizes tell it."""
    log_errors: dict[Role, Floats] = field(default_factory=dict, compare=False)
    """Of measured over predicted peaks."""

    @classmethod
    def fit(cls, job: Job, trials: Table, usual: Bases = USUAL) -> MemoryModel:
        """Learn the constants from trials that ended well and carry memory peaks; without any, they are the usual.

        Raises InputError for a table that cannot be used.
        """
        names = ("workers", "ps", "batch_size", "table_scale", "worker_memory_bytes", "ps_memory_bytes")
        well = ended_well(trials)
        columns = {name: column[well] for name, column in as_columns(trials, names).items()}
        columns["ps_memory_bytes"] = np.where(columns["ps"] >= 1, columns["ps_memory_bytes"], np.nan)
        columns["ps"] = np.maximum(columns["ps"], 1)
        bare = cls(job, 0.0, 0.0)
        batch = known(columns["batch_size"], job.training.batch_size)
        scale = known(columns["table_scale"], 1.0)
        ps_excess = columns["ps_memory_bytes"] - bare.ps_bytes(columns["ps"], columns["workers"], scale, batch)
        worker_excess = columns["worker_memory_bytes"] - bare.worker_bytes(batch)
        full = np.isfinite(columns["ps_memory_bytes"]) & (scale >= 1)
        peaks = (columns["ps"] * columns["ps_memory_bytes"])[full]
        worker_base, factor = _greatest(worker_excess, usual.worker), 1.0
        flat = bare.worker_bytes(np.zeros_like(batch))
        counted, worker_peaks = bare.worker_bytes(batch) - flat, columns["worker_memory_bytes"]
        there = counted[np.isfinite(worker_peaks)]
        if len(there) and np.ptp(there) > _TOLD_BY_BATCH * np.nanmax(worker_peaks):
            worker_base, factor = line_over(counted, worker_peaks - flat)
        learned = cls(
            job,
            _greatest(ps_excess, usual.ps),
            worker_base,
            float(peaks.max()) if len(peaks) else 0.0,
            int(np.isfinite(columns["ps_memory_bytes"]).sum()),
            factor,
        )
        ps_bytes = learned.ps_bytes(columns["ps"], columns["workers"], scale, batch)
        return replace(
            learned,
            log_errors={
                "worker": log_errors(columns["worker_memory_bytes"], learned.worker_bytes(batch)),
                "ps": log_errors(columns["ps_memory_bytes"], ps_bytes),
            },
        )

    def known(self, role: Role) -> bool:
        """Return True: the tables tell what a replica needs at least."""
        return True

    def ps_bytes(
        self, ps: Floats, workers: Floats, scale: Floats | float = 1.0, batch_size: Floats | None = None
    ) -> Floats:
        """Peak bytes of the fullest PS (n,), of so many `ps` (n,), with the share `scale` of the job's rows."""
        total_rows = float(sum(self.job.model.tables.sizes()))
        rows = largest_partition(total_rows, ps) * scale
        optimizer, width = self.job.model.optimizer.name, self.job.model.row_width
        dense = dense_floats(self.job) * 4 * (1 + state_floats(optimizer, 1)) / ps  # each weight is a row of its own
        batch = self.job.training.batch_size if batch_size is None else batch_size
        lookups = batch * self.job.model.tables.count
        buffers = workers * 4 * (lookups * (width + 2) + 2 * dense_floats(self.job)) / ps
        counted = rows * row_bytes(self.job) + index_bytes(rows) + dense + buffers
        return self.ps_base_bytes + counted

    def worker_bytes(self, batch_size: Floats) -> Floats:
        """Peak bytes of a worker (n,)."""
        model = self.job.model
        fields = model.tables.count * (model.row_width + 2)
        activations = sum(model.top_mlp) + (model.tables.count + 1) ** 2
        if model.family == "dlrm":
            activations += sum(model.bottom_mlp)
        if model.family == "xdeepfm":
            activations += sum(model.cin) * model.tables.count * model.tables.dim
        if model.family == "dcn":
            activations += 2 * model.cross_layers * model.tables.count * model.tables.dim
        per_sample = 4 * (2 * fields + 3 * activations)
        by_batch = self.worker_batch_factor * batch_size * per_sample
        return self.worker_base_bytes + 12.0 * dense_floats(self.job) + by_batch

    def oom_probability(self, role: Role, limit_bytes: float, predicted_bytes: float) -> float:
        """That a replica of the role, predicted to peak at so many bytes, breaks its limit."""
        return oom_probability(limit_bytes, predicted_bytes, self.log_errors.get(role, np.empty(0)))

    def scale_that_fits(self, limit_bytes: float) -> float:
        """The greatest table scale, 1 at most, at which all tables on one PS stay within `limit_bytes`."""
        one, scale = np.ones(1), 1.0
        while scale > 1e-6 and float(self.ps_bytes(one, one, scale)[0]) > limit_bytes:
            scale /= 2
        return scale

    def ps_request_bytes(self, ps: Floats, workers: Floats, batch_size: Floats | None = None) -> Floats:
        """What to ask for per PS: the margin on top, and never below the measured sum of peaks × its share."""
        wanted = self.ps_bytes(ps, workers, batch_size=batch_size) * (1 + MARGIN)
        rows = float(sum(self.job.model.tables.sizes()))
        share = largest_partition(rows, ps) / rows
        return cast(Floats, np.maximum(wanted, self.measured_ps_sum_bytes * share))

    def worker_request_bytes(self, batch_size: Floats) -> Floats:
        """What to ask for per worker, margin included."""
        return self.worker_bytes(batch_size) * (1 + MARGIN)


def _greatest(excess: Floats, default: float) -> float:
    finite = excess[np.isfinite(excess)]
    return float(max(finite.max(), 0.0)) if len(finite) else default
