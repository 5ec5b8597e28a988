"""The memory report of a job: table by table, then per server. It needs no trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sizewright.formatting import format_bytes, format_count
from sizewright.models.memory._base import round_within_bounds
from sizewright.models.memory.described import DescribedMemory
from sizewright.models.memory.device import DeviceMemory
from sizewright.models.memory.embedding import drawn_rows, peak_of
from sizewright.models.memory.memory_model import MARGIN, MemoryModel, index_bytes, row_parts
from sizewright.models.memory.row_growth import RowGrowth
from sizewright.models.table import Table
from sizewright.spec import Cluster, Job, MemoryReport, ServerOption, TableMemory, WorkerOption

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
    if job.command:
        return _report_of_command(job, trials, cluster)
    model = MemoryModel.fit(job, trials) if len(trials) else MemoryModel(job)
    sizes = job.model.tables.sizes()
    ranges = ranges or [(rows, rows) for rows in sizes]
    tables = tuple(_table(job, i, rows, *ranges[i]) for i, rows in enumerate(sizes))
    rows = None if growth is None else drawn_rows(job, growth, job.samples or 0)
    servers = tuple(_server(model, ps, cluster, rows) for ps in range(1, job.bounds.ps.replicas[1] + 1))
    fitting = [s.ps for s in servers if s.fits]
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
        rests_on=_rests_on(model),
        assumptions=(
            f"{_data_types(job)}, and rows are found through a hash index of at most half load.",
            f"Beyond the counted memory, a PS takes {format_bytes(model.ps_base_bytes)} "
            f"and a worker {format_bytes(model.worker_base_bytes)}.",
            f"Each PS serves {format_count(job.bounds.worker.replicas[1], 'worker')}, the maximum of the bounds.",
        ),
    )


def _report_of_command(job: Job, trials: Table, cluster: Cluster | None) -> MemoryReport:
    """Return the memory of the tables that are described beside a command, and of the PS or workers that share them."""
    model = DescribedMemory.fit(job, trials) if len(trials) else DescribedMemory(job)
    sizes = job.model.tables.sizes()
    tables = tuple(_table(job, i, rows, rows, rows) for i, rows in enumerate(sizes))
    on_gpus = None if job.has_ps or model.tables_on_workers else DeviceMemory.fit(job, trials)
    servers: tuple[ServerOption, ...] = ()
    workers: tuple[WorkerOption, ...] = ()
    if job.has_ps:
        servers = tuple(_server(model, ps, cluster, None) for ps in range(1, job.bounds.ps.replicas[1] + 1))
    else:
        workers = tuple(_worker_option(model, count, cluster, on_gpus) for count in job.worker_counts)
    return MemoryReport(
        job=job.name,
        optimizer=job.model.optimizer.name,
        tables=tables,
        embedding_bytes=sum(t.weight_bytes + t.state_bytes for t in tables),
        index_bytes=0,
        servers=servers,
        workers=workers,
        least_ps=min((s.ps for s in servers if s.fits), default=None),
        needed_ps=_needed_ps(model, cluster) if job.has_ps else None,
        least_workers=min((w.workers for w in workers if w.fits), default=None),
        worker_memory_bytes=_worker_bytes(model),
        margin=MARGIN,
        rests_on=_rests_on(model),
        assumptions=tuple(_assumptions_of_command(model, on_gpus)),
    )


def _assumptions_of_command(model: DescribedMemory, on_gpus: DeviceMemory | None) -> Iterator[str]:
    job = model.job
    yield "The command trains the tables that the job file describes; nothing checks that."
    sharers = "PS" if job.has_ps else "workers"
    yield (
        f"{_data_types(job)}, and the {sharers} share all rows evenly, without an index; `sizewright place` shows "
        "where whole tables would lie."
    )
    if on_gpus:
        yield "The tables lie in the memory of the GPUs, which batches and the network need beyond that."
    if on_gpus and on_gpus.trials:
        yield f"What a GPU needs beyond its tables is as {format_count(on_gpus.trials, 'trial')} measured it."
    measured = "as measured" if model.trials else "as in the built-in engine, since no peak of the command was measured"
    ps = f"a PS takes {format_bytes(model.ps_base_bytes)} and " if job.has_ps else ""
    yield f"Beyond the counted memory, {ps}a worker takes {format_bytes(model.worker_base_bytes)}, {measured}."


def _rests_on(model: MemoryModel | DescribedMemory) -> str:
    if not model.trials:
        return "table sizes alone; nothing was measured yet"
    return f"{format_count(model.trials, 'trial')} with measured peaks"


def _data_types(job: Job) -> str:
    dtypes = tuple(dict.fromkeys(job.model.tables.dtypes))
    if dtypes == ("float32",):
        return "Rows and their optimizer state are float32"
    of_int8 = ", a row of int8 has a scale and an offset of 4 bytes each" if "int8" in dtypes else ""
    return f"Rows are {' or '.join(dtypes)}{of_int8}, their optimizer state is float32"


def _ps_bytes(model: MemoryModel | DescribedMemory, ps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes to request per PS (n,), with `ps` (n,) PS and the maximum number of workers."""
    bounds = model.job.bounds
    workers = np.full_like(ps, bounds.worker.replicas[1])
    return round_within_bounds(model.ps_request_bytes(ps, workers), bounds.ps.memory_bytes)


