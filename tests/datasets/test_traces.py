"""Every format of cluster traces is read in order, with notes on the jobs left out."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.datasets.traces import GIB, Trace, read_demand, read_trace
from sizewright.errors import InputError

PLAIN = "arrived_s,duration_s,gpu,cpu\n10,100,1,4\n15,50.5,2,8\n"


def write_trace(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_plain_trace_is_read(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, "job,arrived_s,duration_s,gpu,cpu\na,10,100,1,4\nb,15,50,2,8\n"))
    assert (trace.jobs, list(trace.arrived_s), list(trace.duration_s)) == (("a", "b"), [0, 5], [100, 50])
    assert {name: list(amounts) for name, amounts in trace.needs.items()} == {"gpu": [1, 2], "cpu": [4, 8]}
    assert trace.notes == ()


def test_columns_of_kinds_curves_samples_and_spread_are_read(tmp_path: Path) -> None:
    text = (
        "job,arrived_s,duration_s,samples,gpus,gpu_type,curve,spread\n"
        "a,10,100,,1, v100 ,7,0.9\nb,15,,2e6,2,,8,\nc,16,,,1,v100,7,\nd,17,5,,1,v100,7,1.5\ne,18,5,,1,v100,7,x\n"
    )
    trace = read_trace(write_trace(tmp_path, text))
    assert (trace.jobs, trace.gpu_kinds, trace.curves) == (("a", "b"), ("v100", ""), ("7", "8"))
    assert trace.samples is not None
    assert trace.spread is not None
    for actual, expected in (
        (trace.duration_s, [100, np.nan]), (trace.samples, [np.nan, 2e6]), (trace.spread, [0.9, np.nan]),
    ):  # fmt: skip
        assert np.array_equal(actual, expected, equal_nan=True)
    assert "1 job is left out: it has a duration that is 0" in " ".join(trace.notes)
    assert "2 jobs are left out: they have a spread that does not lie above 0" in " ".join(trace.notes)
    second = trace.pick(np.array([1]))
    assert (second.gpu_kinds, second.curves, second.duration_s.tolist()) == (
        ("",),
        ("8",),
        pytest.approx([np.nan], nan_ok=True),
    )


def test_trace_of_samples_needs_no_durations(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, "arrived,num_samples,gpus\n0,500,1\n"))
    assert np.isnan(trace.duration_s).all()
    assert trace.samples is not None
    assert (trace.gpu_kinds, trace.curves, trace.spread) == ((), (), None)


def test_synonyms_are_read_beside_exact_columns(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, "arrived_s,duration_s,num_gpus\n0,5,2\n"))
    assert list(trace.needs["gpu"]) == [2]


def test_unsorted_rows_are_sorted_and_invalid_rows_left_out(tmp_path: Path) -> None:
    text = (
        "job,arrived_s,duration_s,gpu\nb,20,50,2\na,10,100,1\na,11,5,1\nc,x,5,1\nd,12,-5,1\ne,12,5,-1\nf,12,5,0\n"
        "g,13,inf,1\n"
    )
    trace = read_trace(write_trace(tmp_path, text))
    assert trace.jobs == ("a", "b")
    notes = " ".join(trace.notes)
    for reason in (
        "no time of arrival",
        "0, negative or unknown",
        "negative amount",
        "nothing of any",
        "an earlier one",
    ):
        assert reason in notes
    assert "2 jobs are left out: they have a duration" in notes
    assert "rows were not in order of arrival and are sorted" in notes


def test_philly_trace_is_read(tmp_path: Path) -> None:
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
def test_alibaba_trace_sums_the_roles_of_a_job(tmp_path: Path, header: bool) -> None:
    names = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    rows = (
        "x,worker,2,Terminated,100,200,600,30,50,V100\nx,ps,1,Terminated,90,210,400,10,,\n"
        "y,worker,1,Failed,100,200,600,30,50,V100\nz,worker,1,Terminated,300,400,100,5,100,T4\n"
    )
    trace = read_trace(write_trace(tmp_path, (names if header else "") + rows))
    assert trace.jobs == ("x", "z")
    assert list(trace.arrived_s) == [0, 210]
    assert list(trace.duration_s) == [120, 100]
    assert list(trace.needs["cpu"]) == [16, 1]
    assert list(trace.needs["gpu"]) == [1, 1]
    assert list(trace.needs["memory_bytes"]) == [70 * GIB, 5 * GIB]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Cannot read the trace"),
        ("a,b\n1,2\n", "is not a trace of a known kind"),
        ("arrived_s,duration_s,gpu\n", "has no job that ran: it is empty"),
        ("arrived_s,duration_s,gpu\n1,0,1\n", "has no job that ran: 1 job is left out: it has a duration that is 0"),
    ],
)
def test_table_that_is_not_a_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_trace(write_trace(tmp_path, text))


@pytest.mark.parametrize("last", ["1e308", "1e12"])
def test_arrivals_over_centuries_are_refused(tmp_path: Path, last: str) -> None:
    path = write_trace(tmp_path, f"job,arrived_s,duration_s,gpu\na,-{last},10,1\nb,{last},10,1\n")
    with pytest.raises(InputError, match="more than three centuries"):
        read_trace(path)


def test_invalid_files_and_kinds_are_refused(tmp_path: Path) -> None:
    good = write_trace(tmp_path, "arrived_s,duration_s,gpu\n1,2,1\n")
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


def test_inference_demand_is_read(tmp_path: Path) -> None:
    assert list(read_demand(write_trace(tmp_path, "servers\n4\n5.5\n"))) == [4, 5.5]
    with pytest.raises(InputError, match="no column servers"):
        read_demand(write_trace(tmp_path, "gpus\n4\n"))
    with pytest.raises(InputError, match="negative or not a number"):
        read_demand(write_trace(tmp_path, "servers\n4\n-1\n"))


def test_published_philly_json_is_read(shared: Path) -> None:
    trace = read_trace(shared / "field" / "T01" / "philly.json")
    assert trace.jobs == ("application_1506638472019_1", "application_1506638472019_3")
    assert (list(trace.arrived_s), list(trace.duration_s)) == ([0, 1260], [5954, 1800])
    assert (list(trace.needs["gpu"]), trace.notes) == ([2, 1], ("1 job is left out: it never ran",))


def test_philly_jobs_that_run_on_and_odd_attempts(tmp_path: Path) -> None:
    attempt = {"start_time": "2017-10-06 15:00:00", "end_time": "2017-10-06 15:10:00", "detail": [{"gpus": ["a"]}]}
    jobs = [
        {"jobid": "a", "submitted_time": "2017-10-06 14:00:00", "attempts": [attempt, attempt | {"detail": None}]},
        {"jobid": "b", "submitted_time": "2017-10-06 14:01:00", "attempts": [attempt | {"end_time": None}]},
        {"jobid": "c", "submitted_time": "2017-10-06 14:02:00", "attempts": None},
        {"jobid": "d", "submitted_time": None, "attempts": [attempt]},
        {"jobid": "e", "submitted_time": "2017-10-06 14:03:00", "attempts": [attempt | {"detail": []}]},
    ]
    trace = read_trace(write_trace(tmp_path, json.dumps(jobs), "cluster_job_log"))
    assert (trace.jobs, list(trace.duration_s), list(trace.needs["gpu"])) == (("a",), [1200], [1])
    assert trace.notes == (
        "1 job is left out: it never ended", "1 job is left out: it never ran",
        "1 job is left out: it has no time of arrival, or none that is a number or a date",
        "1 job is left out: it has nothing of any resource",
    )  # fmt: skip


def test_other_tables_of_ten_columns_are_not_taken_for_alibabas(shared: Path) -> None:
    with pytest.raises(InputError, match=r"not a trace of a known kind: its columns are id, user, gpus, .*, gib\."):
        read_trace(shared / "field" / "T02" / "sim10.csv")


def test_reasons_for_jobs_left_out_are_correct(shared: Path) -> None:
    trace = read_trace(shared / "field" / "T06" / "pai.csv")
    assert trace.jobs == ("j1", "j5")
    assert trace.notes == (
        "1 job is left out: it did not succeed (Failed)", "1 job is left out: it did not succeed (Running)",
        "1 job is left out: it has nothing of any resource",
    )  # fmt: skip
    assert read_trace(shared / "field" / "T06" / "sp.csv").jobs == ("job-0", "job-1")


FORMS: dict[str, Callable[[Path], object]] = {
    "blanks": lambda path: path.write_text(PLAIN.replace(",", " , ")),
    "quotes and capitals": lambda path: path.write_text(
        PLAIN.replace("arrived_s,duration_s", '"Arrived_S", "Duration_s"')
    ),
    "semicolons": lambda path: path.write_text(PLAIN.replace(",", ";")),
    "decimal commas": lambda path: path.write_text(
        PLAIN.replace(",", ";").replace("50.5", "50,5").replace("100;", "100,0;")
    ),
    "tabs": lambda path: path.write_text(PLAIN.replace(",", "\t")),
    "bars and sep": lambda path: path.write_text("sep=|\n" + PLAIN.replace(",", "|")),
    "BOM": lambda path: path.write_text(PLAIN, encoding="utf-8-sig"),
    "CR": lambda path: path.write_bytes(PLAIN.replace("\n", "\r").encode()),
    "CRLF": lambda path: path.write_bytes(PLAIN.replace("\n", "\r\n").encode()),
    "gz without its name": lambda path: path.write_bytes(gzip.compress(PLAIN.encode())),
    "bz2": lambda path: path.write_bytes(bz2.compress(PLAIN.encode())),
    "Parquet": lambda path: pd.read_csv(io.StringIO(PLAIN)).to_parquet(path),
    "JSON": lambda path: pd.read_csv(io.StringIO(PLAIN)).to_json(path, orient="records"),
    "JSON lines": lambda path: path.write_text(
        "".join(json.dumps(row) + "\n" for row in pd.read_csv(io.StringIO(PLAIN)).to_dict("records"))
    ),
    "JSON in an object": lambda path: path.write_text(
        json.dumps({"version": 1, "jobs": pd.read_csv(io.StringIO(PLAIN)).to_dict("records")})
    ),
    "dates": lambda path: path.write_text(
        PLAIN.replace("\n10,", "\n2024-05-01T00:00:10Z,").replace("\n15,", "\n2024-05-01 02:00:15+02:00,")
    ),
    "milliseconds": lambda path: path.write_text(
        PLAIN.replace("\n10,", "\n1714521610000,").replace("\n15,", "\n1714521615000,")
    ),
    "seconds since 1970": lambda path: path.write_text(
        PLAIN.replace("\n10,", "\n1714521610,").replace("\n15,", "\n1714521615,")
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_plain_trace_in_any_form(tmp_path: Path, form: str) -> None:
    FORMS[form](tmp_path / "trace")
    trace = read_trace(tmp_path / "trace")
    assert (list(trace.arrived_s), list(trace.duration_s)) == ([0, 5], [100, 50.5])
    assert {name: list(amounts) for name, amounts in trace.needs.items()} == {"gpu": [1, 2], "cpu": [4, 8]}
    assert trace.notes == (("times are taken as milliseconds since 1970",) if form == "milliseconds" else ())


def test_the_published_philly_table_with_numbers_as_times(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, "timestamp,duration,num_gpus\n1506638472,100,1\n1506638532,60,8\n"))
    assert list(trace.arrived_s) == [0, 60]


def test_alibabas_pods_and_helios_and_acmes_jobs(tmp_path: Path) -> None:
    pods = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
        "openb-pod-0001,6000,12288,1,460,,LS,Running,427061,1000000,427061\n"
        "openb-pod-0002,6000,12288,2,1000,V100M32,BE,Pending,427062,1000000,\n"
    )
    trace = read_trace(write_trace(tmp_path, pods))
    assert (trace.jobs, trace.notes) == (("openb-pod-0000", "openb-pod-0001"), ("1 job is left out: it never ran",))
    assert (list(trace.needs["gpu"]), list(trace.needs["cpu"])) == ([1, 0.46], [12, 6])
    assert list(trace.duration_s) == [12537496, 1000000 - 427061]
    helios = (
        "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,vc\n"
        "7,u,8,32,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:01:00,2020-04-01 00:02:00,60,50,vc1\n"
        "8,u,0,4,1,FAILED,2020-04-01 00:00:40,2020-04-01 00:01:00,,5,20,vc1\n"
    )
    trace = read_trace(write_trace(tmp_path, helios))
    assert (trace.jobs, list(trace.arrived_s), list(trace.needs["gpu"])) == (("7", "8"), [0, 30], [8, 0])
    acme = helios.replace("00:00:10,", "00:00:10+08:00,").replace("00:00:40,", "00:00:40+08:00,")
    assert list(read_trace(write_trace(tmp_path, acme)).arrived_s) == [0, 30]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"j1,i1,u1,Terminated,100,200\n", r"6 columns and no header, like Alibaba's pai_job_table"),
        (b"j,t,n,w,i,Terminated,1,2,m\n", r"9 columns and no header, like Alibaba's pai_instance_table"),
        (b"PK\x03\x04xx", "damaged or cut short"),
        (gzip.compress(PLAIN.encode(), mtime=0)[:-12], "damaged or cut short.*gzip -t"),
        (b"PAR1xx", "Cannot read the trace"),
        (b'[{"a": 1}, 3]', "no list of records"),
        (b'[{"a": 1}', "Cannot read the trace"),
        (b"[" * 50_000, "nested too deeply"),
        (b'{"a": 1}', "its columns are a"),
        (b"<html><title>Sign in</title>", "is a web page or XML, not a trace"),
        ("arrived_s,duration_s".encode("utf-16"), "it is empty"),
        (b"arrived_s,duration_s\n\xff\xfe,1\n", "UTF-8"),
        (b'a,b\n"1,2\n3', "is not a trace|Cannot read"),
        (b"\n\n", "Cannot read the trace"),
    ],
)
def test_unreadable_trace_is_refused_in_one_sentence(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "trace").write_bytes(data)
    with pytest.raises(InputError, match=f"(?s){message}"):
        read_trace(tmp_path / "trace")
    with pytest.raises(InputError, match="is a folder"):
        read_trace(tmp_path)


def test_an_archive_of_several_files_names_them(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.writestr("trace.csv", PLAIN)
    assert len(read_trace(tmp_path / "one.zip")) == 2
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as two:
        two.writestr("a.csv", PLAIN)
        two.writestr("b.csv", PLAIN)
    with pytest.raises(InputError, match=r"holds 2 files: a\.csv, b\.csv"):
        read_trace(tmp_path / "two.zip")


def test_amounts_that_are_not_numbers_do_not_count_as_zero(tmp_path: Path) -> None:
    trace = read_trace(
        write_trace(tmp_path, "arrived_s,duration_s,gpu,cpu\n0,5,unknown,4\n1,5,,4\n2,5,inf,1\n3,5,1,?\n")
    )
    assert list(trace.needs["cpu"]) == [4]
    assert trace.notes == ("3 jobs are left out: they have an amount of a resource that is not a number",)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_trace_or_an_input_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "trace"
    for start in (b"", b"arrived_s,duration_s,gpu\n1,2,1\n", b'[{"attempts": [{}]}, '):
        path.write_bytes(start + data)
        with suppress(InputError):
            read_trace(path)


UNITS = "job,arrived_s,duration_s,gpu,cpu,memory_bytes\na,0,1h,1,500m,8GB\nb,1h30m,90,2,1.5,16Gi\n"


def test_amounts_may_have_units(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, UNITS))
    assert (list(trace.arrived_s), list(trace.duration_s)) == ([0, 5400], [3600, 90])
    assert {name: list(amounts) for name, amounts in trace.needs.items()} == {
        "gpu": [1, 2], "cpu": [0.5, 1.5], "memory_bytes": [8e9, 16 * GIB]
    }  # fmt: skip


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    text = UNITS.replace("arrived_s", "Submitted At").replace("duration_s", "runtime").replace("memory_bytes", "ram")
    trace = read_trace(write_trace(tmp_path, text))
    assert list(trace.duration_s) == [3600, 90]
    assert "runtime as duration_s" in trace.notes[0]
    mapped = read_trace(write_trace(tmp_path, text.replace("runtime", "Zeit")), columns={"Zeit": "duration_s"})
    assert list(mapped.duration_s) == [3600, 90]
    with pytest.raises(InputError, match=r"no column duration_s.*--map"):
        read_trace(write_trace(tmp_path, text.replace("runtime", "Zeit")), "plain")
    with pytest.raises(InputError, match="The trace has no column 'dauer'"):
        read_trace(write_trace(tmp_path, text), columns={"runtime": "dauer"})


@pytest.mark.parametrize("form", ["columns", "index", "split", "records", "table"])
def test_json_of_pandas_is_read(tmp_path: Path, form: str) -> None:
    frame = pd.read_csv(io.StringIO(PLAIN))
    trace = read_trace(write_trace(tmp_path, str(frame.to_json(orient=form)), "trace.json"))  # type: ignore[call-overload]
    assert list(trace.duration_s) == [100, 50.5]


def test_tables_of_spreadsheets_and_notes_are_read(tmp_path: Path) -> None:
    markdown = "| arrived_s | duration_s | gpu |\n|---:|---:|---:|\n| 10 | 100 | 1 |\n| 15 | 50.5 | 2 |\n"
    assert list(read_trace(write_trace(tmp_path, markdown)).duration_s) == [100, 50.5]
    (tmp_path / "excel.txt").write_bytes(PLAIN.replace(",", "\t").encode("utf-16"))
    assert list(read_trace(tmp_path / "excel.txt").duration_s) == [100, 50.5]


@pytest.mark.parametrize(
    ("dates", "arrived_d"),
    [
        (("01.02.2026 10:00", "02.02.2026 10:00", "03.02.2026 10:00"), [0, 1, 2]),
        (("01/02/2026", "02/02/2026", "13/02/2026"), [0, 1, 12]),
        (("02/01/2026", "02/02/2026", "02/13/2026"), [0, 1, 12]),
        (("2026-02-01", "2026-02-02", "2026-02-03"), [0, 1, 2]), (("01/02/2026", "02/02/2026", "03/02/2026"), None),
    ],
)  # fmt: skip
def test_dates_that_begin_with_the_day_are_recognised(
    tmp_path: Path, dates: tuple[str, ...], arrived_d: list[int] | None
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job,arrived_s,duration_s,gpu\n" + "".join(f"j{i},{d},60,1\n" for i, d in enumerate(dates)))
    if arrived_d is None:
        with pytest.raises(InputError, match=r"'01/02/2026' is ambiguous: it could begin with the day or with the"):
            read_trace(path)
    else:
        assert (read_trace(path).arrived_s / 86400).tolist() == arrived_d


@pytest.mark.parametrize("header", ["arrived_s,duration_s,gpu,GPU", "arrived_s,duration_s,gpu,gpu"])
def test_duplicate_column_is_named(tmp_path: Path, header: str) -> None:
    (tmp_path / "trace.csv").write_text(f"{header}\n0,100,1,1\n5,100,1,2\n")
    with pytest.raises(InputError, match=r"trace.csv has more than one column 'gpu'"):
        read_trace(tmp_path / "trace.csv")
