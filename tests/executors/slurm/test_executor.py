"""The Slurm executor without Slurm: rendering, reading back, refusals, and the output of fake commands."""

from __future__ import annotations

import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings

from sizewright.errors import EngineError, InputError, UnsupportedError
from sizewright.executors import get_executor
from sizewright.executors.slurm.commands import SlurmCli, SlurmJob, _bytes, _seconds
from sizewright.executors.slurm.executor import SlurmExecutor
from sizewright.executors.slurm.replicas import SlurmReplicas
from sizewright.executors.slurm.step import EXIT_FILE, OUTPUT_FILE, as_allocated, slots_of
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Gpu, Group, Handle, Job, Plan
from sizewright.spec.command import Command
from tests.helpers.random_plans import plans

JOB = Job(name="ctr", command=Command(run=("python", "train.py"), rendezvous="hosts"))


def plan(workers: int = 4, ps: int = 2, memory: int = GIB, **more: object) -> Plan:
    target = Allocation.of(workers, ps, 0.5, 2, 512, memory, memory)
    return Plan(**{"id": "p-1", "kind": "launch", "job": JOB, "target": target, "reason": "Chosen."} | more)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(plans(max_groups=3))
def test_rendered_plan_is_read_back(launch: Plan) -> None:
    executor = SlurmExecutor()
    text = executor.render(launch)
    assert executor.parse(text) == launch
    assert executor.render(launch) == text


def test_script_has_the_plans_sizes() -> None:
    text = SlurmExecutor().render(plan())
    assert text.startswith(
        "#!/bin/bash\n"
        "# Sizewright plan p-1: launch 4 workers × 0.5 cores and 1.0 GiB, 2 PS × 2 cores and 1.0 GiB, batch 512\n"
        "# Why: Chosen.\n"
        "# Slurm allocates whole cores: those of the plan are rounded up.\n"
        "#SBATCH --job-name=ctr\n"
        "#SBATCH --comment=sizewright:p-1\n"
        "#SBATCH --ntasks=4\n#SBATCH --cpus-per-task=1\n#SBATCH --mem-per-cpu=1024M\n"
        "#SBATCH hetjob\n"
        "#SBATCH --ntasks=2\n#SBATCH --cpus-per-task=2\n#SBATCH --mem-per-cpu=512M\n"
        "\n"
    )
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_plan_of_one_group_is_not_heterogeneous() -> None:
    text = SlurmExecutor().render(plan(ps=0))
    assert "hetjob" not in text


def test_sizes_changed_by_hand_are_read() -> None:
    text = SlurmExecutor().render(plan())
    changed = SlurmExecutor().parse(text.replace("--ntasks=4", "--ntasks=7").replace("=512M", "=1G"))
    assert changed.target.worker == (Group(replicas=7, cpu=1, memory_bytes=GIB),)
    assert changed.target.ps == (Group(replicas=2, cpu=2, memory_bytes=2 * GIB),)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("=1024M", "=1Gi", "component 1: --mem-per-cpu is '1Gi'"),
        ("cpus-per-task=2", "cpus-per-task=400m", "component 2: --cpus-per-task is '400m'"),
        ("#SBATCH hetjob\n", "", "has 1 component, but its plan has 2 groups"),
        ("export SIZEWRIGHT_PLAN=", "PLAN=", "carries no plan"),
        ("export SIZEWRIGHT_PLAN='{", "export SIZEWRIGHT_PLAN='", "cannot be read"),
        ("#!/bin/bash", "kind: TFJob", "is not a script"),
    ],
)
def test_invalid_script_is_refused(right: str, wrong: str, message: str) -> None:
    text = SlurmExecutor().render(plan())
    assert right in text
    with pytest.raises(InputError, match=message) as caught:
        SlurmExecutor().parse(text.replace(right, wrong))
    assert caught.value.remedy


