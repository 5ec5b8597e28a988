"""Runs through several allocations, for tests of reports and plots."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.recommender.control.decisions import Decision
from sizewright.runtime.metrics_log import Observed
from sizewright.spec import Allocation, Change, Estimate, Failure, Job, Metrics, Outcome, ReplicaMetrics


def run_of(job: Job, name: str = "nightly", actual: float = 20_000.0) -> FinishedJob:
    """Return a run that starts with two workers, grows to four, and loses a PS."""
    two, four = (Allocation.of(workers, 1, 0.5, 0.3, job.training.batch_size) for workers in (2, 4))
    return FinishedJob(
        id=name, name=name, job=job, started_at=datetime(2026, 6, 1, tzinfo=timezone.utc),
        stretches=(
            Segment(at_s=0, duration_s=600, allocation=two, samples=round(600 * actual / 2)),
            Segment(at_s=600, duration_s=3000, allocation=four, samples=round(3000 * actual)),
        ),
        outcome=Outcome(
            status="finished", duration_s=3600,
            changes=(Change(at_s=600, kind="scale", seconds=2.5, description="two workers more"),),
            failures=(Failure(at_s=1200, replica="ps-0", cause="killed", action="its rows came back"),),
        ),
        worker=JobUsage(memory_peak_bytes=400 << 20), ps=JobUsage(memory_peak_bytes=350 << 20),
        expected=Estimate(value=19_000, lower=15_000, upper=24_000), expected_by="model",
    )  # fmt: skip


def observations_of(job: Job, rate: float = 1000.0, count: int = 400) -> list[Observed]:
    """Return observations every half second of two workers and one PS that use half of their cores."""
    allocation = Allocation.of(2, 1, 0.5, 0.3, job.training.batch_size, 600 << 20, 500 << 20)
    began = datetime(2026, 6, 1, tzinfo=timezone.utc)

    def replica(role: str, index: int, cores: float, at_s: float) -> ReplicaMetrics:
        peak = round(min(400, 100 + at_s) * (1 << 20))
        return ReplicaMetrics(
            role=role, index=index, at_s=at_s, cpu_s=cores / 2 * at_s, throttled_s=0, memory_peak_bytes=peak,
        )  # type: ignore[arg-type]  # fmt: skip

    return [
        Observed(
            at=began, at_s=at_s,
            metrics=Metrics(
                replicas=(*(replica("worker", i, 0.5, at_s) for i in range(2)), replica("ps", 0, 0.3, at_s)),
                samples_trained=round(rate * at_s), allocation=allocation,
            ),
        )
        for at_s in (100 + number / 2 for number in range(count))
    ]  # fmt: skip


def decisions_of(job: Job) -> list[Decision]:
    """Return five turns that keep, one that adds two workers, three that keep, one refused and one blind."""
    two, four = (Allocation.of(workers, 1, 0.5, 0.3, job.training.batch_size) for workers in (2, 4))
    began = datetime(2026, 6, 1, tzinfo=timezone.utc)

    def turn(number: int, allocation: Allocation, **fields: object) -> Decision:
        fields = {"kind": "keep", "reason": "Nothing is better by enough."} | fields
        return Decision(
            number=number, at=began + timedelta(seconds=10 * number), job_hash=job.hash, run="r", allocation=allocation,
            throughput=None if number == 0 else 1000.0 * allocation.replicas("worker"), **fields,  # type: ignore[arg-type]
        )  # fmt: skip

    more, less = "Four workers save 300 s.", "Two would cost less."
    return [
        *(turn(number, two) for number in range(5)),
        turn(5, two, kind="adjust", stage="scale", target=four, reason=more, applied=True),
        *(turn(number, four) for number in range(6, 9)),
        turn(9, four, kind="adjust", stage="scale", target=two, reason=less, applied=False, error="It cools down."),
        turn(10, four, kind="blind", reason="The job did not answer."),
    ]
