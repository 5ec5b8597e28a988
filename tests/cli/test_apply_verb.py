"""Tests of `apply`: its preview, its question, its records and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sizewright.executors import get_executor
from sizewright.executors.kubernetes.kubeflow import KubeflowExecutor
from sizewright.executors.kubernetes.manifest_executor import ManifestExecutor
from sizewright.runtime.audit_log import AuditLog
from sizewright.runtime.plan_files import adjust_plan
from sizewright.spec import Allocation, Job, Plan
from tests.helpers.fake_runs import JOB, ONE, running_job
from tests.helpers.stand_in import StandIn, stand_in

GIB = 1 << 30
SMALL, LARGE = (Allocation.of(n, 1, 1.0, 1.0, 512, GIB, GIB) for n in (1, 4))
LAUNCH = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=SMALL, reason="Chosen.")
ADJUST = Plan(id="p-2", kind="adjust", job=Job(name="ctr"), current=SMALL, target=LARGE, reason="More.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIZEWRIGHT_LEDGER", raising=False)
    return tmp_path


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    pytest.importorskip("kubernetes")
    with stand_in() as api_server:
        monkeypatch.setenv("KUBECONFIG", api_server.kubeconfig(folder))
        yield api_server


def write_plan(folder: Path, plan: Plan) -> Path:
    path = folder / f"{plan.id}.yaml"
    path.write_text(get_executor("file").render(plan))
    return path


def test_dry_run_shows_the_difference_and_changes_nothing(call: Any, folder: Path, server: StandIn) -> None:
    plan = write_plan(folder, LAUNCH)
    files_before = sorted(folder.iterdir())
    result = call("apply", plan, "--executor", "kubeflow", "--dry-run")
    assert result.code == 0
    assert "+kind: TFJob" in result.out
    assert "Plan p-1 would make these changes." in result.out
    assert server.objects == {}
    assert sorted(folder.iterdir()) == files_before


def test_plan_is_applied_once_timed_and_recorded(call: Any, folder: Path, server: StandIn) -> None:
    plan = write_plan(folder, LAUNCH)
    first = call("apply", plan, "--executor", "kubeflow", "--yes", "--wait", 60, "--asked-by", "anna", "-o", "json")
    entry = json.loads(first.out)
    assert (entry["became"], entry["handle"]["id"]) == ("applied", "default/ctr")
    assert entry["first_step_s"] > 0
    repeated = call("apply", plan, "--executor", "kubeflow", "--yes")
    assert repeated.code == 0
    assert "Plan p-1 was carried out before as default/ctr: nothing to do." in repeated.out
    entries = AuditLog(folder / "sizewright-plans.jsonl").read()
    assert [(e.plan_id, e.became, e.asked_by) for e in entries] == [
        ("p-1", "applied", "anna"), ("p-1", "trains", "anna")
    ]  # fmt: skip
    changed = call("apply", write_plan(folder, ADJUST), "--executor", "kubeflow", "--yes")
    assert "-      replicas: 1\n+      replicas: 4" in changed.out
    assert server.objects["TFJob", "default", "ctr"]["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 4


def test_manifest_of_a_plan_is_built_once(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[tuple[str, str]] = []
    write_sizes = ManifestExecutor._write_sizes

    def counted(executor: ManifestExecutor, document: Any, plan: Plan, *args: Any) -> list[str]:
        builds.append((plan.kind, plan.target.describe()))
        return write_sizes(executor, document, plan, *args)

    base = folder / "base.yaml"
    base.write_text(get_executor("kubeflow").render(LAUNCH) + "# ours\n")
    rails = folder / "rails.yaml"
    rails.write_text("quota: {cpu: 100}\n")
    monkeypatch.setattr(ManifestExecutor, "_write_sizes", counted)
    options = ("--executor", "kubeflow", "--base", base, "--rails", rails, "--yes")
    assert call("apply", write_plan(folder, LAUNCH), *options).code == 0
    assert builds == [("launch", SMALL.describe())]
    builds.clear()
    assert call("apply", write_plan(folder, ADJUST), *options).code == 0
    assert builds == [("launch", LARGE.describe()), ("adjust", LARGE.describe())], "the second is for the remarks"


def test_apply_without_terminal_fails_and_a_declined_plan_changes_nothing(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_plan(folder, LAUNCH)
    result = call("apply", plan, "--executor", "kubeflow")
    assert result.code == 1
    assert "Cannot ask for confirmation: stdin is not a terminal. Pass --yes" in result.err
    import sizewright.cli.apply as verb

    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr(verb, "_confirmed", lambda _, answer=answer: answer)
        assert call("apply", plan, "--executor", "kubeflow").code == code
        assert bool(server.objects) is answer


def test_plan_that_changes_nothing_is_not_asked_about(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "log", lambda name: "")
    keep = write_plan(folder, LAUNCH.model_copy(update={"id": "p-0", "kind": "keep", "current": SMALL}))
    assert "Plan p-0 keeps the job as it is." in call("apply", keep, "--executor", "kubeflow").out
    plan = write_plan(folder, LAUNCH)
    launched = call("apply", plan, "--executor", "kubeflow", "--yes", "--wait", 0.001)
    assert "kubeflow accepted plan p-1 for default/ctr." in launched.out
    assert "No step within 0.001 s." in launched.out
    again = call("apply", plan, "--executor", "kubeflow", "--ledger", "other.jsonl")
    assert (again.code, again.err) == (0, "")


def test_plan_whose_effect_exists_already_is_recorded_and_not_waited_for(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "log", lambda name: "")
    plan = write_plan(folder, LAUNCH)
    assert call("apply", plan, "--executor", "kubeflow", "--yes").code == 0
    args = ("apply", plan, "--executor", "kubeflow", "--ledger", "other.jsonl", "--wait", 600)
    assert "The job has these sizes already." in call(*args, "--dry-run").out + call(*args).out
    assert [(e.plan_id, e.became) for e in AuditLog(folder / "other.jsonl").read()] == [("p-1", "applied")]


def test_applied_plan_whose_job_was_deleted_is_not_said_to_be_carried_out(
    call: Any, folder: Path, server: StandIn
) -> None:
    plan = write_plan(folder, LAUNCH)
    call("apply", plan, "--executor", "kubeflow", "--yes")
    server.delete("TFJob", "default", "ctr")
    for option in ("--yes", "--dry-run"):
        result = call("apply", plan, "--executor", "kubeflow", option)
        assert result.code == 1
        assert "but kubeflow has no job default/ctr now. Give the plan a new id to launch it again." in result.err
    assert server.objects == {}


def test_reason_why_no_step_was_seen_is_printed(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "log", lambda name: "")
    plan = write_plan(folder, LAUNCH)
    server.fail("GET", "/pods", 403, times=1)
    result = call("apply", plan, "--executor", "kubeflow", "--yes", "--wait", 0.01)
    assert "No step was seen in 0.01 s: Not allowed to list Pods in default" in result.out
    server.delete("TFJob", "default", "ctr")
    monkeypatch.setattr(KubeflowExecutor, "end_status", lambda *_: "failed")
    args = ("--executor", "kubeflow", "--yes", "--wait", 600, "--ledger", "other.jsonl")
    assert "The job ended before its first step was seen." in call("apply", plan, *args).out


def test_dry_run_makes_the_checks_of_the_real_run_in_its_order(call: Any, folder: Path, server: StandIn) -> None:
    plan = write_plan(folder, LAUNCH)
    for option in ("--yes", "--dry-run"):
        args = ("apply", plan, "--executor", "kubeflow", option)
        assert "Cannot write the audit log" in call(*args, "--ledger", "missing/plans.jsonl").err
    assert server.objects == {}
    assert call("apply", plan, "--executor", "kubeflow", "--yes").code == 0
    rails = folder / "rails.yaml"
    rails.write_text("paused: true\n")
    for option in ("--yes", "--dry-run"):
        result = call("apply", plan, "--executor", "kubeflow", "--rails", rails, option)
        assert "Plan p-1 was carried out before as default/ctr" in result.out


def test_dry_run_of_a_change_without_a_job_is_refused(call: Any, folder: Path, server: StandIn) -> None:
    result = call("apply", write_plan(folder, ADJUST), "--executor", "kubeflow", "--dry-run")
    assert "Plan p-2 changes ctr, which is not running. Launch it first." in result.err


def test_rendered_manifest_is_accepted_as_a_plan(call: Any, folder: Path, server: StandIn) -> None:
    manifest = folder / "job.yaml"
    assert call("apply", write_plan(folder, LAUNCH), "--executor", "volcano", "--out", manifest, "--yes").code == 0
    assert yaml.safe_load(manifest.read_text())["kind"] == "Job"
    assert call("apply", manifest, "--executor", "volcano", "--yes").code == 0
    assert ("Job", "default", "ctr") in server.objects


def test_base_manifest_is_changed_only_in_its_sizes(call: Any, folder: Path) -> None:
    base = folder / "base.yaml"
    text = get_executor("kubeflow").render(LAUNCH)
    manifest = text[: text.index("  annotations:")] + text[text.index("spec:") :]
    base.write_text(manifest.replace("replicas: 1\n", "replicas: 1  # mine\n"))
    plan = write_plan(folder, ADJUST)
    preview = call("apply", plan, "--executor", "kubeflow", "--base", base, "--out", base, "--dry-run")
    assert "+      replicas: 4  # mine" in preview.out
    assert "replicas: 4" not in base.read_text()
    assert call("apply", plan, "--executor", "kubeflow", "--base", base, "--out", base, "--yes").code == 0
    assert base.read_text() == manifest.replace("replicas: 1\n", "replicas: 1  # mine\n").replace(
        "replicas: 1  # mine", "replicas: 4  # mine", 1
    )
    repeated = call("apply", plan, "--executor", "kubeflow", "--base", base, "--out", base, "--yes")
    assert "already matches the plan" in repeated.out


@pytest.mark.parametrize("name", ["kubeflow", "volcano", "kuberay", "dlrover"])
def test_manifest_of_the_user_is_applied_with_its_labels(call: Any, folder: Path, server: StandIn, name: str) -> None:
    document = yaml.safe_load(get_executor(name).render(LAUNCH))
    del document["metadata"]["annotations"]
    document["metadata"]["labels"]["mine"] = "kept"
    base, sized = folder / "base.yaml", folder / "sized.yaml"
    base.write_text(yaml.safe_dump(document))
    plan = write_plan(folder, LAUNCH.model_copy(update={"target": LARGE}))
    assert call("apply", plan, "--executor", name, "--base", base, "--out", sized, "--yes").code == 0
    result = call("apply", sized, "--executor", name, "--yes")
    assert result.code == 0, result.err
    ((_, applied),) = server.objects.items()
    assert applied["metadata"]["labels"]["mine"] == "kept"
    executor: Any = get_executor(name)
    assert executor.sizes_of(applied)["worker"][0].replicas == 4
    assert "was carried out before" in call("apply", sized, "--executor", name, "--yes").out


def test_additions_to_a_rendered_manifest_are_applied(call: Any, folder: Path, server: StandIn) -> None:
    document = yaml.safe_load(get_executor("kubeflow").render(LAUNCH))
    document["metadata"]["labels"]["mine"] = "kept"
    manifest = folder / "job.yaml"
    manifest.write_text(yaml.safe_dump(document))
    assert call("apply", manifest, "--executor", "kubeflow", "--yes").code == 0
    assert server.objects[("TFJob", "default", "ctr")]["metadata"]["labels"]["mine"] == "kept"


def test_role_option_maps_roles_and_notes_go_to_stderr(call: Any, folder: Path) -> None:
    document = yaml.safe_load(get_executor("volcano").render(LAUNCH))
    for task, name in zip(document["spec"]["tasks"], ("learner", "store"), strict=True):
        task["name"] = name
        task["template"]["spec"]["containers"][0]["env"].append({"name": "WORLD_SIZE", "value": "1"})
    base, out = folder / "base.yaml", folder / "out.yaml"
    base.write_text(yaml.safe_dump(document))
    args = ("apply", write_plan(folder, ADJUST), "--executor", "volcano", "--base", base, "--out", out, "--yes")
    refused = call(*args)
    assert refused.code == 1
    assert "--role worker=learner" in refused.err
    result = call(*args, "--role", "worker=learner", "--role", "ps=store")
    assert result.code == 0
    assert "spec.tasks[learner]: WORLD_SIZE says 1; workers are now 4." in result.err
    assert "WORLD_SIZE" not in result.out
    assert [task["replicas"] for task in yaml.safe_load(out.read_text())["spec"]["tasks"]] == [4, 1]
    for wrong in ("worker", "worker=", "=learner"):
        assert f"--role {wrong} is not of the form" in call(*args, "--role", wrong).err


def test_role_without_requests_is_refused_only_if_guardrails_limit_it(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load(get_executor("kubeflow").render(LAUNCH))
    pod = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    document["spec"]["tfReplicaSpecs"]["Evaluator"] = {"replicas": 50, "template": pod}
    base, rails = folder / "base.yaml", folder / "rails.yaml"
    base.write_text(yaml.safe_dump(document))
    rails.write_text("evaluator: {replicas: [0, 1]}\n")
    args = ("apply", write_plan(folder, ADJUST), "--executor", "kubeflow", "--base", base, "--out", "out.yaml", "--yes")
    refused = call(*args, "--rails", rails)
    assert refused.code == 1
    assert "does not say how many cores evaluator requests" in refused.err
    assert call(*args).code == 0
    rails.write_text("worker: {replicas: [1, 9]}\n")
    assert call(*args, "--rails", rails).code == 0


def test_guardrails_apply_in_a_dry_run_too(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    rails = folder / "rails.yaml"
    rails.write_text("worker: {replicas: [1, 3]}\nquota: {cpu: 3}\n")
    plan = write_plan(folder, LAUNCH.model_copy(update={"target": LARGE}))
    monkeypatch.setenv("SIZEWRIGHT_RAILS", str(rails))
    for more in (["--dry-run"], ["--yes"], ["--out", "manifest.yaml", "--yes"]):
        result = call("apply", plan, "--executor", "kubeflow", *more)
        assert result.code == 1
        assert "worker.replicas is 4 (allowed: 1 to 3); the cores of all replicas are 5 (quota: 3)" in result.err
    assert server.objects == {}
    assert not Path("manifest.yaml").exists()


def test_running_job_of_this_host_is_changed(call: Any, folder: Path) -> None:
    with running_job() as fake:
        plan = adjust_plan(
            JOB, ONE, ONE.model_copy(update={"worker": (ONE.worker[0].model_copy(update={"replicas": 2}),)})
        )
        path = write_plan(folder, plan)
        assert "+- replicas: 2" in call("apply", path, "--executor", "local", "--dry-run").out
        assert call("apply", path, "--executor", "local", "--yes").code == 0
        assert [c.plan.id for c in fake.calls if c.method == "adjust" and c.plan] == [plan.id]


def mistakes(folder: Path) -> Iterator[tuple[list[Any], str]]:
    plan = write_plan(folder, LAUNCH)
    adjust = write_plan(folder, ADJUST)
    service = folder / "other.yaml"
    service.write_text("apiVersion: v1\nkind: Service\n")
    script = folder / "run.yaml"
    script.write_text("id: x\ntarget: !!python/object/apply:os.system ['touch owned']\n")
    units = folder / "units.yaml"
    units.write_text(get_executor("kubeflow").render(LAUNCH).replace("memory: 1024Mi", "memory: 400m"))
    job = folder / "job.yaml"
    job.write_text("name: ctr\nbounds: {worker: {replicas: 4}}\n")
    yield [job, "--executor", "kubeflow", "--yes"], "is a job file, not a plan. Make one: sizewright recommend"
    yield [folder / "gone.yaml", "--executor", "kubeflow"], "No plan file at"
    yield [plan, "--executor", "kubeflw"], "did you mean 'kubeflow'"
    yield [plan, "--executor", "file", "--yes"], "The file executor cannot adjust jobs."
    yield [plan, "--executor", "local", "--yes"], "Start it with: sizewright run"
    yield [adjust, "--executor", "local", "--yes"], "No run is called ctr"
    yield [adjust, "--executor", "kubeflow", "--yes"], "Plan p-2 changes ctr, which is not running. Launch it first."
    yield [service, "--executor", "kubeflow", "--yes"], "The manifest has no TFJob; it holds: Service"
    yield [script, "--executor", "kubeflow", "--yes"], "run.yaml"
    yield [units, "--executor", "kubeflow", "--yes"], "memory is '400m', which is only 0.4 bytes"
    yield [plan, "--executor", "kubeflow", "--base", service, "--yes"], "other.yaml has no TFJob; it holds: Service"
    yield [plan, "--executor", "kubeflow", "--rails", service, "--yes"], "other.yaml"
    yield [plan, "--executor", "volcano", "--version", "0.4"], "It takes: api, base, clock, context, kubeconfig, roles."
    yield [plan, "--executor", "kubeflow", "--context", "nope", "--yes"], "Cannot find a cluster"


def test_every_mistake_is_one_sentence(call: Callable[..., Any], folder: Path, server: StandIn) -> None:
    for args, message in mistakes(folder):
        result = call("apply", *args)
        assert result.code != 0, args
        assert message in result.err, args
        assert result.err.startswith("Error: "), args
        assert "Traceback" not in result.err
    assert server.objects == {}
    assert not (folder / "owned").exists()
