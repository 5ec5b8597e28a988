"""Every number that a table shows is on the screen, uncut, however narrow the terminal is."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from sizewright.cli import output
from sizewright.cli.cluster_tables import resources_table, shares_table, simulation_table
from sizewright.cli.layout import DataTable
from sizewright.cli.live import LiveView, changes_table
from sizewright.cli.tables import history_table, print_memory, print_prediction, print_recommendation, trials_table
from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import GIB, KIB, MIB, TIB
from sizewright.recommender.control.decisions import Decision
from sizewright.runtime.run import RunProgress
from sizewright.spec import (
    Allocation,
    ClusterAllocation,
    Estimate,
    Job,
    MeasuredThroughput,
    MemoryReport,
    PredictedAllocation,
    PredictionAnswer,
    Recommendation,
)
from sizewright.spec.simulation import SimulationAnswer

WIDTHS = (60, 80, 120)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
JOB = Job()

names = st.from_regex(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
amounts = st.one_of(st.floats(1e-3, 1e15), st.floats(1, 1e5))
counts = st.one_of(st.integers(1, 64), st.integers(1, 10**12))
sizes = st.one_of(st.just(0), st.integers(1, 2**45))
shares = st.floats(0, 1)
estimates = st.tuples(amounts, st.floats(1e-3, 1), st.floats(1, 100)).map(
    lambda drawn: Estimate(value=drawn[0], lower=drawn[0] * drawn[1], upper=drawn[0] * drawn[2])
)
allocations = st.builds(
    Allocation.of, st.integers(1, 9999), st.integers(0, 999), st.floats(0.01, 512), st.floats(0.01, 512),
    st.integers(1, 10**7), sizes, sizes,
)  # fmt: skip


def alternative(allocation: Allocation, rate: Estimate, cost: float, chosen: bool) -> dict[str, Any]:
    return {"allocation": allocation, "throughput": rate, "completion_time_s": 1e9 / rate.value, "cost": cost,
            "chosen": chosen}  # fmt: skip


@st.composite
def recommendations(draw: Callable[..., Any]) -> Recommendation:
    rows = draw(
        st.lists(st.builds(alternative, allocations, estimates, amounts, st.booleans()), min_size=1, max_size=12)
    )
    sized = {name: draw(allocations) for name in ("target", "lower", "upper", "uncapped")}
    predicted = {"throughput": draw(estimates), "completion_time_s": draw(estimates), "cost": draw(estimates),
                 "worker_memory_bytes": 1, "ps_memory_bytes": 1, "worker_utilization": draw(shares)}  # fmt: skip
    return Recommendation.model_validate(
        {"status": "ok", "job": draw(names), "alternatives": rows, "predicted": predicted, "evidence": {"trials": 3}}
        | sized
    )


@st.composite
def memory_reports(draw: Callable[..., Any]) -> MemoryReport:
    def table(number: int, rows: int, ends: tuple[int, int], *bytes_: int) -> dict[str, Any]:
        return {
            "table": number,
            "rows": rows,
            "rows_lower": max(0, rows - ends[0]),
            "rows_upper": rows + ends[1],
        } | dict(zip(("weight_bytes", "state_bytes", "index_bytes"), bytes_, strict=True))

    ends = st.one_of(st.just((0, 0)), st.tuples(counts, counts))
    tables = draw(st.lists(st.builds(table, counts, counts, ends, sizes, sizes, sizes), min_size=1, max_size=30))
    servers = draw(
        st.lists(st.fixed_dictionaries({"ps": counts, "memory_bytes": sizes, "fits": st.booleans()}), max_size=5)
    )
    option = st.fixed_dictionaries(
        {"workers": counts, "memory_bytes": sizes, "table_bytes": sizes, "fits": st.booleans()}
    )
    workers = draw(st.lists(option, max_size=3))
    return MemoryReport.model_validate(
        {"job": draw(names), "optimizer": "adagrad", "tables": tables, "embedding_bytes": draw(sizes), "index_bytes": 0,
         "servers": [] if workers else servers, "workers": workers,
         "least_ps": None, "worker_memory_bytes": draw(sizes), "margin": 0.15,
         "rests_on": "sizes alone"}
    )  # fmt: skip


@st.composite
def cluster_allocations(draw: Callable[..., Any]) -> ClusterAllocation:
    share = st.fixed_dictionaries(
        {"job": names, "decision": st.sampled_from(["launch", "adjust", "keep", "wait"]),
         "allocation": st.one_of(st.none(), allocations), "throughput": st.one_of(st.none(), amounts),
         "candidates": counts, "why": st.just("")}
    )  # fmt: skip
    use = st.fixed_dictionaries(
        {"resource": st.sampled_from(["cpu", "memory_bytes", "gpu:a100"]), "capacity": counts.map(float),
         "used": counts.map(float), "next_unit": st.one_of(st.none(), shares)}
    )  # fmt: skip
    return ClusterAllocation(
        policy="default", valued_by="", value=1, bound=None, gap=None, seconds=0.1,
        resources=draw(st.lists(use, min_size=1, max_size=4)), shares=draw(st.lists(share, min_size=1, max_size=9)),
    )  # fmt: skip


FIGURES = (
    "queueing_s", "jct_s", "jct_median_s", "jct_p99_s", "makespan_s", "use", "fairness", "preemptions", "changes",
    "decision_p99_s",
)  # fmt: skip


@st.composite
def simulations(draw: Callable[..., Any]) -> SimulationAnswer:
    row = st.fixed_dictionaries(
        {"policy": names, "load": st.floats(0.01, 9), "seeds": st.integers(1, 5),
         "figures": st.fixed_dictionaries(dict.fromkeys(FIGURES, estimates))}
    )  # fmt: skip
    return SimulationAnswer(
        trace="t.csv", jobs=draw(counts), rows=draw(st.lists(row, min_size=1, max_size=14)), runs=()
    )


trials = st.builds(
    Trial, job_hash=st.just("x"), workers=st.integers(1, 9999), ps=st.integers(0, 9999),
    worker_cpu=st.floats(0.01, 512), ps_cpu=st.floats(0.01, 512), batch_size=st.integers(1, 10**7), throughput=amounts,
    embedding_bytes=st.integers(1, 2**45),
)  # fmt: skip


@st.composite
def finished_jobs(draw: Callable[..., Any]) -> FinishedJob:
    rate, allocation = draw(estimates), draw(allocations)
    return FinishedJob.model_validate(
        {"id": draw(names), "name": draw(names), "job": JOB, "started_at": datetime(2026, 6, 1, tzinfo=timezone.utc),
         "stretches": [{"at_s": 0, "duration_s": 10, "allocation": allocation, "samples": 100}],
         "outcome": {"status": draw(st.sampled_from(["finished", "failed"])), "duration_s": 10},
         "worker": {"memory_peak_bytes": draw(sizes)}, "ps": {"memory_peak_bytes": draw(sizes)},
         "expected": rate, "expected_by": "model"}
    )  # fmt: skip


def screen(show: Callable[[Console], None], width: int) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False, markup=False, color_system=None))
    text = out.getvalue()
    assert max(map(cell_len, text.splitlines())) <= width, text
    assert "…" not in text
    return text


def numbers(text: str) -> list[str]:
    return NUMBER.findall(text)


def assert_numbers_uncut(show: Callable[[Console], None], values: list[float | None]) -> None:
    """Check that each terminal width shows all numbers, and that `values` are among them, rounded."""
    everything = screen(show, 1_000_000)
    shown = [float(number.replace(",", "")) for number in numbers(everything)]
    units = (1, 0.01, 1e-3, 60, 3600, 86400, KIB, MIB, GIB, TIB)
    for value in values:
        matches = (
            abs(number * unit - value) <= 0.051 * abs(value) for number in shown for unit in units if value is not None
        )
        assert value is None or value == 0 or any(matches) or value < 1e-3, (value, everything)
    for width in WIDTHS:
        text = screen(show, width)
        assert set(numbers(everything)) <= set(numbers(text)), text


@settings(max_examples=40, deadline=None)
@given(recommendations())
def test_recommendation_shows_all_numbers_uncut_at_any_width(answer: Recommendation) -> None:
    values: list[float | None] = []
    for row in answer.alternatives:
        values += [row.throughput.value, row.throughput.lower, row.throughput.upper, row.cost, row.completion_time_s]
        values += [row.allocation.batch_size]
    for allocation in (answer.target, answer.lower, answer.upper, answer.uncapped):
        assert allocation
        values += [n for _, group in allocation.groups for n in (group.replicas, group.cpu, group.memory_bytes)]
    assert answer.predicted
    for estimate in (answer.predicted.throughput, answer.predicted.completion_time_s, answer.predicted.cost):
        values += [estimate.value, estimate.lower, estimate.upper]
    assert_numbers_uncut(lambda console: print_recommendation(console, answer, JOB), values)


@settings(max_examples=40, deadline=None)
@given(recommendations(), amounts)
def test_prediction_shows_all_numbers_uncut_at_any_width(answer: Recommendation, rate: float) -> None:
    assert answer.predicted
    measured = MeasuredThroughput(trials=3, throughput=Estimate(value=rate, lower=rate / 2, upper=rate * 2))
    asked, recommended = (
        PredictedAllocation(allocation=allocation, predicted=answer.predicted, measured=each)
        for allocation, each in ((answer.lower, measured), (answer.target, None))
    )
    prediction = PredictionAnswer(
        status="ok", job=answer.job, asked=asked, recommended=recommended, evidence=answer.evidence
    )
    values: list[float | None] = [rate]
    for allocation in (asked.allocation, recommended.allocation):
        values += [n for _, group in allocation.groups for n in (group.replicas, group.cpu, group.memory_bytes)]
    assert answer.predicted.completion_time_s
    assert answer.predicted.cost
    values += [answer.predicted.completion_time_s.value, answer.predicted.cost.value]
    assert_numbers_uncut(lambda console: print_prediction(console, prediction), values)


@settings(max_examples=40, deadline=None)
@given(memory_reports())
def test_memory_report_shows_all_numbers_uncut_at_any_width(report: MemoryReport) -> None:
    values: list[float | None] = [] if report.workers else [report.worker_memory_bytes]
    for each in report.workers:
        values += [each.workers, each.memory_bytes, each.table_bytes]
    for table in report.tables:
        values += [table.table, table.rows, table.weight_bytes, table.state_bytes, table.index_bytes, table.total_bytes]
        values += [table.rows_lower, table.rows_upper]
    values += [size for server in report.servers for size in (server.ps, server.memory_bytes)]
    assert_numbers_uncut(lambda console: print_memory(console, report), values)


@settings(max_examples=40, deadline=None)
@given(cluster_allocations())
def test_cluster_allocation_shows_all_numbers_uncut_at_any_width(cluster_allocation: ClusterAllocation) -> None:
    def show(console: Console) -> None:
        console.print(shares_table(cluster_allocation))
        console.print(resources_table(cluster_allocation))

    values = [value for share in cluster_allocation.shares for value in (share.throughput, share.candidates)]
    assert_numbers_uncut(
        show, values + [value for use in cluster_allocation.resources for value in (use.capacity, use.used)]
    )


@settings(max_examples=40, deadline=None)
@given(simulations())
def test_simulation_shows_all_numbers_uncut_at_any_width(simulation: SimulationAnswer) -> None:
    times = [row.figures[name].value for row in simulation.rows for name in FIGURES if name.endswith("_s")]
    other_values = [value for row in simulation.rows for value in (row.load, row.figures["use"].value)]
    assert_numbers_uncut(
        lambda console: console.print(simulation_table(simulation)), [simulation.jobs, *times, *other_values]
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(trials, min_size=1, max_size=12), st.lists(finished_jobs(), min_size=1, max_size=6))
def test_trials_and_runs_show_all_numbers_uncut_at_any_width(measured: list[Trial], runs: list[FinishedJob]) -> None:
    values = [v for t in measured for v in (t.workers, t.worker_cpu, t.batch_size, t.throughput, t.embedding_bytes)]
    assert_numbers_uncut(lambda console: console.print(trials_table(measured)), values)
    peaks = [use.memory_peak_bytes for run in runs for use in (run.worker, run.ps)]
    rates = [run.expected.value for run in runs if run.expected]
    assert_numbers_uncut(lambda console: console.print(history_table(runs)), [*peaks, *rates])


@pytest.mark.parametrize("width", [*WIDTHS, 20, 1])
@given(rows=st.lists(st.lists(st.text("ab1 ,.%", max_size=40), min_size=4, max_size=4), max_size=6))
def test_any_table_keeps_every_word(width: int, rows: list[list[str]]) -> None:
    table = DataTable("A title", "first", "second", "", "of text", text=("first", "of text"))
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    shown = "".join(out.getvalue().split())
    for row in rows:
        for word in " ".join(row).split():
            assert word in shown


@pytest.mark.parametrize("width", [20, 60, 80])
def test_live_view_shows_all_numbers_uncut(width: int) -> None:
    out = io.StringIO()
    progress = RunProgress(1_234_567_890, 1_234_567.0, 9876, 543, 10**12)
    reason = "It saves 12.3 % of what is left, 45.6 s of change included."
    decision = Decision.model_validate(
        {"number": 0, "at": datetime(2026, 1, 1, tzinfo=timezone.utc), "job_hash": "x", "kind": "adjust",
         "reason": reason, "allocation": Allocation.of(9876, 543, 0.125, 0.375, 512, 600 << 20, 600 << 20),
         "forecast": {"finish_s": 9000.0}}
    )  # fmt: skip
    with LiveView(Console(file=out, force_terminal=True, width=width, height=60, color_system=None), 10**13) as view:
        for _ in range(100):
            view.progressed(progress)
        view.on_decision(decision)
    last_frame = out.getvalue()[out.getvalue().rindex("1,234,567,890") :]
    for number in ("1,234,567,890", "1,234,567/s", "9,876", "543", "0.125", "600.0", "2.5", "12.3", "45.6"):
        assert number in last_frame
    assert "…" not in last_frame
    changes = screen(lambda console: console.print(changes_table([decision])), max(width, 40))
    assert "45.6 s" in " ".join(changes.split())


def test_pipe_gets_one_line_for_each_row_and_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    table = DataTable("A title", "name", "meaning", text=("name", "meaning"))
    table.add_row("x", "word " * 300)
    output.stdout().print(table)
    output.stdout().print("word " * 300)
    assert [len(line) > 1000 for line in out.getvalue().splitlines()] == [False, False, True, True, False, True]
