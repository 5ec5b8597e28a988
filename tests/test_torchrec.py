"""The examples of TorchRec and of data loader processes: profiled, sized, reported, run and stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import sizewright as sw
from sizewright.errors import EngineError
from sizewright.executors import get_executor
from sizewright.profiler.torchrec import calibrate as calibrating
from sizewright.profiler.torchrec.calibrate import _run_estimates, _times_by_cost
from sizewright.profiler.torchrec.cases import draw_cases
from sizewright.profiler.torchrec.fit import constants_of, prior_costs, step_times
from sizewright.profiler.torchrec.ranks import run_task
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation
from tests.helpers.real_servers import free_port
from tests.helpers.torchrec_calibrations import PROBES
from tests.helpers.torchrec_environment import shared_environment

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "torchrec"
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def environment() -> Path:
    return shared_environment()


@pytest.fixture
def folder(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of the examples, with the environment activated."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{environment}:{os.environ['PATH']}")
    return tmp_path / "examples"


def sizewright(*args: object, exits: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sizewright.cli.main", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == exits, done.stdout + done.stderr
    assert 'Traceback (most recent call last)\n  File "' + str(ROOT / "sizewright") not in done.stderr
    return done


def profiled(job: Path) -> list[dict[str, Any]]:
    """Return the trials of a series; other work on the host may spoil some, which the same command measures again."""
    command = [sys.executable, "-m", "sizewright.cli.main", "profile", str(job), "--trials", "4", "--accept-drift"]
    for _ in range(3):
        done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=600)
        if done.returncode == 0:
            break
    trials: list[dict[str, Any]] = json.loads(done.stdout)
    return trials


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of the processes that work in a folder."""
    lines = []
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if process.info["cwd"] == str(folder):
            lines.append(" ".join(process.info["cmdline"] or ()))
    return lines


def printed_samples() -> int:
    """Return the number of samples that the script of the last run counted itself."""
    (log,) = Path("sizewright-logs").glob("*/start-*/worker-0.log")
    (count,) = re.findall(r"^trained (\d+) samples$", log.read_text(), re.MULTILINE)
    return int(count)


def answered(job: Path) -> dict[str, Any]:
    """Return the answer, with more trials while those of a busy host contradict each other."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-m", "sizewright.cli.main", "recommend", job, "-o", "json"],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        answer: dict[str, Any] = json.loads(done.stdout)
        if answer["status"] == "ok":
            break
        sizewright("profile", job, "--trials", "5", "--accept-drift", "--fresh")
    return answer


@pytest.mark.parametrize("name", ["dlrm", "loader"])
def test_an_example_is_profiled_sized_reported_and_run(name: str, folder: Path, tmp_path: Path) -> None:
    path = folder / f"{name}.yaml"
    job = sw.load_job(path)
    trials = profiled(path)
    assert {trial["status"] for trial in trials} == {"ok"}, trials
    for trial in trials:
        assert trial["throughput"] > 0
        assert trial["phase_data_s"] > 0
        assert trial["phase_compute_s"] > 0
        assert trial["worker_memory_bytes"] > 100 << 20
    assert max(trial["workers"] for trial in trials) > 1
    answer = answered(path)
    assert answer["status"] == "ok", answer
    (group,) = answer["target"]["worker"]
    bounds = job.bounds.worker
    assert bounds.replicas[0] <= group["replicas"] <= bounds.replicas[1]
    assert bounds.cpu[0] <= group["cpu"] <= bounds.cpu[1]
    assert answer["target"]["ps"] == []
    sizewright("report", path, "--out", tmp_path / "report.html")
    assert job.name in (tmp_path / "report.html").read_text()
    ran = sizewright("run", path, "--workers", "2", "--worker-cpu", "0.6", "--samples", "20000", "-o", "json")
    outcome = json.loads(ran.stdout)
    assert outcome["status"] == "finished"
    assert outcome["samples"] == printed_samples() == 20 * 2 * 512
    assert not processes_in(folder)


@pytest.mark.parametrize("name", ["dlrm", "loader"])
def test_sigterm_ends_every_rank_after_the_same_step(name: str, folder: Path) -> None:
    job = sw.load_job(folder / f"{name}.yaml")
    local = get_executor("local")
    handle = local.launch(launch_plan(job, Allocation.of(2, 0, 0.6, 1.0, 512)))
    assert not local.wait(handle, 2.0)
    outcome = local.stop(handle)
    assert outcome.status == "stopped"
    assert outcome.samples == printed_samples()
    assert outcome.samples % (2 * 512) == 0  # no rank has trained alone
    assert "Error" not in Path(next(Path("sizewright-logs").glob("*/start-0")), "worker-1.log").read_text()
    assert not processes_in(folder)


PLAN = """
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from calibrated_planner import MeasuredStep, estimators, planner, sharders, topology

