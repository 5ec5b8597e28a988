"""Trials of a job that follow a formula."""

from __future__ import annotations

from sizewright.datasets.trials.trial import Trial
from sizewright.profiler.series.space_filling import space_filling_allocations
from sizewright.spec import Job


def formula_trials(job: Job, count: int = 8) -> list[Trial]:
    """Return trials that follow the form of the model exactly."""
    trials = []
    for i, a in enumerate(space_filling_allocations(job, 1.6, count)):
        w, p, wc, pc = a.replicas("worker"), a.replicas("ps"), a.worker[0].cpu, a.ps[0].cpu
        seconds = 0.002 + 4e-5 * a.batch_size / wc + 0.001 * w / (p * pc) + 1e-3 * w / p
        rate = w * a.batch_size / seconds * (1 + 0.02 * (-1) ** i)
        trials.append(
            Trial(
                workers=w, ps=p, worker_cpu=wc, ps_cpu=pc, batch_size=a.batch_size, throughput=rate,
                throughput_se=0.02 * rate, job=job.name, job_hash=job.hash, sync="async", table_scale=1.0,
                embedding_bytes=101_485_440, worker_memory_bytes=450 << 20, ps_memory_bytes=300 << 20,
                worker_cpu_used=wc * 0.95, ps_cpu_used=pc * 0.5, limited_by="cgroup", host="test-host", series="s",
            )
        )  # fmt: skip
    return trials
