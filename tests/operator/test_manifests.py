"""What runs the operator: valid objects, and permissions for the calls that it makes and for no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from sizewright.executors.kubernetes.api import KubeApi
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.job_kinds import RESOURCES
from sizewright.operator.labels import JOB, JOB_CONFIG_MAP, RECREATE, TRIALS
from sizewright.operator.leadership import Leadership
from sizewright.operator.manifests import Activities, operator_manifests
from sizewright.operator.trial_jobs import TrialSettings
from tests.helpers.stand_in import StandIn
from tests.helpers.suspended_jobs import JOB_FILE, KINDS, suspended
from tests.operator.test_controller import no_answer, put, sized_answer

Rule = tuple[str, str, str]
RUNTIMES = ("trainer.kubeflow.org", "trainingruntimes", "get")
"""Asked for by TrainJobs that have a runtime of their own name."""


def objects(watched: Sequence[str] = (), **does: bool) -> dict[str, dict[str, Any]]:
    made = operator_manifests("ours:1", "sizewright", [], watched, Activities(**does))
    return {f"{each['kind']} {each['metadata']['name']}": each for each in made}


def allowed(made: dict[str, dict[str, Any]]) -> set[Rule]:
    rules = [rule for each in made.values() for rule in each.get("rules", [])]
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def calls(server: StandIn) -> set[Rule]:
    """Return the group, the resource and the verb of each request, without discovery, which everybody may."""
    found: set[Rule] = set()
    for asked in server.asked:
        method, _, address = asked.partition(" ")
        parts = urlsplit(address).path.strip("/").split("/")
        group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
        rest = rest[2:] if rest[:1] == ["namespaces"] else rest
        if rest:
            if method == "PATCH" and "fieldValidation" in address:  # of an apply, which may create
                found.add((group, rest[0], "create"))
            verbs = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
            resource = f"{rest[0]}/{rest[2]}" if rest[2:] else rest[0]
            found.add((group, resource, verbs.get(method) or ("get" if len(rest) > 1 else "list")))
    return found


@pytest.mark.parametrize("mode", ["usual", "recreates", "dry run"])
def test_permissions_are_those_of_the_calls(mode: str, server: StandIn, api: KubeApi) -> None:
    recreates, dry_run = mode == "recreates", mode == "dry run"
    server.changes_suspended = not recreates
    for executor in KINDS:
        put(server, executor, suspended(executor, f"{executor}-ctr", **({RECREATE: "yes"} if recreates else {})))
    put(server, "job", suspended("job", "described-elsewhere", **{JOB_CONFIG_MAP: "x", "sizewright/job": ""}))
    Leadership(api, "here").await_lead()
    Operator(
        api,
        sized_answer,
        settings=OperatorSettings(dry_run=dry_run, recreates=recreates, copies_in="here", jobs_per_s=1000.0),
    ).turn()
    # A job is read again only if it fails or waits long; these two are never created again here.
    can_change = {("ray.io", "rayjobs"), ("kubeflow.org", "pytorchjobs")}
    verbs = ("get", "create", "delete") if recreates else ("get",)
    unused = {(*each, verb) for each in (can_change if recreates else RESOURCES) for verb in verbs}
    unused |= {("coordination.k8s.io", "leases", "update")}  # to renew it later
    unused |= {RUNTIMES}
    made, rules = calls(server), allowed(objects(dry_run=dry_run, recreates=recreates))
    assert made <= rules
    assert rules - made <= unused


def test_trial_jobs_need_the_calls_that_they_make(server: StandIn, api: KubeApi) -> None:
    for executor in KINDS:
        described = {JOB: yaml.safe_dump(JOB_FILE | {"command": {"run": executor}}), TRIALS: "yes"}
        put(server, executor, suspended(executor, f"{executor}-ctr", **described))
    settings = OperatorSettings(policy="trials", jobs_per_s=1000.0, trials=TrialSettings(at_once=99, cores=2))
    for _ in range(4):
        Operator(api, no_answer, settings=settings).turn()
        for pod in server.pods.values():
            pod["began"] -= 60
    made, rules = calls(server), allowed(objects(runs_trials=True))
    assert made <= rules
    by_lease = {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}
    assert rules - made <= by_lease | {("", "configmaps", "get"), RUNTIMES} | {(*each, "get") for each in RESOURCES}


def test_namespaces_need_no_cluster_role() -> None:
    made = objects(watched=["team-a", "team-b"])
    assert not any(kind.startswith("Cluster") for kind in made)
    roles = operator_manifests("ours:1", "sizewright", [], ["team-a", "team-b"], Activities())
    namespaces = [each["metadata"]["namespace"] for each in roles if each["kind"] == "Role"]
    assert namespaces == ["sizewright", "team-a", "team-b"]


def test_bindings_name_their_roles_and_the_account() -> None:
    made = objects()
    for binding in (each for name, each in made.items() if "Binding" in name):
        reference = binding["roleRef"]
        assert f"{reference['kind']} {reference['name']}" in made
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "sizewright-operator", "namespace": "sizewright"}
        ]
    pod = made["Deployment sizewright-operator"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "sizewright-operator"


def test_leave_policy_needs_the_same(server: StandIn, api: KubeApi, tmp_path: Path) -> None:
    put(server, "job", suspended("job"))
    Operator(api, no_answer).turn()
    assert calls(server) <= allowed(objects())
