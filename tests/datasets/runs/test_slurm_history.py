"""Jobs of Slurm's accounting. The files in `sacct` were written by sacct 22.05; the JSON lacks unused keys."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.runs.sacct import COLUMNS
from sizewright.datasets.runs.slurm_history import jobs_of_sacct
from sizewright.errors import StoreError
from sizewright.formatting import GIB, KIB
from sizewright.spec import Job

RECORDED = Path(__file__).parent / "sacct"
TABLE, DOCUMENT = RECORDED / "slurm-22.05.txt", RECORDED / "slurm-22.05.json"
HEADER = "|".join(COLUMNS)
START = "2026-01-31T08:00:00"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def line(job: str, name: str = "ctr", state: str = "COMPLETED", **cells: object) -> str:
    """Return a line as sacct writes it; a job of one node and four cores that took a minute."""
    defaults = {
        "Start": START, "Elapsed": "00:01:00", "NNodes": 1, "AllocCPUS": 4, "AllocTRES": "cpu=4,mem=8G,node=1",
        "TotalCPU": "02:00.000",
    }  # fmt: skip
    row = {"JobID": job, "JobName": name, "State": state} | defaults | cells
    return "|".join(str(row.get(column, "")) for column in COLUMNS)


def step(job: str, **cells: object) -> str:
    return line(job, **({"name": "python", "NTasks": 2, "MaxRSS": "1048576K"} | cells))  # type: ignore[arg-type]


@pytest.fixture
def read(tmp_path: Path):
    def read(*lines: str, job: Job | None = None, header: str = HEADER) -> list[FinishedJob]:
        path = tmp_path / "sacct.txt"
        path.write_text("\n".join([header, *lines]) + "\n")
        return jobs_of_sacct([path], job=job)

    return read


def test_recorded_jobs_are_those_that_have_ended(caplog: pytest.LogCaptureFixture) -> None:
    runs = {run.name: run for run in jobs_of_sacct([TABLE])}
    assert list(runs) == ["ctr", "single", "cancelled", "late|x", "arr", "failed"]
    assert [run.outcome.status for run in runs.values()] == ["finished", "finished", "stopped", *3 * ["failed"]]
    assert runs["late|x"].outcome.message == "Slurm's state is TIMEOUT."
    assert runs["arr"].id == "slurm/4_1@20261128T084313"
    assert runs["failed"].worker.memory_peak_bytes is None
    assert "Left out 2 not finished" in caplog.text


def test_components_of_a_heterogeneous_job_are_its_roles() -> None:
    run = jobs_of_sacct([TABLE])[0]
    (segment,) = run.stretches
    assert segment.allocation.describe() == "2 workers × 2 cores and 200.0 MiB, 1 PS × 1 core and 150.0 MiB, batch 1"
    assert (run.worker.memory_peak_bytes, run.ps.memory_peak_bytes) == (62036 * KIB, 102932 * KIB)
    assert run.worker.cpu_used == pytest.approx(2.113 / (4 * 2))
    assert run.ps.cpu_used == pytest.approx(1.961 / 4)
    assert (run.source, run.executor, run.throughput, segment.duration_s) == ("sacct", "slurm", None, 4)


def test_json_and_table_are_the_same_jobs() -> None:
    tables = {run.id: run for run in jobs_of_sacct([TABLE])}
    documents = {run.id: run for run in jobs_of_sacct([DOCUMENT])}
    assert tables.keys() == documents.keys()
    for key, run in tables.items():
        other = documents[key]
        assert (run.name, run.stretches, run.outcome.status) == (other.name, other.stretches, other.outcome.status)
        assert run.worker.memory_peak_bytes == other.worker.memory_peak_bytes
        assert run.worker.cpu_used == pytest.approx(other.worker.cpu_used, abs=1e-3)
    assert len(jobs_of_sacct([TABLE, DOCUMENT])) == len(tables)


def test_json_of_newer_versions_is_read(tmp_path: Path) -> None:
    """From Slurm 23.02 on, states are lists, and numbers say whether they are set."""
    document = json.loads(DOCUMENT.read_text())
    for record in document["jobs"]:
        record["state"]["current"] = [record["state"]["current"]]
        task = record["array"]["task_id"]
        record["array"]["task_id"] = {"set": task is not None, "infinite": False, "number": task or 0}
        offset = record["het"]["job_offset"]
        record["het"]["job_offset"] = {"set": offset is not None, "infinite": False, "number": offset or 0}
        for each in record["steps"]:
            each["step"]["id"] = f"{record['job_id']}.{each['step']['id']}"
            each["state"] = [each["state"]]
            each["time"]["start"] = {"set": True, "infinite": False, "number": each["time"]["start"]}
            each["tres"]["allocated"].append({"type": "energy", "name": "", "id": 3, "count": -2})
    (tmp_path / "new.json").write_text(json.dumps(document))
    assert jobs_of_sacct([tmp_path / "new.json"]) == jobs_of_sacct([DOCUMENT])


def test_script_without_steps_is_one_worker(read) -> None:
    (run,) = read(line("7"), step("7.batch", NTasks=1, MaxRSS="3G"), step("7.extern", NTasks=1, Elapsed="00:02:00"))
    (group,) = run.stretches[0].allocation.worker
    assert (group.replicas, group.cpu, group.memory_bytes) == (1, 4, 8 * GIB)
    assert (run.worker.memory_peak_bytes, run.worker.cpu_used) == (3 * GIB, 2)


def test_longest_step_has_the_replicas(read) -> None:
    lines = (
        line("7", Elapsed="1-02:03:04"),
        step("7.batch", NTasks=1, MaxRSS="9G", Elapsed="1-02:03:04"),
        step("7.0", NTasks=1, MaxRSS="8G", Elapsed="00:01:00"),
        step("7.1", NTasks=4, MaxRSS="2.5G", Start="2026-01-31T08:01:00", Elapsed="1-02:02:04"),
    )
    (run,) = read(*lines)
    (group,) = run.stretches[0].allocation.worker
    assert (group.replicas, group.cpu, group.memory_bytes) == (4, 1, 2 * GIB)
    assert run.worker.memory_peak_bytes == 5 * GIB // 2
    assert run.outcome.duration_s == 86400 + 2 * 3600 + 3 * 60 + 4


def test_gpus_are_those_of_a_task(read) -> None:
    tres = "cpu=4,gres/gpu:a100=4,gres/gpu=4,mem=8G,node=1"
    (run,) = read(line("7", AllocTRES=tres), step("7.0", AllocTRES=tres))
    (group,) = run.stretches[0].allocation.worker
    assert group.gpu is not None
    assert (group.gpu.kind, group.gpu.count) == ("a100", 2)


@pytest.mark.parametrize(("text", "memory"), [("4Gn", 8), ("3Gc", 12), ("6G", 6), ("0n", 0), ("", 0)])
def test_requested_memory_stands_in_for_allocated(read, text: str, memory: int) -> None:
    (run,) = read(line("7", NNodes=2, ReqMem=text, AllocTRES=""), step("7.0", NTasks=1, AllocTRES=""))
    assert run.stretches[0].allocation.worker[0].memory_bytes == memory * GIB


def test_out_of_memory_is_a_failure_of_its_role(read) -> None:
    lines = (
        line("7+0", state="FAILED"), step("7+0.0", state="CANCELLED"),
        line("7+1", state="OUT_OF_MEMORY"), step("7+1.0", state="OUT_OF_MEMORY"),
    )  # fmt: skip
    (run,) = read(*lines)
    assert run.ran_out_of_memory
    assert run.outcome.status == "failed"
    assert [(failure.replica, failure.at_s) for failure in run.outcome.failures] == [("ps-*", 60)]


@pytest.mark.parametrize("state", ["NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"])
def test_other_ends_are_failures(read, state: str) -> None:
    (run,) = read(line("7", state=state), step("7.0"))
    assert run.outcome.status == "failed"
    assert state in run.outcome.message


def test_job_file_describes_the_jobs_of_its_name(read) -> None:
    no_ps = Job.model_validate({"name": "ctr", "bounds": {"ps": {"replicas": 0}}, "command": {"run": "train"}})
    described, other = read(
        line("7+0"), step("7+0.0"), line("7+1"), step("7+1.0"), line("8", "x"), step("8.0"), job=no_ps
    )
    assert described.key == no_ps.hash
    assert described.stretches[0].allocation.batch_size == no_ps.training.batch_size
    assert [role for role, _ in described.stretches[0].allocation.groups] == ["worker", "chief"]
    assert other.job is None
    with pytest.raises(StoreError, match=r"No job has the name of the job file, ctr: they are x\. Give the job file"):
        read(line("8", "x"), step("8.0"), job=no_ps)


def test_requeued_job_has_two_runs(read) -> None:
    again = "2026-01-31T09:00:00"
    first, second = read(
        line("7", state="NODE_FAIL"), step("7.0"), line("7", Start=again), step("7.0", Start=again)
    )  # fmt: skip
    assert (first.id, second.id) == ("slurm/7@20260131T080000", "slurm/7@20260131T090000")
    assert second.outcome.status == "finished"


def test_jobs_without_known_tasks_are_left_out(read, caplog: pytest.LogCaptureFixture) -> None:
    parallel = (line("8"), step("8.0"), step("8.1"))
    never = (line("9", state="CANCELLED by 1000", Start="None", Elapsed="00:00:00", AllocTRES="", AllocCPUS=0),)
    waiting = (line("10_[0-9%2]", state="PENDING", Start="Unknown"),)
    (run,) = read(*parallel, *never, *waiting, line("7"), step("7.0"))
    assert run.id.startswith("slurm/7@")
    assert "1 not finished and 1 without a step and 1 whose tasks have unknown roles" in caplog.text
    with pytest.raises(
        StoreError, match=r"no job to add in .*sacct\.txt: 1 not finished\. Ask for jobs that have ended"
    ):
        read(*waiting)


def test_tables_of_parsable_and_several_tables_are_read(read) -> None:
    assert len(read(f"{line('7')}|", f"{step('7.0')}|", header=f"{HEADER}|")) == 1
    assert len(read(line("7"), step("7.0"), HEADER, line("8"), step("8.0"))) == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["JobID|JobName|State"], r"lacks the columns Start, Elapsed, .*\. Write it with all: sacct --parsable2"),
        (["7|ctr|COMPLETED"], r"Line 1 of .* is not the header .*'7\|ctr\|COMPLETED'\. Write the table without --noh"),
        ([HEADER, line("7"), "7.0|pyth"], r"line 3 of .* has 2 cells for 12 columns\. The table may be cut"),
        ([HEADER, step("7.0")], r"line 2 of .*: step 7\.0 does not follow its job\. Run it again"),
        ([HEADER, line("7"), step("7.0", MaxRSS="much")], r"line 3 of .*, MaxRSS: 'much' is not an amount of memory"),
        ([HEADER, line("7"), step("7.0", NTasks="2.5")], r"line 3 of .*, NTasks: '2\.5' is not a whole number"),
        ([HEADER, line("7", Elapsed="1:2:3:4")], r"line 2 of .*, Elapsed: '1:2:3:4' is not a duration"),
        ([HEADER, line("7", Start="yesterday")], r"line 2 of .*, Start: 'yesterday' is not a time such as 2026"),
        ([HEADER, line("7", ReqMem="4Gx", AllocTRES="")], r"line 2 of .*, ReqMem: '4Gx' is not an amount of memory"),
        ([HEADER, line("seven")], r"line 2 of .*, JobID: 'seven' is not the id of a job or step"),
        ([HEADER, line("7", state="CANCELLED+"), step("7.0")], r"Job 7 has the state 'CANCELLED\+'"),
        ([HEADER], r"There is no job to add in .*: it has none at all\."),
        (["{"], r"is not JSON: .* It may be cut short\. Write it again: sacct --json"),
        (["[1]"], r"is JSON, but not that of sacct: it has no list of jobs\."),
        (['{"jobs": [{"job_id": 7, "job_state": "RUNNING"}]}'], r"job 1 has no array, as those of sacct do\."),
    ],
)  # fmt: skip
def test_other_files_are_refused_in_one_sentence(tmp_path: Path, lines: list[str], message: str) -> None:
    (tmp_path / "sacct.txt").write_text("\n".join([*lines, ""]))
    with pytest.raises(StoreError, match=message) as refused:
        jobs_of_sacct([tmp_path / "sacct.txt"])
    assert "\n" not in str(refused.value)


def test_table_that_is_cut_within_its_last_cell_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.txt").write_text(TABLE.read_text()[:-5])
    with pytest.raises(StoreError, match=r"line 24 of .* does not end with a line break.* The table may be cut short"):
        jobs_of_sacct([tmp_path / "cut.txt"])


def test_wrong_values_in_json_are_refused(tmp_path: Path) -> None:
    for text, wrong in (('"elapsed": 4', '"elapsed": "4 s"'), ('"count": 63524864', '"count": -5')):
        (tmp_path / "a.json").write_text(DOCUMENT.read_text().replace(text, wrong, 1))
        with pytest.raises(StoreError, match=r"job 1: .* is (-5|'4 s'), not a number\. Correct it, or: Write it again"):
            jobs_of_sacct([tmp_path / "a.json"])
