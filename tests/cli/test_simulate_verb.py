"""Tests of `simulate`: its answer, its figure and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from sizewright.cluster.allocators.registry import ALLOCATORS
from sizewright.spec.simulation import SimulationAnswer


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    rows = [
        f"{arrived:.0f},{duration:.0f},{gpus}\n"
        for arrived, duration, gpus in zip(
            rng.uniform(0, 40000, 80), rng.lognormal(6, 1, 80), rng.choice([1, 2, 4], 80), strict=True
        )
    ]
    Path("trace.csv").write_text("arrived_s,duration_s,gpu\n" + "".join(rows))
    return Path("trace.csv")


def simulate(call: Callable[..., Any], *options: object) -> SimulationAnswer:
    result = call("simulate", "trace.csv", "-o", "json", *options)
    assert result.code == 0, result.err
    return SimulationAnswer.model_validate(json.loads(result.out))


def test_policies_are_compared_at_each_load(trace: Path, call: Callable[..., Any]) -> None:
    answer = simulate(call, "--policy", "default,fifo", "--load", "0.7,1.1", "--seeds", 3)
    assert [(row.policy, row.load, row.seeds) for row in answer.rows] == [
        ("default", 0.7, 3), ("fifo", 0.7, 3), ("default", 1.1, 3), ("fifo", 1.1, 3),
    ]  # fmt: skip
    assert len(answer.runs) == 12
    default, fifo = answer.rows[2:]
    assert default.figures["jct_s"].value < fifo.figures["jct_s"].value
    assert any("elastic" in text for text in answer.assumptions)
    assert "sorted" in " ".join(answer.notes)


def test_every_policy_replays_the_trace(trace: Path, call: Callable[..., Any]) -> None:
    answer = simulate(call, "--policy", "all")
    assert {row.policy for row in answer.rows} == set(ALLOCATORS)
    assert all(row.figures["unfinished"].value == 0 for row in answer.rows)


def test_table_progress_and_figure_are_written(trace: Path, call: Callable[..., Any]) -> None:
    pytest.importorskip("matplotlib")
    result = call("simulate", trace, "--policy", "default,sjf", "--seeds", 2, "--figure", "out.png")
    assert result.code == 0
    for text in ("jobs replayed", "default", "makespan", "fairness", "suspended", "assumes: "):
        assert text in result.out
    assert "4/4" in result.err
    assert Path("out.png").read_bytes()[:4] == b"\x89PNG"


def test_decisions_are_kept_with_their_times(trace: Path, call: Callable[..., Any]) -> None:
    answer = simulate(call, "--policy", "default,fifo", "--decisions", "decisions.jsonl")
    lines = [json.loads(line) for line in Path("decisions.jsonl").read_text().splitlines()]
    counts = {row.policy: row.figures["decisions"].value for row in answer.rows}
    assert counts == {policy: sum(line["policy"] == policy for line in lines) for policy in counts}
    assert all(line["seconds"] > 0 and line["jobs"] >= line["moved"] for line in lines)
    assert not answer.runs[0].decisions


def test_failures_are_counted_and_their_assumptions_listed(trace: Path, call: Callable[..., Any]) -> None:
    answer = simulate(call, "--policy", "fifo", "--failures", "20")
    assert answer.rows[0].figures["failures"].value > 0
    assert any("last save" in text for text in answer.assumptions)


def test_parallel_runs_on_ray_equal_sequential_runs(trace: Path, call: Callable[..., Any]) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    options = ("--policy", "default,fifo", "--seeds", 2)
    sequential, parallel = simulate(call, *options), simulate(call, *options, "--parallel")
    timed = ("decision_p99_s",)
    for expected, actual in zip(sequential.runs, parallel.runs, strict=True):
        assert {k: v for k, v in expected.figures.items() if k not in timed} == pytest.approx(
            {k: v for k, v in actual.figures.items() if k not in timed}
        )


def test_cluster_file_and_lent_servers_set_the_capacity(trace: Path, call: Callable[..., Any]) -> None:
    hosts = [
        {"kind": "a", "count": 2, "cpu": 8, "memory": "8Gi", "gpu": {"kind": "a100", "count": 8}},
        {"kind": "v", "count": 1, "cpu": 8, "memory": "8Gi", "gpu": {"kind": "v100", "count": 4}},
    ]
    Path("cluster.yaml").write_text(yaml.safe_dump({"hosts": hosts}))
    answer = simulate(call, "--cluster", "cluster.yaml", "--policy", "default")
    assert answer.runs[0].capacity == {"gpu:a100": 16.0, "gpu:v100": 4.0}
    mixed = simulate(call, "--cluster", "cluster.yaml", "--policy", "default", "--mix-gpus")
    assert mixed.runs[0].capacity == {"gpu": 20.0}
    at_load = simulate(call, "--load", answer.runs[0].load, "--policy", "default")
    assert at_load.runs[0].capacity["gpu"] == pytest.approx(20, abs=1)
    without_loans = simulate(call, "--policy", "aryl", "--load", 1.2, "--server", 4)
    with_loans = simulate(call, "--policy", "aryl", "--load", 1.2, "--server", 4, "--inference", 5)
    assert with_loans.rows[0].figures["jct_s"].value < without_loans.rows[0].figures["jct_s"].value
    assert any("inference" in text for text in with_loans.assumptions)


def test_days_jobs_and_until_options_select_a_part_of_the_trace(trace: Path, call: Callable[..., Any]) -> None:
    part = simulate(call, "--days", "0-0.2", "--policy", "fifo")
    assert part.jobs < 80
    drawn = simulate(call, "--jobs", 160, "--policy", "fifo")
    assert any("2 × the trace" in text for text in drawn.assumptions)
    result = call("simulate", trace, "--policy", "fifo", "--until", "0.1")
    assert "had not ended by then" in result.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "best"), "There is no policy 'best'"),
        (("--policy", ","), "nothing to simulate"),
        (("--load", "x"), "must be a list of numbers"),
        (("--load", "0"), "must be above 0 and finite, got 0"),
        (("--load", ""), "nothing to simulate"),
        (("--load", "0.9", "--cluster", "cluster.yaml"), "cluster fixes the capacity"),
        (("--inference", "2", "--cluster", "cluster.yaml"), "cluster fixes the capacity"),
        (("--sizes", "0.5,2"), "contain 1"),
        (("--sizes", "-1,1"), "got -1, 1"),
        (("--days", "5"), "must be a range"),
        (("--days", "100-101"), "No job of the trace arrived"),
        (("--kind", "google"), "no traces of kind"),
        (("--inference", "4", "--reclaim", "best"), "no reclaim policy"),
        (("--demand", "trace.csv"), "--inference"),
        (("--reclaim", "random"), "--inference"),
        (("--lent-speed", "0.5"), "--inference"),
        (("--load", "inf"), "must be above 0 and finite, got inf"),
        (("--every", "inf"), "'inf' is not a duration"),
        (("--error", "inf"), "error"),
        (("--until", "0"), "until_s must be above 0"),
        (("--figure", "out.txt"), ".png, .svg or .pdf"),
        (("--figure", "cluster.yaml/out.png"), "Cannot write cluster.yaml/out.png"),
        (("--curves", "trace.csv"), "no column size"),
        (("--speeds", "guessed"), "Speeds cannot be 'guessed'"),
        (("--speed-error", "inf"), "speed_error must be 0 or more"),
        (("--spread", "0.9"), "Without hosts, jobs are not placed"),
        (("--spread", "0"), "spread must lie above 0"),
    ],
)
def test_invalid_option_is_refused(
    trace: Path, call: Callable[..., Any], options: tuple[str, ...], message: str
) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, cpu: 8, memory: 8Gi}]")
    result = call("simulate", trace, *options)
    assert result.code == (2 if options[0] == "--every" else 1)
    assert message in result.err
    assert "Traceback" not in result.err


def test_every_policy_replays_a_trace_of_several_resources(trace: Path, call: Callable[..., Any]) -> None:
    rows = [line.split(",") for line in trace.read_text().splitlines()]
    more = ["cpu", *(str(4 * (1 + int(row[2]) % 3)) for row in rows[1:])]
    trace.write_text("".join(",".join([*row, cpu]) + "\n" for row, cpu in zip(rows, more, strict=True)))
    answer = simulate(call, "--policy", "all", "--load", "1.1")
    assert {row.policy for row in answer.rows} == set(ALLOCATORS)
    assert any("2 resources can run short" in note and note.startswith("dynamic: ") for note in answer.notes)


def test_end_before_any_job_finishes_shows_no_time(trace: Path, call: Callable[..., Any]) -> None:
    result = call("simulate", trace, "--policy", "fifo", "--until", "0.00001", "--seeds", 2)
    assert result.code == 0
    assert "nan" not in result.out + result.err
    assert "–" in result.out


def test_load_of_simultaneous_jobs_is_measured_over_the_longest_job(trace: Path, call: Callable[..., Any]) -> None:
    trace.write_text("arrived_s,duration_s,cpu\n0,100,4\n0,200,8\n")
    Path("cluster.yaml").write_text("hosts: [{kind: s, cpu: 8, memory: 8Gi}]")
    answer = simulate(call, "--cluster", "cluster.yaml", "--policy", "fifo")
    assert answer.rows[0].load == pytest.approx((400 + 1600) / 200 / 8)
    assert any("all jobs arrive at once" in text for text in answer.assumptions)


def test_cluster_on_which_no_job_fits_is_refused(trace: Path, call: Callable[..., Any]) -> None:
    result = call("simulate", trace, "--inference", 2, "--server", 0.5)
    assert result.code == 1
    assert "No job of the trace fits" in result.err


def test_cluster_without_a_required_resource_is_refused(trace: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, cpu: 8, memory: 8Gi}]")
    assert "need gpu, and the cluster has none" in call("simulate", trace, "--cluster", "cluster.yaml").err


@pytest.mark.parametrize("name", ["outcomes.csv", "outcomes.json", "outcomes.parquet"])
def test_outcomes_of_the_jobs_are_written_in_the_format_of_the_name(
    trace: Path, call: Callable[..., Any], name: str
) -> None:
    answer = simulate(call, "--policy", "sjf,tiresias:10m:1h", "--clock", "6m", "--start-up", "30s", "--outcomes", name)
    read = {"csv": pd.read_csv, "json": pd.read_json, "parquet": pd.read_parquet}[name.rpartition(".")[2]]
    table = read(name)
    assert table.groupby("policy").size().to_dict() == {"sjf": 80, "tiresias:600:3600": 80}
    assert not answer.runs[0].outcomes
    assert (table["started_s"] % 360 == 0).all()
    waited_s = table["waited_s"].groupby(table["policy"]).mean()
    assert waited_s["sjf"] == pytest.approx(answer.runs[0].figures["queueing_s"])
    assert "decisions are made every 360 s only" in answer.assumptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--clock", "0"), "clock must tick at intervals above 0 s, got 0"),
        (("--clock=-5",), "it is negative"),
        (("--start-up=-5s",), "it is negative"),
        (("--outcomes", "jobs.txt"), "unsupported format"),
        (("--outcomes", "trace.csv/jobs.csv"), "its parent is not a folder"),
        (("--policy", "tiresias:9:3"), "must be above 0 and rise"),
    ],
)
def test_invalid_clock_pause_file_and_threshold_are_explained(
    trace: Path, call: Callable[..., Any], options: tuple[str, ...], message: str
) -> None:
    result = call("simulate", trace, *options)
    assert result.code != 0
    assert message in " ".join(result.err.split())


def test_kinds_curves_learned_speeds_and_spread_are_options(trace: Path, call: Callable[..., Any]) -> None:
    Path("curves.csv").write_text(
        "job,gpu_kind,size,throughput\n" + "".join(f"x,{kind},{n},{speed * n**0.8}\n" for kind, speed in
                                                   (("a100", 30), ("v100", 10)) for n in (1, 2, 4, 8))
    )  # fmt: skip
    Path("cluster.yaml").write_text(
        "hosts: [{kind: a, count: 2, cpu: 8, memory: 8Gi, gpu: 'a100:4'}, {kind: v, count: 4, cpu: 8, memory: 8Gi, "
        "gpu: 'v100:4'}]"
    )
    options = ("--policy", "default", "--cluster", "cluster.yaml", "--curves", "curves.csv")
    known = simulate(call, *options)
    learned = simulate(call, *options, "--speeds", "learned", "--spread", "0.9")
    for answer in (known, learned):
        figures = {name: each.value for name, each in answer.rows[0].figures.items()}
        assert figures["unfinished"] == 0
        assert 0 < figures["use"] <= 1
        assert {"use_gpu:a100", "use_gpu:v100"} <= figures.keys()
    assert learned.rows[0].figures["jct_s"].value > known.rows[0].figures["jct_s"].value
    assert 0 < learned.rows[0].figures["packed"].value <= 1
    text = " ".join(learned.assumptions)
    assert "the seed deals them out" in text
    assert "policies know the speeds at the smallest size" in text
    assert "each host more than a job needs makes it 0.9" in text


def test_job_of_a_kind_that_no_host_has_is_refused(trace: Path, call: Callable[..., Any]) -> None:
    trace.write_text("job,arrived_s,duration_s,gpu,gpu_kind\na,0,10,1,h100\nb,5,10,1,\n")
    Path("cluster.yaml").write_text("hosts: [{kind: a, cpu: 8, memory: 8Gi, gpu: 'a100:4'}]")
    result = call("simulate", trace, "--cluster", "cluster.yaml")
    assert result.code == 1
    assert "Job a requests GPUs of kind h100, which no host of the cluster has." in result.err
