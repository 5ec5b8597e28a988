"""Traces of clusters: three formats, put in order, with what was left out told."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from sizewright.datasets.traces import GIB, Trace, read_demand, read_trace
from sizewright.errors import InputError


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_plain_trace(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "job,arrived_s,duration_s,gpu,cpu\na,10,100,1,4\nb,15,50,2,8\n"))
    assert (trace.jobs, list(trace.arrived_s), list(trace.duration_s)) == (("a", "b"), [0, 5], [100, 50])
    assert {name: list(amounts) for name, amounts in trace.needs.items()} == {"gpu": [1, 2], "cpu": [4, 8]}
    assert trace.notes == ()


def test_rows_out_of_order_are_sorted_and_what_cannot_be_is_left_out(tmp_path: Path) -> None:
    text = (
        "job,arrived_s,duration_s,gpu\nb,20,50,2\na,10,100,1\na,11,5,1\nc,x,5,1\nd,12,-5,1\ne,12,5,-1\nf,12,5,0\n"
        "g,13,inf,1\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.jobs == ("a", "b")
    told = " ".join(trace.notes)
    for why in ("no time of arrival", "0, negative or unknown", "negative amount", "nothing of any", "an earlier one"):
        assert why in told
    assert "2 jobs are left out: they have a duration" in told
    assert "rows are not in order of arrival: sorted" in told


def test_philly(tmp_path: Path) -> None:
    text = "timestamp,duration,num_gpus,vc\n2017-10-01 00:00:10,100,1,x\n2017-10-01 00:01:10,60,8,y\n"
    path = tmp_path / "philly.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    trace = read_trace(path)
    assert (list(trace.arrived_s), list(trace.duration_s), list(trace.needs["gpu"])) == ([0, 60], [100, 60], [1, 8])


def test_the_published_philly_trace(shared: Path) -> None:
    trace = read_trace(shared / "data" / "philly" / "philly.csv.gz")
    assert 80_000 < len(trace) <= 82_247
    assert (np.diff(trace.arrived_s) >= 0).all()
    part = trace.between(30 * 86400, 45 * 86400)
    assert part.arrived_s[0] >= 0
    assert part.arrived_s[-1] < 15 * 86400


@pytest.mark.parametrize("header", [True, False])
def test_alibaba_adds_up_the_roles_of_a_job(tmp_path: Path, header: bool) -> None:
    names = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    rows = (
        "x,worker,2,Terminated,100,200,600,30,50,V100\nx,ps,1,Terminated,90,210,400,10,,\n"
        "y,worker,1,Failed,100,200,600,30,50,V100\nz,worker,1,Terminated,300,400,100,5,100,T4\n"
    )
    trace = read_trace(written(tmp_path, (names if header else "") + rows))
    assert trace.jobs == ("x", "z")
    assert list(trace.arrived_s) == [0, 210]
    assert list(trace.duration_s) == [120, 100]
    assert list(trace.needs["cpu"]) == [16, 1]
    assert list(trace.needs["gpu"]) == [1, 1]
    assert list(trace.needs["memory_bytes"]) == [70 * GIB, 5 * GIB]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Cannot read the trace"),
        ("a,b\n1,2\n", "is no trace that is known"),
        ("arrived_s,duration_s,gpu\n", "holds no job that ran: it is empty"),
        ("arrived_s,duration_s,gpu\n1,0,1\n", "holds no job that ran: 1 jobs are left out"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_trace(written(tmp_path, text))


@pytest.mark.parametrize("last", ["1e308", "1e12"])
def test_arrivals_over_centuries_are_refused(tmp_path: Path, last: str) -> None:
    path = written(tmp_path, f"job,arrived_s,duration_s,gpu\na,-{last},10,1\nb,{last},10,1\n")
    with pytest.raises(InputError, match="more than three centuries"):
        read_trace(path)


def test_faults_of_files_and_kinds(tmp_path: Path) -> None:
    good = written(tmp_path, "arrived_s,duration_s,gpu\n1,2,1\n")
    with pytest.raises(InputError, match="No trace at"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InputError, match="no traces of kind 'google'"):
        read_trace(good, "google")
    with pytest.raises(InputError, match="no column duration, which philly traces have"):
        read_trace(good, "philly")


def test_a_part_of_a_trace_counts_from_its_beginning() -> None:
    trace = Trace(("a", "b", "c"), np.array([0.0, 5, 9]), np.ones(3), {"gpu": np.array([1.0, 2, 3])})
    part = trace.between(4, 9)
    assert (part.jobs, list(part.arrived_s), list(part.needs["gpu"])) == (("b",), [1], [2])


def test_a_demand_of_inference(tmp_path: Path) -> None:
    assert list(read_demand(written(tmp_path, "servers\n4\n5.5\n"))) == [4, 5.5]
    with pytest.raises(InputError, match="no column servers"):
        read_demand(written(tmp_path, "gpus\n4\n"))
    with pytest.raises(InputError, match="negative or no number"):
        read_demand(written(tmp_path, "servers\n4\n-1\n"))