def test_base_changes_only_its_sizes(tmp_path: Path) -> None:
    base = tmp_path / "train.sh"
    text = "#!/bin/bash\n#SBATCH -n 1 -c 2  # w\n#SBATCH hetjob\n#SBATCH -c 8\n\nsrun ours  # as ever\n"
    base.write_text(text, encoding="utf-8")
    rendered = SlurmExecutor(base=base).render(plan(memory=0))
    assert rendered == text.replace("-n 1 -c 2", "-n 4 -c 1").replace("-c 8", "-c 2\n#SBATCH --ntasks=2")
    base.write_text(rendered, encoding="utf-8")
    assert SlurmExecutor(base=base).render(plan(memory=0)) == rendered


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/bash\n#SBATCH -n1\n", "has 1 component, but plan p-1 has 2 groups of replicas: worker, ps"),
        ("#!/bin/bash\n#SBATCH --mem=1G\n#SBATCH hetjob\n", "component 1: --mem sizes nodes"),
        ("#!/bin/bash\n#SBATCH hetjob\nsrun ours\n", "batch size is 64"),
        ("kind: TFJob\n", "is not a script"),
    ],
)
def test_unsuitable_base_is_refused(tmp_path: Path, text: str, message: str) -> None:
    base = tmp_path / "train.sh"
    base.write_text(text, encoding="utf-8")
    launch = plan()
    target = launch.target.model_copy(update={"batch_size": 64})
    with pytest.raises(InputError, match=message) as caught:
        SlurmExecutor(base=base).render(launch.model_copy(update={"target": target}))
    assert caught.value.remedy
    with pytest.raises(InputError, match="cannot be read"):
        SlurmExecutor(base=tmp_path / "none.sh").render(launch)


def test_keep_plan_is_not_rendered() -> None:
    with pytest.raises(InputError, match="keeps the job as it is"):
        SlurmExecutor().render(plan(kind="keep"))


def test_script_carries_plain_settings_and_no_secret() -> None:
    command = JOB.command.model_copy(update={"env": {"DB_PASSWORD": "s3cret", "MODE": "it's fast"}})  # type: ignore[union-attr]
    launch = plan(job=JOB.model_copy(update={"command": command}))
    text = SlurmExecutor().render(launch)
    assert "s3cret" not in text
    read = SlurmExecutor().parse(text).job
    assert read.command
    assert read.command.env == {"DB_PASSWORD": "hidden", "MODE": "it's fast"}
    assert read.hash == launch.job.hash
    assert SlurmExecutor().render(plan(job=read)) == text


def test_setting_edited_in_a_script_is_adopted(tmp_path: Path) -> None:
    command = JOB.command.model_copy(update={"env": {"EPOCHS": "3"}})  # type: ignore[union-attr]
    text = SlurmExecutor().render(plan(job=JOB.model_copy(update={"command": command})))
    (tmp_path / "job.sh").write_text(text.replace('"EPOCHS": "3"', '"EPOCHS": "5"'))
    executor = SlurmExecutor()
    read = executor.adopt(tmp_path / "job.sh")
    assert read.job.command
    assert read.job.command.env == {"EPOCHS": "5"}
    assert '"EPOCHS": "5"' in executor.render(read)


def test_plan_without_its_plain_settings_is_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    command = JOB.command.model_copy(update={"env": {"MODE": "fast"}})  # type: ignore[union-attr]
    written = plan(job=Job.model_validate_json(JOB.model_copy(update={"command": command}).model_dump_json()))
    with pytest.raises(InputError, match="the environment does not set MODE"):
        SlurmExecutor().render(written)
    monkeypatch.setenv("MODE", "fast")
    assert '"MODE": "fast"' in SlurmExecutor().render(written)


def test_missing_slurm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    executor = get_executor("slurm", folder=tmp_path / "jobs")
    with pytest.raises(InputError, match="There is no command sbatch on this host"):
        executor.launch(plan())
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["lock"]  # nothing half done


def fake(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        ("sbatch: error: Invalid qos specification", InputError, r"Slurm refused the request\. sbatch: Invalid qos"),
        ("sbatch: error: Unable to contact slurm controller", EngineError, "Slurm cannot be reached"),
    ],
)
def test_slurm_error_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, error: type[Exception], message: str
) -> None:
    fake(tmp_path, "sbatch", f"echo '{stderr}' >&2; exit 1")
    fake(tmp_path, "squeue", "true")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(error, match=message):
        get_executor("slurm", folder=tmp_path / "jobs").launch(plan())