def _worker_bytes(model: MemoryModel | DescribedMemory, workers: int | None = None) -> int:
    """Return the bytes to request per worker of so many, or of the fewest, which need most where they share a batch."""
    job = model.job
    workers = workers or job.worker_counts[0]
    batch_size = np.array([float(job.batch_size_for(workers))])
    if isinstance(model, DescribedMemory):
        needed = model.worker_request_bytes(batch_size, np.array([float(workers)]))
    else:
        needed = model.worker_request_bytes(batch_size)
    return int(round_within_bounds(needed, job.bounds.worker.memory_bytes)[0])


def _min_workers_bytes(model: MemoryModel | DescribedMemory) -> int:
    """Return the bytes that the minimum number of workers requests."""
    return model.job.bounds.worker.replicas[0] * _worker_bytes(model)


def _needed_ps(model: MemoryModel | DescribedMemory, cluster: Cluster | None) -> int | None:
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
        index_bytes=0 if job.command else int(shared_index * rows / total),
        dim=job.model.tables.dims[number],
        pooling=job.model.tables.poolings[number],
        dtype=job.model.tables.dtypes[number],
        optimizer=job.model.table_optimizers[number],
    )


def _server(
    model: MemoryModel | DescribedMemory, ps: int, cluster: Cluster | None, rows: Sequence[NDArray[np.float64]] | None
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
    if rows is not None and isinstance(model, MemoryModel):
        base = model.ps_bytes(np.array([float(ps)]), workers, 0.0)[0]
        reserved = float(sum(model.job.model.tables.sizes()))
        risk = peak_of(model.job, rows, ps, base, reserved).oom_probability(need)
    return ServerOption(ps=ps, memory_bytes=need, fits=not reason, reason=reason, oom_probability=risk)


def _worker_option(
    model: DescribedMemory, workers: int, cluster: Cluster | None, on_gpus: DeviceMemory | None
) -> WorkerOption:
    """Return the memory of each of so many workers, which share the tables, in the memory of GPUs or of hosts."""
    need = _worker_bytes(model, workers)
    on_each = int(model.worker_table_bytes(np.array([float(workers)]))[0])
    reason = ""
    if need > model.job.bounds.worker.memory_bytes[1]:
        reason = "more than bounds.worker.memory"
    elif cluster is not None and need > cluster.largest_memory_bytes:
        reason = "more than any host has"
    elif cluster is not None and need * workers > cluster.memory_limit_bytes:
        reason = "more in all than the cluster allows"
    elif cluster is not None and on_gpus is not None:
        reason = _why_not_on_gpus(on_gpus, workers, cluster)
    return WorkerOption(workers=workers, memory_bytes=need, table_bytes=on_each, fits=not reason, reason=reason)


def _why_not_on_gpus(memory: DeviceMemory, workers: int, cluster: Cluster) -> str:
    """Return why the GPUs of so many workers, as many as bounds and hosts allow, lack memory; "" if they do not."""
    job = memory.job
    least, most = job.bounds.worker.gpu.count if job.bounds.worker.gpu else (1, None)
    hosts = [host for host in cluster.hosts if host.count and job.gpus_on(host) >= max(least, 1)]
    batch_size = np.array([float(job.batch_size_for(workers))])
    for host in hosts:
        gpus = min(job.gpus_on(host), most or job.gpus_on(host))
        if memory.fits(host, np.array([float(workers)]), np.array([float(gpus)]), batch_size)[0]:
            return ""
    if hosts:
        return "more than the GPUs of a worker hold"
    return "no host has the GPUs of a worker" if job.bounds.worker.gpu else ""
