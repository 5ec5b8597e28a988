"""What `apply` shows, asks, records and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sizewright.executors import get_executor
from sizewright.runtime.audit_log import AuditLog
from sizewright.runtime.plan_files import adjust_plan
from sizewright.spec import Allocation, Job, Plan
from tests.helpers.fake_runs import JOB, ONE, running_job
from tests.helpers.stand_in import StandIn, stand_in

GIB = 1 << 30
HERE, MORE = (Allocation.of(n, 1, 1.0, 1.0, 512, GIB, GIB) for n in (1, 4))
LAUNCH = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=HERE, reason="Chosen.")
ADJUST = Plan(id="p-2", kind="adjust", job=Job(name="ctr"), current=HERE, target=MORE, reason="More.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIZEWRIGHT_LEDGER", raising=False)
    return tmp_path


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    pytest.importorskip("kubernetes")
    with stand_in() as made:
        monkeypatch.setenv("KUBECONFIG", made.kubeconfig(folder))
        yield made


def written(folder: Path, plan: Plan) -> Path:
    path = folder / f"{plan.id}.yaml"
    path.write_text(get_executor("file").render(plan))
    return path


def test_a_dry_run_shows_the_difference_and_touches_nothing(call: Any, folder: Path, server: StandIn) -> None:
    plan = written(folder, LAUNCH)
    before = sorted(folder.iterdir())
    told = call("apply", plan, "--executor", "kubeflow", "--dry-run")
    assert told.code == 0
    assert "+kind: TFJob" in told.out
    assert "Plan p-1 would make these changes." in told.out
    assert server.objects == {}
    assert sorted(folder.iterdir()) == before


def test_it_is_applied_once_timed_and_recorded(call: Any, folder: Path, server: StandIn) -> None:
    plan = written(folder, LAUNCH)
    first = call("apply", plan, "--executor", "kubeflow", "--yes", "--wait", 60, "--asked-by", "anna", "-o", "json")
    told = json.loads(first.out)
    assert (told["became"], told["handle"]["id"]) == ("applied", "default/ctr")
    assert told["first_step_s"] > 0
    again = call("apply", plan, "--executor", "kubeflow", "--yes")
    assert again.code == 0
    assert "Plan p-1 was carried out before as default/ctr: nothing to do." in again.out
    entries = AuditLog(folder / "sizewright-plans.jsonl").read()
    assert [(e.plan_id, e.became, e.asked_by) for e in entries] == [
        ("p-1", "applied", "anna"), ("p-1", "trains", "anna")
    ]  # fmt: skip
    changed = call("apply", written(folder, ADJUST), "--executor", "kubeflow", "--yes")
    assert "-      replicas: 1\n+      replicas: 4" in changed.out
    assert server.objects["TFJob", "default", "ctr"]["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 4


def test_nobody_to_ask_is_an_error_and_who_declines_changes_nothing(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = written(folder, LAUNCH)
    told = call("apply", plan, "--executor", "kubeflow")
    assert told.code == 1
    assert "Cannot ask for confirmation: stdin is not a terminal. Pass --yes" in told.err
    import sizewright.cli.apply as verb

    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr(verb, "_confirmed", lambda _, answer=answer: answer)
        assert call("apply", plan, "--executor", "kubeflow").code == code
        assert bool(server.objects) is answer


def test_a_rendered_manifest_is_a_plan_too(call: Any, folder: Path, server: StandIn) -> None:
    manifest = folder / "job.yaml"
    assert call("apply", written(folder, LAUNCH), "--executor", "volcano", "--out", manifest, "--yes").code == 0
    assert yaml.safe_load(manifest.read_text())["kind"] == "Job"
    assert call("apply", manifest, "--executor", "volcano", "--yes").code == 0
    assert ("Job", "default", "ctr") in server.objects


def test_a_file_is_changed_only_where_its_sizes_are(call: Any, folder: Path) -> None:
    base = folder / "base.yaml"
    text = get_executor("kubeflow").render(LAUNCH)
    ours = text[: text.index("  annotations:")] + text[text.index("spec:") :]
    base.write_text(ours.replace("replicas: 1\n", "replicas: 1  # mine\n"))
    plan = written(folder, ADJUST)
    shown = call("apply", plan, "--executor", "kubeflow", "--base", base, "--out", base, "--dry-run")
    assert "+      replicas: 4  # mine" in shown.out
    assert "replicas: 4" not in base.read_text()
    assert call("apply", plan, "--executor", "kubeflow", "--base", base, "--out", base, "--yes").code == 0
    assert base.read_text() == ours.replace("replicas: 1\n", "replicas: 1  # mine\n").replace(
        "replicas: 1  # mine", "replicas: 4  # mine", 1
    )
    again = call("apply", plan, "--executor", "kubeflow", "--base", base, "--out", base, "--yes")
    assert "already matches the plan" in again.out


@pytest.mark.parametrize("name", ["kubeflow", "volcano", "kuberay", "dlrover"])
def test_a_manifest_of_the_users_own_is_applied_as_it_is(call: Any, folder: Path, server: StandIn, name: str) -> None:
    document = yaml.safe_load(get_executor(name).render(LAUNCH))
    del document["metadata"]["annotations"]
    document["metadata"]["labels"]["mine"] = "kept"
    base, sized = folder / "base.yaml", folder / "sized.yaml"
    base.write_text(yaml.safe_dump(document))
    plan = written(folder, LAUNCH.model_copy(update={"target": MORE}))
    assert call("apply", plan, "--executor", name, "--base", base, "--out", sized, "--yes").code == 0
    told = call("apply", sized, "--executor", name, "--yes")
    assert told.code == 0, told.err
    ((_, there),) = server.objects.items()
    assert there["metadata"]["labels"]["mine"] == "kept"
    executor: Any = get_executor(name)
    assert executor.sizes_of(there)["worker"][0].replicas == 4
    assert "was carried out before" in call("apply", sized, "--executor", name, "--yes").out


def test_what_is_added_to_a_rendered_manifest_is_applied_with_it(call: Any, folder: Path, server: StandIn) -> None:
    document = yaml.safe_load(get_executor("kubeflow").render(LAUNCH))
    document["metadata"]["labels"]["mine"] = "kept"
    manifest = folder / "job.yaml"
    manifest.write_text(yaml.safe_dump(document))
    assert call("apply", manifest, "--executor", "kubeflow", "--yes").code == 0
    assert server.objects[("TFJob", "default", "ctr")]["metadata"]["labels"]["mine"] == "kept"


def test_roles_are_mapped_and_remarks_are_on_standard_error(call: Any, folder: Path) -> None:
    document = yaml.safe_load(get_executor("volcano").render(LAUNCH))
    for task, name in zip(document["spec"]["tasks"], ("learner", "store"), strict=True):
        task["name"] = name
        task["template"]["spec"]["containers"][0]["env"].append({"name": "WORLD_SIZE", "value": "1"})
    base, out = folder / "base.yaml", folder / "out.yaml"
    base.write_text(yaml.safe_dump(document))
    words = ("apply", written(folder, ADJUST), "--executor", "volcano", "--base", base, "--out", out, "--yes")
    refused = call(*words)
    assert refused.code == 1
    assert "--role worker=learner" in refused.err
    told = call(*words, "--role", "worker=learner", "--role", "ps=store")
    assert told.code == 0
    assert "spec.tasks[learner]: WORLD_SIZE says 1; workers are now 4." in told.err
    assert "WORLD_SIZE" not in told.out
    assert [task["replicas"] for task in yaml.safe_load(out.read_text())["spec"]["tasks"]] == [4, 1]
    for wrong in ("worker", "worker=", "=learner"):
        assert f"--role {wrong} is not of the form" in call(*words, "--role", wrong).err


def test_a_role_that_asks_for_nothing_is_no_hindrance_without_rails(
    call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load(get_executor("kubeflow").render(LAUNCH))
    pod = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    document["spec"]["tfReplicaSpecs"]["Evaluator"] = {"replicas": 50, "template": pod}
    base, rails = folder / "base.yaml", folder / "rails.yaml"
    base.write_text(yaml.safe_dump(document))
    rails.write_text("evaluator: {replicas: [0, 1]}\n")
    words = ("apply", written(folder, ADJUST), "--executor", "kubeflow", "--base", base, "--out", "out.yaml", "--yes")
    refused = call(*words, "--rails", rails)
    assert refused.code == 1
    assert "does not say how many cores evaluator requests" in refused.err
    assert call(*words).code == 0
    rails.write_text("worker: {replicas: [1, 9]}\n")
    assert call(*words, "--rails", rails).code == 0


def test_guard_rails_hold_in_a_dry_run_too(
    call: Any, folder: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    rails = folder / "rails.yaml"
    rails.write_text("worker: {replicas: [1, 3]}\nquota: {cpu: 3}\n")
    plan = written(folder, LAUNCH.model_copy(update={"target": MORE}))
    monkeypatch.setenv("SIZEWRIGHT_RAILS", str(rails))
    for more in (["--dry-run"], ["--yes"], ["--out", "manifest.yaml", "--yes"]):
        told = call("apply", plan, "--executor", "kubeflow", *more)
        assert told.code == 1
        assert "worker.replicas is 4 (allowed: 1 to 3); the cores of all replicas are 5 (quota: 3)" in told.err
    assert server.objects == {}
    assert not Path("manifest.yaml").exists()


def test_a_running_job_of_this_host_is_changed(call: Any, folder: Path) -> None:
    with running_job() as fake:
        plan = adjust_plan(
            JOB, ONE, ONE.model_copy(update={"worker": (ONE.worker[0].model_copy(update={"replicas": 2}),)})
        )
        path = written(folder, plan)
        assert "+- replicas: 2" in call("apply", path, "--executor", "local", "--dry-run").out
        assert call("apply", path, "--executor", "local", "--yes").code == 0
        assert [c.plan.id for c in fake.calls if c.method == "adjust" and c.plan] == [plan.id]


def bad(folder: Path) -> Iterator[tuple[list[Any], str]]:
    plan = written(folder, LAUNCH)
    adjust = written(folder, ADJUST)
    other = folder / "other.yaml"
    other.write_text("apiVersion: v1\nkind: Service\n")
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
    yield [other, "--executor", "kubeflow", "--yes"], "The manifest has no TFJob; it holds: Service"
    yield [script, "--executor", "kubeflow", "--yes"], "run.yaml"
    yield [units, "--executor", "kubeflow", "--yes"], "memory is '400m', which is only 0.4 bytes"
    yield [plan, "--executor", "kubeflow", "--base", other, "--yes"], "other.yaml has no TFJob; it holds: Service"
    yield [plan, "--executor", "kubeflow", "--rails", other, "--yes"], "other.yaml"
    yield [plan, "--executor", "volcano", "--version", "0.4"], "It takes: api, base, clock, context, kubeconfig, roles."
    yield [plan, "--executor", "kubeflow", "--context", "nope", "--yes"], "Cannot find a cluster"


def test_every_mistake_is_one_sentence(call: Callable[..., Any], folder: Path, server: StandIn) -> None:
    for words, told in bad(folder):
        result = call("apply", *words)
        assert result.code != 0, words
        assert told in result.err, words
        assert result.err.startswith("Error: "), words
        assert "Traceback" not in result.err
    assert server.objects == {}
    assert not (folder / "owned").exists()