@pytest.mark.parametrize("stdout", ["", "ok", "7x", 5_000 * "7", "<html>", ";", "Submitted batch job 7"])
def test_invalid_job_id_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdout: str) -> None:
    fake(tmp_path, "sbatch", f"echo '{stdout}'")
    fake(tmp_path, "squeue", "true")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(EngineError, match="The output of sbatch cannot be used"):
        get_executor("slurm", folder=tmp_path / "jobs").launch(plan())


@pytest.mark.parametrize(
    "stdout", ["x", "17|x|RUNNING", f"17|{5_000 * '1'}|RUNNING", "17|17", "17|17|", "|||", "17|17|RUNNING|x", "{}"]
)
@pytest.mark.parametrize("command", ["squeue", "sacct"])
def test_invalid_job_state_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdout: str, command: str
) -> None:
    fake(tmp_path, "squeue", f"echo '{stdout}'" if command == "squeue" else "true")
    fake(tmp_path, "sacct", f"echo '{stdout.partition('|')[2] or stdout}'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(EngineError, match=f"The output of {command} cannot be used"):
        SlurmCli().job("17")


def test_job_accepted_without_an_answer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, "sbatch", "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1")
    fake(tmp_path, "squeue", "case $* in *--me*) echo '17+0|sizewright:p-1';; *) echo '17+0|17|PENDING';; esac")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    executor = get_executor("slurm", folder=tmp_path / "jobs")
    handle = executor.launch(plan())
    assert executor.launch(plan()) == handle  # it is there already
    other = get_executor("slurm", folder=tmp_path / "jobs")
    assert other.observe(handle).replicas == ()
    with pytest.raises(InputError, match="applied with other sizes"):
        other.launch(plan(workers=5))
    with pytest.raises(UnsupportedError):
        other.adjust(handle, plan(kind="adjust", id="p-2", migrate=("ps-0",)))


def test_unknown_handle_is_refused(tmp_path: Path) -> None:
    executor = get_executor("slurm", folder=tmp_path / "jobs")
    for name in ("../jobs", "nobody-0", ""):
        with pytest.raises(InputError, match="There is no job"):
            executor.observe(Handle(executor="slurm", id=name, job="ctr"))


def test_slots_are_where_slurm_placed_the_tasks() -> None:
    env = {
        "SLURM_JOB_ID": "7", "SLURM_NTASKS_HET_GROUP_0": "3", "SLURM_NTASKS_HET_GROUP_1": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "n[1-2]", "SLURM_JOB_NODELIST_HET_GROUP_1": "n2",
        "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2,1", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "2",
    }  # fmt: skip
    where = {"n[1-2]": {"n1": "h1", "n2": "h2"}, "n2": {"n2": "h2"}}
    allocated = as_allocated(plan(workers=5), env)
    assert allocated.target.replicas("worker") == 3
    slots = list(slots_of(allocated, env, where.__getitem__))
    assert [slot[:3] for slot in slots] == [
        ("worker", 0, "h1"), ("worker", 1, "h1"), ("worker", 2, "h2"), ("ps", 0, "h2"), ("ps", 1, "h2"),
    ]  # fmt: skip
    assert len({slot[3] for slot in slots}) == 5


def test_states_times_and_amounts_are_read() -> None:
    assert SlurmJob(("1", "2"), ("COMPLETED", "PENDING")).status == "running"
    assert SlurmJob(("1", "2"), ("COMPLETED", "CANCELLED")).status == "finished"
    assert SlurmJob(("1",), ("CANCELLED by 0",)).status == "stopped"
    assert SlurmJob(("1",), ("OUT_OF_MEMORY",)).status == "failed"
    assert (_seconds("1-02:03:04"), _seconds("03:04.5"), _seconds("")) == (93784, 184.5, 0)
    assert (_bytes("7964K"), _bytes("1.5M"), _bytes("12"), _bytes("")) == (8155136, 1572864, 12, 0)
    assert (_seconds("1-02:03:04"), _seconds("03:04.5"), _seconds(""), _seconds("inf")) == (93784, 184.5, 0, 0)
    assert [_bytes(text) for text in ("7964K", "1.5M", "12", "", "inf", "nan")] == [8155136, 1572864, 12, 0, 0, 0]
    assert [_seconds(text) for text in ("9" * 400 + "-1", "9" * 5_000 + "-1", "1e308", "nan")] == [0] * 4
    assert [_bytes(text) for text in ("1e300K", "9" * 400, "-5K")] == [0, 0, 0]


