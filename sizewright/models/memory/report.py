"""The memory report of a job: table by table, then per server. It needs no trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sizewright.formatting import format_bytes, format_count
from sizewright.models.memory._base import round_within_bounds
from sizewright.models.memory.embedding import drawn_rows, peak_of
from sizewright.models.memory.memory_model import MARGIN, MemoryModel, index_bytes, row_parts
from sizewright.models.memory.row_growth import RowGrowth
from sizewright.models.table import Table
from sizewright.spec import Cluster, Job, MemoryReport, ServerOption, TableMemory

_MAX_PS = 4096


def report(
    job: Job,
    trials: Table,
    cluster: Cluster | None = None,
    ranges: Sequence[tuple[int, int]] | None = None,
    growth: Sequence[RowGrowth] | None = None,
) -> MemoryReport:
    """Return the memory of a job, table by table and per server.

    `ranges` are the lower and upper rows of each table where they were estimated, `growth` is the measured growth of
    each table.
    """
    model = MemoryModel.fit(job, trials) if len(trials) else MemoryModel(job)
    sizes = job.model.tables.sizes()
    ranges = ranges or [(rows, rows) for rows in sizes]
    tables = tuple(_table(job, i, rows, *ranges[i]) for i, rows in enumerate(sizes))
    rows = None if growth is None else drawn_rows(job, growth, job.samples or 0)
    servers = tuple(_server(model, ps, cluster, rows) for ps in range(1, job.bounds.ps.replicas[1] + 1))
    fitting = [s.ps for s in servers if s.fits]
    rests_on = (
        f"{format_count(model.trials, 'trial')} with measured peaks"
        if model.trials
        else "table sizes alone; nothing was measured yet"
    )
    return MemoryReport(
        job=job.name,
        optimizer=job.model.optimizer.name,
        tables=tables,
        embedding_bytes=sum(t.weight_bytes + t.state_bytes for t in tables),
        index_bytes=sum(t.index_bytes for t in tables),
        servers=servers,
        least_ps=min(fitting) if fitting else None,
        needed_ps=_needed_ps(model, cluster),
        worker_memory_bytes=_worker_bytes(model),
        margin=MARGIN,
        rests_on=rests_on,
        assumptions=(
            f"{_data_types(job)}, and rows are found through a hash index of at most half load.",
            f"Beyond the counted memory, a PS takes {format_bytes(model.ps_base_bytes)} "
            f"and a worker {format_bytes(model.worker_base_bytes)}.",
            f"Each PS serves {format_count(job.bounds.worker.replicas[1], 'worker')}, the maximum of the bounds.",
        ),
    )


def _data_types(job: Job) -> str:
    if set(job.model.tables.dtypes) == {"float32"}:
        return "Rows and their optimizer state are float32"
    return "Optimizer state is float32, a row of int8 has a scale and an offset of 4 bytes each"


def _ps_bytes(model: MemoryModel, ps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes to request per PS (n,), with `ps` (n,) PS and the maximum number of workers."""
    bounds = model.job.bounds
    workers = np.full_like(ps, bounds.worker.replicas[1])
    return round_within_bounds(model.ps_request_bytes(ps, workers), bounds.ps.memory_bytes)


def _worker_bytes(model: MemoryModel) -> int:
    """Return the bytes to request per worker; of those that share a batch, with the fewest workers."""
    job = model.job
    needed = model.worker_request_bytes(np.array([float(job.batch_size_for(job.worker_counts[0]))]))
    return int(round_within_bounds(needed, job.bounds.worker.memory_bytes)[0])


def _min_workers_bytes(model: MemoryModel) -> int:
    """Return the bytes that the minimum number of workers requests."""
    return model.job.bounds.worker.replicas[0] * _worker_bytes(model)


def _needed_ps(model: MemoryModel, cluster: Cluster | None) -> int | None:
    """Return the smallest number of PS whose memory fits the bounds of one PS and the cluster.

    The bounds of the number of PS are ignored.
    """
    ps = np.arange(1.0, _MAX_PS + 1)
    need = _ps_bytes(model, ps)
    fits = need <= model.job.bounds.ps.memory_bytes[1]
    if cluster is not None:
        fits &= need <= cluster.largest_memory_bytes
        fits &= need * ps + _min_workers_bytes(model) <= cluster.memory_limit_bytes
    return int(ps[np.flatnonzero(fits)[0]]) if fits.any() else None


def _table(job: Job, number: int, rows: int, lower: int, upper: int) -> TableMemory:
    sizes, each = job.model.tables.sizes(), row_parts(job)[number]
    group = next(group for group in job.model.table_groups if number in group.tables)
    total = float(sum(sizes[table] for table in group.tables))
    shared_index = float(index_bytes(np.array([total]))[0])  # of all tables of this group
    return TableMemory(
        table=number,
        rows=rows,
        rows_lower=lower,
        rows_upper=upper,
        weight_bytes=rows * each.weight,
        state_bytes=rows * each.state,
        index_bytes=int(shared_index * rows / total),
        dim=job.model.tables.dims[number],
        pooling=job.model.tables.poolings[number],
        dtype=job.model.tables.dtypes[number],
        optimizer=job.model.table_optimizers[number],
    )


def _server(
    model: MemoryModel, ps: int, cluster: Cluster | None, rows: Sequence[NDArray[np.float64]] | None
) -> ServerOption:
    bounds = model.job.bounds
    workers = np.array([float(bounds.worker.replicas[1])])
    need = int(_ps_bytes(model, np.array([float(ps)]))[0])
    reason = ""
    if need > bounds.ps.memory_bytes[1]:
        reason = "more than bounds.ps.memory"
    elif ps < bounds.ps.replicas[0]:
        reason = "fewer than bounds.ps.replicas"
    elif cluster is not None and need > cluster.largest_memory_bytes:
        reason = "more than any host has"
    elif cluster is not None and need * ps + _min_workers_bytes(model) > cluster.memory_limit_bytes:
        reason = "more in all, with the fewest workers, than the cluster allows"
    risk = None
    if rows is not None:
        base = model.ps_bytes(np.array([float(ps)]), workers, 0.0)[0]
        reserved = float(sum(model.job.model.tables.sizes()))
        risk = peak_of(model.job, rows, ps, base, reserved).oom_probability(need)
    return ServerOption(ps=ps, memory_bytes=need, fits=not reason, reason=reason, oom_probability=risk)
