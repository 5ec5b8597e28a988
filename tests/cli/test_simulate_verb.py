"""What `simulate` shows, draws and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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


def replayed(call: Callable[..., Any], *options: object) -> SimulationAnswer:
    told = call("simulate", "trace.csv", "-o", "json", *options)
    assert told.code == 0, told.err
    return SimulationAnswer.model_validate(json.loads(told.out))


def test_policies_side_by_side(trace: Path, call: Callable[..., Any]) -> None:
    told = replayed(call, "--policy", "default,fifo", "--load", "0.7,1.1", "--seeds", 3)
    assert [(row.policy, row.load, row.seeds) for row in told.rows] == [
        ("default", 0.7, 3), ("fifo", 0.7, 3), ("default", 1.1, 3), ("fifo", 1.1, 3),
    ]  # fmt: skip
    assert len(told.runs) == 12
    default, fifo = told.rows[2:]
    assert default.figures["jct_s"].value < fifo.figures["jct_s"].value
    assert any("elastic" in text for text in told.assumptions)
    assert "sorted" in " ".join(told.notes)


def test_every_policy_replays_it(trace: Path, call: Callable[..., Any]) -> None:
    told = replayed(call, "--policy", "all")
    assert {row.policy for row in told.rows} == set(ALLOCATORS)
    assert all(row.figures["unfinished"].value == 0 for row in told.rows)


def test_the_table_the_progress_and_the_figure(trace: Path, call: Callable[..., Any]) -> None:
    pytest.importorskip("matplotlib")
    told = call("simulate", trace, "--policy", "default,sjf", "--seeds", 2, "--figure", "out.png")
    assert told.code == 0
    for text in ("jobs replayed", "default", "makespan", "fair", "stopped", "assumes: "):
        assert text in told.out
    assert "4/4" in told.err
    assert Path("out.png").read_bytes()[:4] == b"\x89PNG"


def test_decisions_are_kept_with_their_times(trace: Path, call: Callable[..., Any]) -> None:
    told = replayed(call, "--policy", "default,fifo", "--decisions", "decisions.jsonl")
    lines = [json.loads(line) for line in Path("decisions.jsonl").read_text().splitlines()]
    counts = {row.policy: row.figures["decisions"].value for row in told.rows}
    assert counts == {policy: sum(line["policy"] == policy for line in lines) for policy in counts}
    assert all(line["seconds"] > 0 and line["jobs"] >= line["moved"] for line in lines)
    assert not told.runs[0].decisions


def test_failures_are_counted_and_what_was_assumed_of_them_is_said(trace: Path, call: Callable[..., Any]) -> None:
    told = replayed(call, "--policy", "fifo", "--failures", "20")
    assert told.rows[0].figures["failures"].value > 0
    assert any("last save" in text for text in told.assumptions)


def test_runs_side_by_side_on_ray_are_the_same(trace: Path, call: Callable[..., Any]) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    options = ("--policy", "default,fifo", "--seeds", 2)
    alone, beside = replayed(call, *options), replayed(call, *options, "--parallel")
    timed = ("decision_p99_s",)
    for one, other in zip(alone.runs, beside.runs, strict=True):
        assert {k: v for k, v in one.figures.items() if k not in timed} == pytest.approx(
            {k: v for k, v in other.figures.items() if k not in timed}
        )


def test_servers_of_a_cluster_and_lent_ones(trace: Path, call: Callable[..., Any]) -> None:
    hosts = [
        {"kind": "a", "count": 2, "cpu": 8, "memory": "8Gi", "gpu": {"kind": "a100", "count": 8}},
        {"kind": "v", "count": 1, "cpu": 8, "memory": "8Gi", "gpu": {"kind": "v100", "count": 4}},
    ]
    Path("cluster.yaml").write_text(yaml.safe_dump({"hosts": hosts}))
    told = replayed(call, "--cluster", "cluster.yaml", "--policy", "default")
    assert told.runs[0].capacity == {"gpu": 20.0}
    at_load = replayed(call, "--load", told.runs[0].load, "--policy", "default")
    assert at_load.runs[0].capacity["gpu"] == pytest.approx(20, abs=1)
    none = replayed(call, "--policy", "aryl", "--load", 1.2, "--server", 4)
    lent = replayed(call, "--policy", "aryl", "--load", 1.2, "--server", 4, "--inference", 5)
    assert lent.rows[0].figures["jct_s"].value < none.rows[0].figures["jct_s"].value
    assert any("inference" in text for text in lent.assumptions)


def test_a_part_an_end_and_jobs_drawn(trace: Path, call: Callable[..., Any]) -> None:
    part = replayed(call, "--days", "0-0.2", "--policy", "fifo")
    assert part.jobs < 80
    drawn = replayed(call, "--jobs", 160, "--policy", "fifo")
    assert any("2 × the trace" in text for text in drawn.assumptions)
    told = call("simulate", trace, "--policy", "fifo", "--until", "0.1")
    assert "had not ended by then" in told.out


@pytest.mark.parametrize(
    ("options", "told"),
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
        (("--load", "inf"), "must be above 0 and finite, got inf"),
        (("--every", "inf"), "'inf' is not a duration"),
        (("--error", "inf"), "error"),
        (("--until", "0"), "until_s must be above 0"),
        (("--figure", "out.txt"), ".png, .svg or .pdf"),
        (("--figure", "cluster.yaml/out.png"), "Cannot write cluster.yaml/out.png"),
        (("--curves", "trace.csv"), "no column size"),
    ],
)
def test_options_that_cannot_be(trace: Path, call: Callable[..., Any], options: tuple[str, ...], told: str) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, cpu: 8, memory: 8Gi}]")
    result = call("simulate", trace, *options)
    assert result.code == (2 if options[0] == "--every" else 1)
    assert told in result.err
    assert "Traceback" not in result.err


def test_every_policy_replays_a_trace_of_several_resources(trace: Path, call: Callable[..., Any]) -> None:
    rows = [line.split(",") for line in trace.read_text().splitlines()]
    more = ["cpu", *(str(4 * (1 + int(row[2]) % 3)) for row in rows[1:])]
    trace.write_text("".join(",".join([*row, cpu]) + "\n" for row, cpu in zip(rows, more, strict=True)))
    told = replayed(call, "--policy", "all", "--load", "1.1")
    assert {row.policy for row in told.rows} == set(ALLOCATORS)
    assert any("2 resources can run short" in note and note.startswith("dynamic: ") for note in told.notes)


def test_an_end_before_any_job_is_done_is_no_time(trace: Path, call: Callable[..., Any]) -> None:
    told = call("simulate", trace, "--policy", "fifo", "--until", "0.00001", "--seeds", 2)
    assert told.code == 0
    assert "nan" not in told.out + told.err
    assert "–" in told.out


def test_the_load_of_jobs_that_come_at_once_is_that_while_the_longest_runs(
    trace: Path, call: Callable[..., Any]
) -> None:
    trace.write_text("arrived_s,duration_s,cpu\n0,100,4\n0,200,8\n")
    Path("cluster.yaml").write_text("hosts: [{kind: s, cpu: 8, memory: 8Gi}]")
    told = replayed(call, "--cluster", "cluster.yaml", "--policy", "fifo")
    assert told.rows[0].load == pytest.approx((400 + 1600) / 200 / 8)
    assert any("all jobs arrive at once" in text for text in told.assumptions)


def test_a_cluster_on_which_nothing_fits(trace: Path, call: Callable[..., Any]) -> None:
    result = call("simulate", trace, "--inference", 2, "--server", 0.5)
    assert result.code == 1
    assert "No job of the trace fits" in result.err


def test_a_cluster_without_what_the_trace_needs(trace: Path, call: Callable[..., Any]) -> None:
    Path("cluster.yaml").write_text("hosts: [{kind: s, cpu: 8, memory: 8Gi}]")
    assert "need gpu, and the cluster has none" in call("simulate", trace, "--cluster", "cluster.yaml").err