def test_line_that_never_ends_takes_little_memory(tmp_path: Path) -> None:
    """Memory that is kept between two readings, and the time to read, must not grow with the line."""
    job = JOB.model_copy(
        update={
            "command": Command(
                run=("python", "train.py"), progress={"source": "regex", "pattern": r"(?P<samples>\d+) done"}
            )
        }
    )
    replicas = SlurmReplicas(plan(workers=1, ps=0, job=job), tmp_path)
    output = tmp_path / "worker-0" / OUTPUT_FILE
    output.parent.mkdir()
    output.write_bytes(b"x" * (40 << 20))
    assert replicas.samples() == 0
    (progress,) = replicas._progress.values()
    assert len(progress._partial_line) <= 1 << 16
    with output.open("ab") as file:
        file.write(b" 512 done\n")
    assert replicas.samples() == 512


def test_failure_shows_the_end_of_a_large_output(tmp_path: Path) -> None:
    replicas = SlurmReplicas(plan(workers=1, ps=0), tmp_path)
    folder = tmp_path / "worker-0"
    folder.mkdir()
    (folder / EXIT_FILE).write_text("1")
    (folder / OUTPUT_FILE).write_bytes(b"x\n" * (16 << 20) + b"out of memory\n")
    tracemalloc.start()
    try:
        assert replicas.failure().startswith("worker-0 ended with exit code 1: out of memory. Its log: ")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["x:1\ntouch owned #", "", "a b", "-x"])
def test_kinds_of_gpus_are_names(kind: str) -> None:
    with pytest.raises(ValueError, match="kind"):
        Gpu(kind=kind, count=1)


def test_value_with_line_breaks_is_refused() -> None:
    nasty = Gpu.model_construct(kind="x:1\ntouch owned #", count=1)
    target = plan().target.model_copy(update={"worker": (Group(replicas=1, cpu=1, memory_bytes=GIB, gpu=nasty),)})
    with pytest.raises(InputError, match="cannot have line breaks"):
        SlurmExecutor().render(plan(target=target))


def like_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install commands that keep jobs as files with their comments; sbatch can be made to time out or say nothing."""
    jobs = folder / "queue"
    jobs.mkdir()
    fake(
        folder,
        "sbatch",
        f"""case $* in *--test-only*) cat >/dev/null; exit 0;; esac
n=$(ls {jobs} | wc -l); n=$((n + 1))
sed -n 's/^#SBATCH --comment=//p' | head -1 | tr -d '"' > {jobs}/$n
if [ -e {folder}/silent ]; then rm {folder}/silent; echo 'sbatch: error: Socket timed out' >&2; exit 1; fi
echo $n""",
    )
    fake(
        folder,
        "squeue",
        f"""if [ -e {folder}/deaf ]; then echo 'error: Unable to contact slurm controller' >&2; exit 1; fi