rows = {"user": 200_000, "item": 50_000, "shop": 1_000}
tables = EmbeddingBagCollection(
    tables=[
        EmbeddingBagConfig(name=name, embedding_dim=32, num_embeddings=count, feature_names=[name])
        for name, count in rows.items()
    ],
    device=torch.device("meta"),
)
constraints = {name: ParameterConstraints(pooling_factors=[5.0]) for name in rows}
plan = planner(world_size=2, batch_size=512, constraints=constraints).plan(tables, sharders())
hosts = topology(2)
enumerator = EmbeddingEnumerator(hosts, 512, constraints, estimators(hosts, constraints))
own = EmbeddingShardingPlanner(
    topology=hosts, batch_size=512, enumerator=enumerator, performance_model=MeasuredStep(hosts), debug=False
)
assert own.plan(tables, sharders()).plan.keys() == plan.plan.keys()
print(*sorted(plan.plan[""]))
"""


def test_a_calibration_estimates_better_and_its_file_plans(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "MAX_ROUNDS", 2)  # the page of the documentation runs the command as users do
    python, written = environment / "python", tmp_path / "calibrated_planner.py"
    calibration = sw.calibrate_torchrec(python=python, plans=12, write=written)
    assert len(calibration.plans) == 12
    assert sum(plan.held_out for plan in calibration.plans) == 6
    assert calibration.calibrated_error < calibration.default_error
    assert all(value >= 0 for value in calibration.constants.values())
    assert all(plan.measured_peak_bytes > 0 for plan in calibration.plans)
    planned = subprocess.run([python, "-c", PLAN], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert planned.stdout == "item shop user\n", planned.stderr


def test_a_placement_of_whole_tables_becomes_a_plan_by_the_lines_of_the_page(folder: Path, environment: Path) -> None:
    page = (ROOT / "docs" / "torchrec.md").read_text(encoding="utf-8").split("## Place whole tables")[1]
    (job,) = re.findall(r"^```yaml\n(name: my-tables.*?)^```", page, re.DOTALL | re.MULTILINE)
    (lines,) = re.findall(r"^```text\n(import json.*?)^```", page, re.DOTALL | re.MULTILINE)
    (folder / "my-tables.yaml").write_text(job)
    placed = sizewright(
        "place", folder / "my-tables.yaml", "--servers", "2", "--memory", "1Gi", "--whole", "-o", "json"
    )
    (folder / "placement.json").write_text(placed.stdout)
    script = (folder / "dlrm.py").read_text()
    default = 'model = DistributedModelParallel(model, device=torch.device("cpu"))\n'
    assert default in script
    shown = 'print("ranks", *(spec.ranks[0] for spec in of_tables.values()), flush=True)\n'
    (folder / "dlrm.py").write_text(script.replace(default, lines + shown))
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    command = [environment / "python", "dlrm.py", "--samples", "5000"]
    ranks = [
        subprocess.Popen(
            command, cwd=folder, env=os.environ | port | {"RANK": rank, "LOCAL_RANK": rank}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in ("0", "1")
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert "trained 5120 samples" in outputs[0], outputs
    servers = json.loads(placed.stdout)["servers"]
    rank_of = {part["table"]: server["server"] for server in servers for part in server["parts"]}
    assert "ranks " + " ".join(str(rank_of[table]) for table in range(4)) in outputs[0]


def test_estimates_of_the_real_planner_are_the_fitted_ones(environment: Path) -> None:
    python, cases = str(environment / "python"), draw_cases(12, 2)
    by_cost, _ = _times_by_cost(python, cases, 3.0)
    costs = prior_costs(PROBES).expected + 1e-4
    constants = {**constants_of(costs, 3.0, 1.0), "fused_storage": 1.0, "data_parallel_storage": 1.0}
    estimated = [each[0]["step_ms"] for each in _run_estimates(python, cases, [constants])]
    assert np.allclose(estimated, step_times(by_cost, costs), rtol=1e-5)


def test_a_rank_of_torchrec_that_fails_is_told(environment: Path) -> None:
    task = draw_cases(12, 2)[0].to_task() | {"optimizer": "none"}
    with pytest.raises(EngineError, match=r"Rank . of 2 of TorchRec failed: KeyError: 'none'"):
        run_task(str(environment / "python"), "time", [task], ranks=2, timeout_s=120.0, max_rounds=2)


def test_an_environment_without_torchrec_is_named(folder: Path) -> None:
    if find_spec("torchrec"):
        pytest.skip("the environment of the tests has torchrec")
    path = folder / "dlrm.yaml"
    path.write_text(path.read_text().replace("run: python", f"run: {sys.executable}"))
    failed = " ".join(sizewright("profile", path, "--trials", "2", "--accept-drift", exits=1).stderr.split())
    assert re.search(r"Error: None of \d trials succeeded: ModuleNotFoundError: No module named 'torchrec'\.", failed)
    answer = sizewright("recommend", path, exits=4)
    assert "ModuleNotFoundError: No module named 'torchrec'" in answer.stdout
    ran = sizewright("run", path, "--workers", "1", "--worker-cpu", "0.5", exits=1)
    assert "ModuleNotFoundError: No module named 'torchrec'" in ran.stderr
    assert not processes_in(folder)


def test_ranks_that_the_script_refuses_fail_and_the_others_are_measured(folder: Path) -> None:
    script = folder / "dlrm.py"
    seed = "torch.manual_seed(0)\n"
    assert seed in script.read_text()
    refusal = 'if world != 1:\n    raise SystemExit(f"the sharding plan is for 1 rank, not for {world}")\n'
    script.write_text(script.read_text().replace(seed, refusal + seed))
    path = folder / "dlrm.yaml"
    path.write_text(path.read_text().replace("replicas: [1, 4]", "replicas: [1, 2]"))
    done = sizewright("profile", path, "--trials", "3", "--accept-drift", exits=1)
    assert "the sharding plan is for 1 rank, not for 2" in done.stderr
    assert "Remove the cause that is named above" in " ".join(done.stderr.split())
    with sw.open_store() as store:
        trials = store.trials(job_hash=sw.load_job(path).hash)
    assert {trial.status for trial in trials if trial.workers == 2} == {"failed"}
    assert {trial.status for trial in trials if trial.workers == 1} == {"ok"}
    answer = sizewright("recommend", path, exits=4)
    assert "the sharding plan is for 1 rank, not for 2" in " ".join(answer.stdout.split())
    assert not processes_in(folder)
