"""Random base manifests with odd but valid fields: what is kept of them when another plan is written into them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks._published import validator
from benchmarks._random_plans import random_plan
from sizewright.executors import get_executor
from sizewright.spec import Group, Plan

Fields = dict[tuple[str, ...], Any]
_COUNTS = {"replicas", "parallelism", "completions", "numNodes", "numProcPerNode", "minAvailable", "minReplicas",
           "maxReplicas", "cpu", "memory", "nvidia.com/gpu"}  # fmt: skip
"""Keys of sizes, and of fields that repeat them."""
_VARIABLES = ("SIZEWRIGHT_", "OMP_NUM_THREADS", "WORLD_SIZE", "PS_HOSTS", "TF_CONFIG")
_TEXTS = (
    "yes",
    "0x10",
    "1e3",
    "null",
    "two\nlines\n",
    "ünïcödé 中文",
    "",
    "- list",
    "key: value",
    "'a' \"b\"",
    " ends ",
)
_POD: tuple[dict[str, Any], ...] = (
    {"nodeSelector": {"disk": "ssd", "zone": "1e3"}},
    {"tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 300}]},
    {"terminationGracePeriodSeconds": 120, "schedulerName": "volcano"},
    {"securityContext": {"runAsUser": 1000, "fsGroup": 2000, "supplementalGroups": [1, 2]}},
    {"volumes": [{"name": "data", "emptyDir": {"sizeLimit": "10Gi", "medium": "Memory"}}]},
    {"initContainers": [{"name": "fetch", "image": "fetch:1", "command": ["sh", "-c", "cp -r /a /b && echo '#'"]}]},
    {"imagePullSecrets": [{"name": "registry"}], "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.10"]}},
    {"hostAliases": [{"ip": "10.1.2.3", "hostnames": ["db.local", "cache.local"]}]},
)
_CONTAINER: tuple[dict[str, Any], ...] = (
    {"volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]},
    {"livenessProbe": {"exec": {"command": ["test", "-e", "/alive"]}, "periodSeconds": 30}},
    {"ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]},
    {"imagePullPolicy": "IfNotPresent", "stdin": False, "workingDir": "/code"},
    {"envFrom": [{"configMapRef": {"name": "settings", "optional": True}}]},
    {"securityContext": {"privileged": False, "capabilities": {"add": ["SYS_PTRACE"]}}},
)


def kept_fields(name: str, kind: str, cases: int, seed: int) -> tuple[int, int]:
    """Return how many fields outside sizes are kept, and how many there are, over bases of one executor."""
    rng, kept, total, done = random.Random(seed), 0, 0, 0
    check, without = validator(kind), get_executor(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.yaml"
        while done < cases:
            plan = random_plan(rng, max_groups=1, max_name_length=getattr(without, "max_name_length", 52))
            plan = _suited(plan, without)
            documents = [_odd(rng, each) for each in yaml.safe_load_all(without.render(plan))]
            if not check.is_valid(documents[-1]):
                continue  # this kind does not have one of the fields
            path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
            written = get_executor(name, base=path).render(_resized(rng, plan))
            after, before = _fields(list(yaml.safe_load_all(written))), _fields(documents)
            lost = [field for field, value in before.items() if field not in after or after[field] != value]
            for field in lost[:3]:
                print(f"{name}: {'.'.join(field)} was {before[field]!r:.80} and is {after.get(field)!r:.80}")
            total += len(before)
            kept += len(before) - len(lost)
            done += 1
    return kept, total


def _suited(plan: Plan, executor: Any) -> Plan:
    """Return the plan with the roles that the kind has, and with the job's own batch size."""
    roles = getattr(executor, "roles", {})
    left_out = {role: () for role in ("worker", "ps", "chief", "evaluator") if role not in roles}
    target = plan.target.model_copy(update={**left_out, "batch_size": plan.job.training.batch_size})
    priority = {} if executor.name != "trainjob" else {"priority_class": None}
    deploy = plan.job.deploy.model_copy(update={"image": "registry.example.com/ours:1", **priority})
    job = plan.job.model_copy(update={"deploy": deploy})
    return plan.model_copy(update={"target": target, "lower": None, "upper": None, "job": job})


def _resized(rng: random.Random, plan: Plan) -> Plan:
    """Return the plan with other numbers and sizes of the same roles."""

    def other(group: Group) -> Group:
        cpu = rng.choice((0.5, 1.0, 2.5, 16.0))
        return group.model_copy(
            update={"replicas": rng.randint(1, 50), "cpu": cpu, "memory_bytes": rng.randint(1, 64) << 30}
        )

    groups = {role: tuple(map(other, getattr(plan.target, role))) for role in ("worker", "ps")}
    return plan.model_copy(update={"target": plan.target.model_copy(update=groups), "id": "another"})


def _odd(rng: random.Random, document: Any) -> Any:
    """Return a rendered object as a user might have it: without our annotations, with odd fields in all its parts."""
    if isinstance(document, list):
        return [_odd(rng, each) for each in document]
    if not isinstance(document, Mapping):
        return document
    result = {key: _odd(rng, value) for key, value in document.items()}
    if isinstance(metadata := result.get("metadata"), dict):
        metadata.pop("annotations", None)
        metadata["annotations"] = {f"team.example/{n}": rng.choice(_TEXTS) for n in range(rng.randint(1, 4))}
    if "containers" in result:
        result |= rng.choice(_POD) | rng.choice(_POD)
        for container in result["containers"]:
            container |= rng.choice(_CONTAINER) | rng.choice(_CONTAINER)
            container["env"] = [*(container.get("env") or []), {"name": "ODD", "value": rng.choice(_TEXTS)}]
    return result


def _fields(documents: list[Any]) -> Fields:
    """Return all fields outside sizes by their paths."""
    return dict(_leaves(documents, ()))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, list):
        for number, each in enumerate(value):
            if isinstance(each, Mapping) and str(each.get("name", "")).startswith(_VARIABLES) and "env" in path:
                continue
            yield from _leaves(each, (*path, str(number)))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key not in _COUNTS and not str(key).startswith("sizewright/"):
                yield from _leaves(each, (*path, str(key)))
    else:
        yield path, value
