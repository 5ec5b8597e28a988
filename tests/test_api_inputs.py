"""Inputs of the public functions: files, mappings, data frames and records, and the errors for anything else."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sizewright as sw
from sizewright import api
from sizewright.api._records import as_trials
from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.datasets.trials.files import export_trials
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trials
from sizewright.errors import InputError, JobError, RecordError, SizewrightError
from sizewright.spec import Allocation, Group, Outcome, Prices, Training

CLUSTER = {"hosts": [{"kind": "h", "count": 4, "cpu": 8, "memory": "32Gi"}], "quota": {"cpu": 1}}


@pytest.fixture
def trials(store: str) -> Trials:
    with TrialStore(store, create=False) as opened:
        return opened.trials()


FORMS: dict[str, Callable[[Trials, Path], Any]] = {
    "records": lambda trials, _: list(trials),
    "tuple": lambda trials, _: tuple(trials),
    "generator": lambda trials, _: (trial for trial in trials),
    "dicts": lambda trials, _: [trial.model_dump() for trial in trials],
    "json": lambda trials, _: [trial.model_dump(mode="json", exclude_none=True) for trial in trials],
    "mixed": lambda trials, _: [trials[0], *(trial.model_dump() for trial in trials[1:])],
    "frame": lambda trials, _: trials.to_frame(),
    "nullable frame": lambda trials, _: trials.to_frame().convert_dtypes(),
    "arrow": lambda trials, _: pa.Table.from_pylist([trial.model_dump() for trial in trials]),
    "columns": lambda trials, _: trials.to_frame().to_dict("list"),
    "csv": lambda trials, folder: write_trials(trials, folder / "t.csv"),
    "parquet": lambda trials, folder: str(write_trials(trials, folder / "t.parquet")),
}


def write_trials(trials: Trials, path: Path) -> Path:
    export_trials(trials, path)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_trials_in_any_form_give_the_same_answer(trials: Trials, example: Path, tmp_path: Path, form: str) -> None:
    value = FORMS[form](trials, tmp_path)
    converted = as_trials(value)
    assert isinstance(converted, Trials)
    assert list(converted) == list(trials)
    if form != "generator":
        assert sw.recommend(example, trials=value) == sw.recommend(example, trials=trials)


def test_single_trial_is_accepted() -> None:
    trial = sw.Trial(workers=1, ps=1, throughput=5.0)
    assert as_trials(trial) == as_trials({"workers": 1, "ps": 1, "throughput": 5.0}) == [trial]
    assert as_trials(pd.DataFrame([{"workers": 1, "ps": 1, "throughput": 5.0, "batch_size": np.nan}])) == [trial]
    assert as_trials([]) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "Trials cannot be of type int"),
        ([1, 2], "Trials cannot be of type list of int"),
        (pd.Series([1.5, 2.5]), "Trials cannot be of type Series of float"),
        (io.StringIO("workers,ps\n1,1\n"), "Trials cannot be of type StringIO of str"),
        ("workers,ps,throughput\n1,1,1\n", "The table of trials is a text of several lines"),
        (b"x", "Trials cannot be of type bytes"),
        ([{"workers": 0, "ps": 1, "throughput": 1}], "The table of trials: row 1"),
        ([{"workers": 1, "ps": 1, "throughput": "fast"}], "throughput"),
        ({"workers": [1, 2], "ps": [1], "throughput": [1, 2]}, "differ in length"),
        ("none.csv", "No table at"),
        (pd.DataFrame({"workers": [1], "zzzzz": [1]}), "zzzzz"),
    ],
)
def test_invalid_trials_are_refused_in_one_sentence(example: Path, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        sw.recommend(example, trials=value)
    assert "\n" not in str(caught.value)
    assert "/tmp" not in str(caught.value)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3) | st.floats(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )
)
def test_any_value_gives_trials_or_a_sizewright_error(value: Any) -> None:
    with suppress(SizewrightError):
        assert all(isinstance(trial, sw.Trial) for trial in as_trials(value))


def test_a_job_may_be_a_dict(example: Path, trials: Trials) -> None:
    job = sw.load_job(example)
    for value in (job.model_dump(), job.model_dump(mode="json", by_alias=True)):
        assert sw.load_job(value) == job
        assert sw.recommend(value, trials=trials) == sw.recommend(example, trials=trials)
        assert sw.memory(value) == sw.memory(example)
    with pytest.raises(JobError, match=r"The job: unknown key 'nmae' \(did you mean 'name'\?\)"):
        sw.recommend({"nmae": "x"}, trials=trials)


@pytest.mark.parametrize("ask", [sw.recommend, sw.memory, sw.load_job, sw.profile, sw.run, api.job_hash])
@pytest.mark.parametrize("job", [5, None, ["a"], object()])
def test_invalid_job_raises_a_sizewright_error(ask: Callable[[Any], Any], job: Any) -> None:
    with pytest.raises(SizewrightError, match=r"is of type .*\. Pass the path of its file, a dict, or a Job"):
        ask(job)


def test_clusters_plans_and_recommendations_may_be_dicts_and_files(
    example: Path, trials: Trials, tmp_path: Path
) -> None:
    (tmp_path / "cluster.yaml").write_text(json.dumps(CLUSTER))
    capped = sw.recommend(example, trials=trials, cluster=CLUSTER)
    assert capped == sw.recommend(example, trials=trials, cluster=tmp_path / "cluster.yaml")
    (tmp_path / "answer.json").write_text(capped.to_json())
    (tmp_path / "answer.yaml").write_text(capped.to_yaml())
    targets = {
        sw.plan(example, value).target
        for value in (capped, capped.to_dict(), tmp_path / "answer.json", str(tmp_path / "answer.yaml"))
    }  # fmt: skip
    assert targets == {capped.target}
    now = Allocation.of(1, 1, 0.5, 0.5, 512)
    plan = sw.plan(example, capped, current=now.model_dump())
    assert plan.current == now
    text, *_ = api.manifest(plan.model_dump(mode="json"), executor="local")
    assert text == api.manifest(plan, executor="local")[0]
    with pytest.raises(SizewrightError, match="The cluster is a text of several lines"):
        sw.recommend(example, trials=trials, cluster="hosts:\n- cpu: 4\n")
    with pytest.raises(SizewrightError, match="The cluster is of type list"):
        sw.recommend(example, trials=trials, cluster=[])  # type: ignore[arg-type]
    with pytest.raises(SizewrightError, match="The recommendation is of type int"):
        sw.plan(example, 5)  # type: ignore[arg-type]
    with pytest.raises(SizewrightError, match="The plan is of type int"):
        sw.apply(5, executor="file")  # type: ignore[arg-type]
    jobs = {"jobs": [{"job": str(example), "candidates": [{"allocation": now.model_dump(), "throughput": 10.0}]}]}
    division = sw.allocate(CLUSTER, jobs)
    assert division.to_frame()["job"].tolist() == ["criteo-dlrm"]
    assert "criteo-dlrm" in str(division)


def test_the_words_of_the_command_line_are_words_of_the_functions(
    example: Path, trials: Trials, tmp_path: Path
) -> None:
    fast = sw.recommend(example, trials=trials, objective="time")
    cheap = sw.recommend(example, trials=trials, objective="cost")
    assert fast.predicted is not None
    assert cheap.predicted is not None
    assert fast.predicted.completion_time_s.value < cheap.predicted.completion_time_s.value
    late = sw.recommend(example, trials=trials, deadline="100d")
    assert late == sw.recommend(example, trials=trials, objective="deadline", deadline=100 * 86400.0)
    short = sw.recommend(example, trials=trials, objective="time", samples=1000)
    assert short.predicted is not None
    assert short.predicted.completion_time_s.value < 1
    assert sw.plan(example, short, samples=1000).job.training.samples == 1000
    log = tmp_path / "log.tsv"
    log.write_text("\t".join(["1", *["2"] * 13, *["0a"] * 26]) + "\n")
    assert sw.plan(example, short, data=log).job.data.path == str(log)
    assert sw.memory(example, data=str(log)).job == "criteo-dlrm"
    for wrong in ({"objective": "fastest"}, {"deadline": "soon"}, {"samples": 0}, {"samples": 1.5}, {"data": "no.tsv"}):
        with pytest.raises(InputError):
            sw.recommend(example, trials=trials, **wrong)  # type: ignore[arg-type]
    command = {"command": {"run": "python t.py"}}
    with pytest.raises(JobError, match="runs a command, which reads its own data"):
        sw.recommend(command, trials=trials, data=log)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sw.Job(name="a b"), "Job: 'name'"),
        (lambda: sw.Job(training={"batch_size": 0}), "Job: 'training.batch_size'"),  # type: ignore[arg-type]
        (lambda: sw.Job(nmae="x"), r"Job: unknown key 'nmae' \(did you mean 'name'\?\)"),  # type: ignore[call-arg]
        (lambda: sw.Trial(workers=0, ps=1), "Trial: 'workers'"),
        (lambda: sw.Cluster(hosts=5), "Cluster: 'hosts'"),  # type: ignore[arg-type]
        (lambda: Group(replicas=-1, cpu=1.0, memory_bytes=0), "Group: 'replicas'"),
        (lambda: Allocation.of(1, 1, -1.0, 1.0, 1), "Group: 'cpu'"),
        (lambda: sw.Job(objective="deadline"), "Job: objective deadline needs a `deadline`"),
        (lambda: Prices(core_hour=-1), "Prices: 'core_hour'"),
    ],
)
def test_invalid_record_raises_a_sizewright_error_that_is_a_value_error(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(RecordError, match=message) as caught:
        make()
    assert isinstance(caught.value, JobError)
    assert isinstance(caught.value, ValueError)
    assert "pydantic" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_error_in_a_nested_record_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("training: {batch_size: 0}")
    with pytest.raises(JobError, match=r"job\.yaml: 'training.batch_size'"):
        sw.load_job(tmp_path / "job.yaml")
    assert sw.Job(training=Training(batch_size=7)).training.batch_size == 7
    job = sw.Job(name="x")
    assert pickle.loads(pickle.dumps(job)) == job


def test_answers_print_as_the_terminal_shows_them_and_convert(example: Path, trials: Trials) -> None:
    answer = sw.recommend(example, trials=trials)
    text = str(answer)
    assert "What to ask for" in text
    assert "\x1b" not in text
    assert answer.target is not None
    frame = answer.to_frame()
    chosen = frame[frame.chosen].iloc[0]
    assert (chosen.workers, chosen.worker_cpu) == (answer.target.replicas("worker"), answer.target.worker[0].cpu)
    assert len(frame) == len(answer.alternatives)
    assert answer.to_dict() == json.loads(answer.to_json())
    assert "not enough data" in str(sw.recommend(example, trials=[]))
    assert sw.recommend(example, trials=[]).to_frame().empty
    report = sw.memory(example)
    assert "memory of the tables" in str(report)
    assert report.to_frame().total_bytes.sum() == sum(table.total_bytes for table in report.tables)
    assert "Finished: 10 samples" in str(Outcome(status="finished", samples=10, duration_s=1.0))


def test_html_is_escaped() -> None:
    answer = Outcome(status="failed", message="<script>alert(1)</script>")
    assert "<script>" not in answer._repr_html_()
    assert "&lt;script&gt;" in answer._repr_html_()
    trial = sw.Trial(workers=1, ps=1, throughput=1.0, status="ok")
    assert Trials([trial])._repr_html_().startswith("<pre>")


def test_trials_and_runs_of_a_store_convert(store: str, example: Path, trials: Trials) -> None:
    frame = trials.to_frame()
    assert list(frame.columns) == list(sw.Trial.model_fields)
    assert frame.throughput.tolist() == [trial.throughput for trial in trials]
    assert "samples/s" in str(trials)
    assert list(Trials().to_frame().columns) == list(sw.Trial.model_fields)
    job = sw.load_job(example)
    stretch = Segment(at_s=0, duration_s=10, samples=100, allocation=Allocation.of(3, 1, 0.5, 0.5, 512))
    run = FinishedJob(id="r", name="n", job=job, stretches=(stretch,), outcome=Outcome(status="finished"))
    with TrialStore(store) as opened:
        assert "workers" in opened.history.finished().to_frame().columns
        opened.history.add([run])
        runs = opened.history.finished()
    row = runs.to_frame().iloc[0]
    assert (row.id, row.workers, row.throughput, row.job_hash) == ("r", 3, 10.0, job.hash)
    assert "Finished jobs" in str(runs)


def test_version_is_the_installed_one() -> None:
    assert sw.__version__[0].isdigit()
    assert "__version__" not in sw.__all__


def test_a_store_may_be_a_path_and_nothing_else(example: Path, store: str, trials: Trials) -> None:
    assert sw.recommend(example, store=Path(store)) == sw.recommend(example, trials=trials)
    with sw.open_store(Path(store)) as opened:
        assert opened.count() == len(trials)
    with pytest.raises(SizewrightError, match="The store is of type int"):
        sw.recommend(example, store=5)  # type: ignore[arg-type]
    with pytest.raises(SizewrightError, match="The prior is of type int"):
        sw.recommend(example, trials=trials, prior=5)  # type: ignore[arg-type]
    with pytest.raises(SizewrightError, match="The job is of type int"):
        sw.tune(5)  # type: ignore[arg-type]


def test_a_trace_may_be_a_data_frame(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"job": range(20), "arrived_s": [60 * i for i in range(20)], "duration_s": 600, "gpu": 1, "cpu": 4}
    )
    frame.to_csv(tmp_path / "trace.csv", index=False)
    named = sw.simulate(tmp_path / "trace.csv", policies=["fifo"])
    answer = sw.simulate(frame, policies=["fifo"])
    assert answer.rows[0].figures["jct_s"] == named.rows[0].figures["jct_s"]
    assert answer.to_frame().policy.tolist() == ["fifo"]
    assert "fifo" in str(answer)
    with pytest.raises(InputError, match="The trace is of type int"):
        sw.simulate(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="The trace") as caught:
        sw.simulate(frame.drop(columns="duration_s"))
    assert "/tmp" not in str(caught.value)


def test_a_plan_prints_readably(example: Path, trials: Trials) -> None:
    plan = sw.plan(example, sw.recommend(example, trials=trials))
    assert str(plan).startswith(f"Plan {plan.id}: launch criteo-dlrm at ")
    assert sw.Plan.model_validate(plan.to_dict()) == plan


def test_copies_among_trials_count_once_and_a_warning_says_so(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"workers": w, "ps": 1, "throughput": 1000.123 * w} for w in (1, 2, 3)]
    for form in (rows + rows[:2], pd.DataFrame(rows + rows[:2]), list(as_trials(rows)) + list(as_trials(rows[:2]))):
        caplog.clear()
        assert len(as_trials(form)) == 3
        assert caplog.messages == ["2 of 5 rows are copies of others and count once (row 4, row 5)."]
    read = as_trials(rows)
    assert as_trials(read) is read


def test_aggregated_frames_are_read() -> None:
    frame = pd.DataFrame({"workers": [1, 2] * 2, "ps": 1, "throughput": [1000.1, 1900.2, 1000.3, 1900.4]})
    grouped = frame.groupby(["workers", "ps"])
    for form in (
        grouped.mean(),
        grouped.agg({"throughput": ["mean", "std"]}),
        grouped.agg({"throughput": ["median"]}),
    ):
        assert [(t.workers, t.ps, round(t.throughput or 0, 3)) for t in as_trials(form)] == [
            (1, 1, 1000.2),
            (2, 1, 1900.3),
        ]


def test_a_record_raises_one_error_however_it_is_made_or_changed() -> None:
    for wrong in (
        lambda: Training.model_validate({"samples": "none"}),
        lambda: Training.model_validate_json('{"samples": "none"}'),
        lambda: Training.model_validate(3),
        lambda: setattr(Training(), "samples", 3),
        lambda: delattr(Training(), "samples"),
    ):
        with pytest.raises(RecordError, match="Training: "):
            wrong()


@pytest.mark.parametrize("samples", ["1M", 1e6, 1_000_000, "1,000,000", np.int64(1_000_000)])
def test_samples_are_read_as_files_have_them(example: Path, samples: Any) -> None:
    assert sw.load_job(example, samples=samples).training.samples == 1_000_000


@pytest.mark.parametrize("samples", [0, -1, 1.5, True, "many", 1e19, float("nan")])
def test_invalid_number_of_samples_is_refused(example: Path, samples: Any) -> None:
    with pytest.raises(JobError, match="samples"):
        sw.load_job(example, samples=samples)


def test_bounds_that_are_reversed_are_shown_with_units() -> None:
    with pytest.raises(JobError, match=r"the minimum \(4\.0 GiB\) is above the maximum \(1\.0 GiB\)"):
        sw.load_job({"bounds": {"worker": {"memory": ["4Gi", "1Gi"]}}})


def test_an_answer_prints_its_objective(trials: Trials, example: Path) -> None:
    assert "(cost; replicas" in str(sw.recommend(example, trials=trials, objective="cost"))


def test_trials_of_a_job_without_servers_need_no_column_of_them(tmp_path: Path) -> None:
    job = {"command": {"run": "x", "rendezvous": "torchrun"}, "bounds": {"worker": {"replicas": [1, 4], "cpu": [1, 2]}}}
    rows = [{"workers": w, "worker_cpu": 1, "throughput": 1000.5 * w**0.9} for w in (1, 2, 4)]
    file = tmp_path / "t.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    for trials in (rows, pd.DataFrame(rows), file, str(file)):
        assert sw.recommend(job, trials=trials).target is not None


def test_data_that_is_not_a_path_is_refused_in_one_sentence(example: Path) -> None:
    with pytest.raises(InputError, match="data is of type DataFrame"):
        sw.memory(example, data=pd.DataFrame({"a": [1]}))


def test_jobs_that_share_a_cluster_may_be_records_and_frames(example: Path, trials: Trials, tmp_path: Path) -> None:
    answer = sw.recommend(example, trials=trials)
    assert answer.target is not None
    by_hand = [{"workers": 2, "worker_cpu": 1, "ps": 1, "ps_cpu": 1, "throughput": 2000.0, "value": np.nan}]
    for entry in (
        {"job": example, "recommendation": answer},
        {"job": sw.load_job(example), "recommendation": answer.to_dict()},
        {"job": str(example), "table": pd.DataFrame(by_hand)},
    ):
        (share,) = sw.allocate({"hosts": CLUSTER["hosts"]}, [entry]).shares
        assert share.decision == "launch"
    (left_out,) = sw.allocate(CLUSTER, [sw.load_job(example)], store=tmp_path / "none.db").left_out
    assert "speed is unknown" in left_out.why
    for wrong, message in (
        ({"job": 5}, "'jobs.0..job'"),
        (5, "'jobs.0.'"),
        ({"jobb": 5}, "unknown key 'jobs.0..jobb'"),
    ):
        with pytest.raises(JobError, match=message):
            sw.allocate(CLUSTER, [wrong])  # type: ignore[list-item]


@pytest.mark.parametrize("form", ["rows", "frame", "parquet"])
def test_trace_accepts_timestamps_and_timedeltas_of_pandas(form: str, tmp_path: Path) -> None:
    begun = pd.Timestamp("2024-01-01")
    rows = [
        {"job": f"j{i}", "arrived_s": begun + pd.Timedelta(minutes=i), "duration_s": pd.Timedelta(hours=1), "gpu": 1}
        for i in range(20)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "trace.parquet")
    trace: Any = {"rows": rows, "frame": pd.DataFrame(rows), "parquet": tmp_path / "trace.parquet"}[form]
    plain = [row | {"arrived_s": 60.0 * i, "duration_s": 3600.0} for i, row in enumerate(rows)]
    times, expected = (sw.simulate(each, policies=["fifo"]).rows[0].figures["jct_s"] for each in (trace, plain))
    assert times == expected


def test_trials_accept_timedeltas_of_pandas(tmp_path: Path) -> None:
    frame = pd.DataFrame({"workers": [1], "ps": [1], "throughput": [5.0], "duration_s": [pd.Timedelta(minutes=2)]})
    frame.to_parquet(tmp_path / "trials.parquet")
    for value in (frame, tmp_path / "trials.parquet"):
        (trial,) = as_trials(value)
        assert trial.duration_s == 120


def test_jobs_of_cores_among_jobs_of_gpus_are_simulated() -> None:
    rows = [{"arrived_s": 9.0 * i, "duration_s": 50.0, "gpu": i % 2, "cpu": 4} for i in range(12)]
    answer = sw.simulate(rows, policies=["fifo", "default"], loads=[0.5])
    assert [row.figures["unfinished"].value for row in answer.rows] == [0, 0]
    assert sw.simulate({name: [row[name] for row in rows] for name in rows[0]}, policies=["fifo"]).rows


def test_duplicate_and_unknown_names_are_named(example: Path) -> None:
    frame = pd.DataFrame({"workers": [1, 2], "ps": [1, 1], "throughput": [5.5, 9.5]})
    with pytest.raises(InputError, match="more than one column 'throughput'"):
        sw.recommend(example, trials=pd.concat([frame, frame[["throughput"]] * 10], axis=1))
    trace = pd.DataFrame({"arrived_s": [0, 60], "duration_s": [5, 5], "gpu": [1, 1]})
    with pytest.raises(InputError, match="more than one column 'gpu'"):
        sw.simulate(pd.concat([trace, trace[["gpu"]]], axis=1))
    with pytest.raises(InputError, match="no traces of kind 'zzz'"):
        sw.simulate(trace, kind="zzz")
    with pytest.raises(InputError, match="The trace is of type Series"):
        sw.simulate(trace["gpu"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="The cluster is of type NoneType"):
        sw.allocate(None, [example])  # type: ignore[arg-type]


def test_settings_next_to_a_list_of_jobs_are_accepted(example: Path) -> None:
    rows = [{"workers": 2, "worker_cpu": 1, "ps": 1, "ps_cpu": 1, "throughput": 2000.0}]
    hosts: dict[str, object] = {"hosts": CLUSTER["hosts"]}
    for table in (rows, {name: [cell] for name, cell in rows[0].items()}):
        assert sw.allocate(hosts, {"job": example, "table": table}).shares[0].decision == "launch"
    plan = sw.Plan(
        id="p-1", kind="launch", job=sw.load_job(example), target=Allocation.of(2, 1, 1.0, 1.0, 512), reason="runs"
    )
    answer = sw.allocate(hosts, [{"job": plan.job, "table": pd.DataFrame(rows), "current": plan}])
    assert answer.shares[0].decision == "keep"
    with pytest.raises(InputError, match="has table and candidates"):
        sw.allocate(hosts, [{"job": example, "table": pd.DataFrame(rows), "candidates": pd.DataFrame(rows)}])
    with pytest.raises(InputError, match="has no rows"):
        sw.allocate(hosts, [{"job": example, "table": pd.DataFrame()}])


def test_trials_of_another_job_are_reported(example: Path) -> None:
    trials = example.with_name("criteo-trials.csv")
    job = sw.load_job(example)
    assert not any("another job" in reason for reason in sw.recommend(job, trials=trials).reasons)
    answer = sw.recommend(job.with_batch_size(1024), trials=trials)
    assert any(
        "were measured for another job (criteo-dlrm) but used for this one" in reason for reason in answer.reasons
    )