case $* in
*--me*) for f in {jobs}/*; do [ -s $f ] && echo "${{f##*/}}|$(cat $f)"; done; true;;
*) for last; do :; done; while [ $# -gt 0 ]; do [ "$1" = -j ] && j=$2; shift; done
   [ -s {jobs}/$j ] && echo "$j|$j|PENDING"; true;;
esac""",
    )
    fake(folder, "scancel", f"for last; do :; done; : > {jobs}/$last")
    fake(folder, "sacct", "true")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return jobs


def queued(jobs: Path) -> list[str]:
    return [path.read_text().strip() for path in sorted(jobs.iterdir()) if path.read_text()]


@pytest.mark.parametrize("base", [None, "#SBATCH --job-name=mine", '#SBATCH --comment="for the audit"'])
@pytest.mark.parametrize("deaf", [False, True])
def test_job_that_may_be_queued_is_not_submitted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str | None, deaf: bool
) -> None:
    jobs = like_slurm(tmp_path, monkeypatch)
    options = {"folder": tmp_path / "jobs"}
    if base:
        lines = SlurmExecutor().render(plan()).split("\n")
        kept = [line for line in lines if "--comment" not in line and "--job-name" not in line]
        (tmp_path / "base.sh").write_text("\n".join([kept[0], base, *kept[1:]]))
        options["base"] = tmp_path / "base.sh"
    executor = get_executor("slurm", **options)
    (tmp_path / "silent").touch()
    if deaf:
        (tmp_path / "deaf").touch()
        for _ in range(2):
            with pytest.raises(EngineError):
                executor.launch(plan())
        (tmp_path / "deaf").unlink()
    handle = executor.launch(plan())
    assert executor.launch(plan()) == handle
    assert len(queued(jobs)) == 1
    assert "sizewright:p-1" in queued(jobs)[0].split()
    with pytest.raises(InputError, match=r"There is a job ctr\.p-1 already"):
        executor.launch(plan(id="p-9"))


def test_interrupted_change_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = like_slurm(tmp_path, monkeypatch)
    executor = get_executor("slurm", folder=tmp_path / "jobs")
    handle = executor.launch(plan())
    more = plan(kind="adjust", id="p-2", workers=5)
    checks = "case $* in *--test-only*) exit 0;; esac"
    fake(tmp_path, "sbatch", f"{checks}; echo 'sbatch: error: Socket timed out' >&2; exit 1")
    with pytest.raises(EngineError):
        executor.adjust(handle, more)
    assert queued(jobs) == []
    fake(tmp_path, "sbatch", f"{checks}; echo sizewright:back > {jobs}/7; echo 7")
    executor.adjust(handle, plan(kind="adjust", id="p-3"))  # back to the sizes of before
    assert queued(jobs) == ["sizewright:back"]


def test_job_without_a_reported_end_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = like_slurm(tmp_path, monkeypatch)
    executor = get_executor("slurm", folder=tmp_path / "jobs")
    handle = executor.launch(plan())
    for path in jobs.iterdir():
        path.write_text("")
    outcome = executor.stop(handle)
    assert (outcome.status, outcome.message[:30]) == ("failed", "Slurm no longer knows the job,")


SCRIPT = """\
#!/bin/bash
#SBATCH -J "Our CTR"
#SBATCH -n 4 -c 2 --mem-per-cpu=1G --gpus-per-task=a100:2
#SBATCH hetjob
#SBATCH -n 1 -c 1
export OMP_NUM_THREADS=2 NUM_WORKERS=4
srun --het-group=0 -n 4 torchrun --nnodes=4 --epochs 4 train.py : --het-group=1 python ps.py
"""


def test_users_script_becomes_a_plan_at_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "ours.sh"
    path.write_text(SCRIPT)
    executor = SlurmExecutor(folder=tmp_path)
    adopted = executor.adopt(path)
    assert (adopted.job.name, adopted.kind) == ("our-ctr", "launch")
    assert adopted.target.worker[0] == Group(replicas=4, cpu=2, memory_bytes=2 * GIB, gpu=Gpu(kind="a100", count=2))
    assert adopted.target.ps == (Group(replicas=1, cpu=1, memory_bytes=0),)
    assert executor.render(adopted) == SCRIPT
    assert SlurmExecutor(folder=tmp_path).adopt(path).id == adopted.id


def test_settings_that_repeat_a_size_in_a_script_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "ours.sh"
    path.write_text(SCRIPT)
    executor = SlurmExecutor(base=path, folder=tmp_path)
    remarks = executor.remarks(plan().model_copy(update={"target": Allocation.of(6, 1, 2, 1, 512)}))
    assert remarks == [
        f"{path}: worker keeps 2 GPUs per task: the plan has no GPUs.",
        f"{path}: NUM_WORKERS says 4; workers are now 6.",
        f"{path}: --ntasks says 4; workers are now 6.",
        f"{path}: --nnodes says 4; workers are now 6.",
    ]
