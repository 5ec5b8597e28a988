"""What to apply to a cluster to run the operator: its Deployment, its account, and the permissions that it needs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from sizewright.operator.job_kinds import RESOURCES
from sizewright.operator.leadership import LEASE

NAME = "sizewright-operator"
_PORT = 9090
_GRACE_S = 150  # in which a job that is being created again comes back
_LABELS = {"app.kubernetes.io/name": NAME}
_RBAC = "rbac.authorization.k8s.io"


class Activities(NamedTuple):
    """What an operator does besides sizing suspended jobs; one in a `dry_run` changes nothing."""

    dry_run: bool = False
    recreates: bool = False
    runs_trials: bool = False
    resizes: bool = False
    scales: bool = False


def operator_manifests(
    image: str,
    namespace: str,
    options: Sequence[str],
    watched: Sequence[str],
    does: Activities,
) -> list[dict[str, Any]]:
    """Return the objects that run `sizewright operator run` with these options, from an image that has Sizewright.

    The permissions are the least for what it `does`, in the `watched` namespaces, or in all of them if there are none.
    """
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]
    rules = _rules(does)
    own = [_rule("coordination.k8s.io", ["leases"], ["create"])]
    own += [_rule("coordination.k8s.io", ["leases"], ["get", "update"]) | {"resourceNames": [LEASE]}]
    if does.recreates and not does.dry_run:
        own += [_rule("", ["secrets"], ["create", "list", "delete"])]
    objects = [_object("v1", "ServiceAccount", NAME, namespace)]
    objects += _permission("Role", f"{NAME}-own", namespace, own, subjects)
    for name in watched:
        objects += _permission("Role", NAME, name, rules, subjects)
    if not watched:
        objects += _permission("ClusterRole", NAME, "", rules, subjects)
    return [*objects, _deployment(image, namespace, options)]


def _rules(does: Activities) -> list[dict[str, Any]]:
    recreates, runs_trials = (each and not does.dry_run for each in (does.recreates, does.runs_trials))
    verbs = ["get", "list"]
    verbs += [] if does.dry_run else ["patch"]
    verbs += ["create", "delete"] if recreates or runs_trials else []
    by_group: dict[str, list[str]] = {}
    for group, plural in RESOURCES:
        by_group.setdefault(group, []).append(plural)
    rules = [_rule(group, plurals, verbs) for group, plurals in by_group.items()]
    rules += [_rule("", ["configmaps"], ["get"]), _rule("", ["events"], ["create"])]
    rules += [_rule("trainer.kubeflow.org", ["trainingruntimes"], ["get"])]
    observes = does.resizes or does.scales or runs_trials
    if observes or recreates:
        rules += [_rule("", ["pods"], ["list"])]
    if observes:
        rules += [_rule("", ["pods/log"], ["get"]), _rule("metrics.k8s.io", ["pods"], ["list"])]
    if does.resizes and not does.dry_run:
        rules += [_rule("", ["pods/resize"], ["patch"])]
    return rules


def _rule(group: str, plurals: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [*plurals], "verbs": [*verbs]}


def _permission(
    kind: str, name: str, namespace: str, rules: list[dict[str, Any]], subjects: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    version = f"{_RBAC}/v1"
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return [
        _object(version, kind, name, namespace) | {"rules": rules},
        _object(version, f"{kind}Binding", name, namespace) | {"roleRef": reference, "subjects": subjects},
    ]


def _deployment(image: str, namespace: str, options: Sequence[str]) -> dict[str, Any]:
    command = ["sizewright", "operator", "run", "--lease-namespace", namespace]
    probe = {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 10}
    container = {
        "name": "operator",
        "image": image,
        "command": [*command, "--metrics-port", str(_PORT), "--metrics-host", "0.0.0.0", *options],
        "ports": [{"name": "metrics", "containerPort": _PORT}],
        "livenessProbe": copy.deepcopy(probe) | {"failureThreshold": 6},
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "env": [{"name": "HOME", "value": "/tmp"}],
        "envFrom": [{"secretRef": {"name": NAME, "optional": True}}],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": _GRACE_S,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": dict(_LABELS)},
        "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", NAME, namespace) | {"spec": spec}


def _object(version: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": dict(_LABELS)} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
