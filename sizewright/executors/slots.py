"""Where a manifest has the size of its replicas, and reading and writing it there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

from sizewright.errors import InputError
from sizewright.spec import Gpu, Group
from sizewright.spec.units import cpu_quantity, is_count, memory_quantity, read_bytes, read_cores

GPU_RESOURCE = "nvidia.com/gpu"
_GPU_RESOURCES = re.compile(r"(nvidia|amd)\.com/(gpu(\.shared)?|mig-.+)|gpu\.intel\.com/.+|habana\.ai/gaudi")
_VENDORS = {r"mi\d+x?": "amd.com/gpu", r"gaudi\d*": "habana.ai/gaudi"}
BATCH_SIZE_ENV = "SIZEWRIGHT_BATCH_SIZE"
Node = MutableMapping[str, Any]


class Sizes(NamedTuple):
    """Sizes as a base has them; None where it does not say one, or says what is none."""

    replicas: int | None
    cpu: float | None
    memory_bytes: int | None
    gpus: int


class Slot(NamedTuple):
    """Of one group of replicas."""

    field: str
    """For messages: `spec.tfReplicaSpecs.Worker`."""
    counted: Node
    """Its `replicas` are their number."""
    container: Node
    """Its `resources` are those of one."""

    def write(self, group: Group, cpu_step_m: int = 1) -> None:
        """Number and resources, each among the requests or limits where it stands.

        Memory that is not known (0), GPUs that the plan does not have, and limits that were left open stay as they are.
        """
        self.counted["replicas"] = group.replicas
        resources = _inner(self.container, "resources", self.field)
        bare = not resources.get("requests") and not resources.get("limits")
        gpu = self.gpu_resource or (gpu_resource(group.gpu) if group.gpu else "")
        for amount, value in _amounts(group, cpu_step_m, gpu).items():
            stands = [part for part in ("requests", "limits") if amount in (resources.get(part) or {})]
            for part in stands or ["requests", "limits"][: 2 if bare or amount == gpu else 1]:
                _set(_inner(resources, part, f"{self.field}: resources"), amount, value)

    def has(self, group: Group, cpu_step_m: int = 1) -> bool:
        """Whether it reads as what was written, where that told anything."""
        if not self.asks_for_cores:
            return False
        now, wanted = self.read(), rounded(group, cpu_step_m)
        memory = not wanted.memory_bytes or now.memory_bytes == wanted.memory_bytes
        same_gpus = wanted.gpu is None or now.gpu == wanted.gpu
        return memory and same_gpus and (now.replicas, now.cpu) == (wanted.replicas, wanted.cpu)

    @property
    def asks_for_cores(self) -> bool:
        """Whether its container says how many cores it asks for."""
        return "cpu" in self.told()

    @property
    def gpu_resource(self) -> str:
        """By which name it asks for GPUs; empty where it does not."""
        return next((name for name in self.told() if _GPU_RESOURCES.fullmatch(name)), "")

    @property
    def replicas(self) -> int:
        """Their number. Raises InputError for what is none."""
        return _count(self.counted.get("replicas", 1), f"{self.field}.replicas")

    def sizes(self) -> Sizes:
        """Whatever it says of them."""
        told = self.told()
        gpu = self.gpu_resource
        return Sizes(
            _read(lambda: self.replicas) if "replicas" in self.counted else None,
            _read(lambda: read_cores(told["cpu"], "")) if "cpu" in told else None,
            _read(lambda: read_bytes(told["memory"], "")) if "memory" in told else None,
            _read(lambda: _count(told[gpu], "")) or 0 if gpu else 0,
        )

    def told(self) -> dict[str, Any]:
        """All amounts, its requests before its limits. Raises InputError for what is no mapping."""
        at = f"{self.field}: resources"
        resources = node(self.container.get("resources") or {}, at)
        return {
            **node(resources.get("limits") or {}, f"{at}.limits"),
            **node(resources.get("requests") or {}, f"{at}.requests"),
        }

    def write_batch_size(self, batch_size: int, usual: int) -> None:
        """Where its environment has it. Raises InputError where that does not, and it is another than usual."""
        for variable in self._env():
            if variable.get("name") == BATCH_SIZE_ENV:
                if str(variable.get("value")) != str(batch_size):
                    variable["value"] = like(variable.get("value"), batch_size)
                return
        if batch_size != usual:
            raise InputError(
                f"The plan's batch size is {batch_size}, and the container of {self.field} is told none.",
                f"Add {BATCH_SIZE_ENV} to its env, and read it there.",
            )

    def write_counts(self, workers: int, ps: int, cores: float) -> None:
        """Where its environment has what a command is told of its job."""
        values = {"SIZEWRIGHT_WORKERS": str(workers), "SIZEWRIGHT_PS": str(ps), "SIZEWRIGHT_CORES": f"{cores:g}"}
        for variable in self._env():
            name = str(variable.get("name"))
            if name in values and "value" in variable and str(variable["value"]) != values[name]:
                variable["value"] = like(variable["value"], values[name])

    def read_batch_size(self, usual: int) -> int:
        """Of its environment; `usual` where that does not have it. Raises InputError for what is no whole number."""
        for variable in self._env():
            if variable.get("name") == BATCH_SIZE_ENV:
                return _count(variable.get("value"), f"{self.field}: {BATCH_SIZE_ENV}")
        return usual

    def _env(self) -> list[Node]:
        env = self.container.get("env") or []
        if not isinstance(env, list):
            raise InputError(f"{self.field}: env is {env!r:.60}, and a list was expected.", "Mend the manifest there.")
        return [node(each, f"{self.field}: env") for each in env]

    def read(self) -> Group:
        """Raises InputError that names the field of what is no size."""
        at, told = f"{self.field}: resources", self.told()
        if "cpu" not in told:
            raise InputError(f"{at} have no cpu.", "Write what each replica requests, such as cpu: 500m.")
        memory = read_bytes(told["memory"], f"{at}.memory") if "memory" in told else 0
        gpu = self.gpu_resource
        count = _count(told[gpu], f"{at}.{gpu}") if gpu else 0
        return Group(
            replicas=self.replicas,
            cpu=read_cores(told["cpu"], f"{at}.cpu"), memory_bytes=memory, gpu=Gpu(count=count) if count else None,
        )  # fmt: skip


def rounded(group: Group, cpu_step_m: int = 1) -> Group:
    """As a manifest tells it again: whole steps of cores, whole Mi, GPUs of no kind."""
    memory = read_bytes(memory_quantity(group.memory_bytes), "") if group.memory_bytes else 0
    gpu = Gpu(count=group.gpu.count) if group.gpu else None
    cpu = read_cores(cpu_quantity(group.cpu, cpu_step_m), "")
    return Group(replicas=group.replicas, cpu=cpu, memory_bytes=memory, gpu=gpu)


def gpu_resource(gpu: Gpu) -> str:
    """The name by which Kubernetes counts GPUs of a kind."""
    return next((name for kind, name in _VENDORS.items() if re.fullmatch(kind, gpu.kind.lower())), GPU_RESOURCE)


def whole(cores: float) -> int:
    """Whole cores, at least one, as thread pools and Ray count them."""
    return max(1, math.ceil(round(cores, 6)))


def like(before: Any, value: object) -> Any:
    """The value as a text, in the quotes of the one before."""
    from ruamel.yaml.scalarstring import ScalarString

    return type(before)(str(value)) if isinstance(before, ScalarString) else str(value)


def main_container(template: Any, names: Sequence[str], field: str) -> Node:
    """Of a pod template: the container of one of these names, else the first. Raises InputError where there is none."""
    found = all_containers(template, field)
    return next((each for each in found if each.get("name") in names), found[0])


def training_container(template: Any, names: Sequence[str], field: str, others: Sequence[Any] = ()) -> Node:
    """Of a pod template that a user wrote: the container of one of these names, the only one, the only one that is told
    of its job by SIZEWRIGHT_ variables, the only one with GPUs, or the only one whose name or image all roles share.

    Raises InputError where none of these tells it.
    """
    found = all_containers(template, field)
    of_others = [all_containers(each, field) for each in others]
    tests: list[Callable[[Node], bool]] = [
        lambda each: each.get("name") in names,
        lambda _: len(found) == 1,
        lambda each: any(str(v.get("name")).startswith("SIZEWRIGHT_") for v in Slot(field, {}, each)._env()),
        lambda each: bool(Slot(field, {}, each).gpu_resource),
        *(lambda each, key=key: _shared(each, key, of_others) for key in ("name", "image")),
    ]
    for test in tests:
        if len(fitting := [each for each in found if test(each)]) == 1:
            return fitting[0]
    raise InputError(
        f"{field} has {len(found)} containers ({', '.join(str(each.get('name')) for each in found)}), and it is not "
        "known which one trains.",
        f"Call that one {names[0]}.",
    )


def _shared(container: Node, key: str, others: Sequence[Sequence[Node]]) -> bool:
    """Whether all other roles have a container of the same name or image."""
    value = container.get(key)
    return bool(others) and all(any(each.get(key) == value for each in containers) for containers in others)


def all_containers(template: Any, field: str) -> list[Node]:
    """Of a pod template. Raises InputError where there is none."""
    spec = node(node(template, f"{field}.template").get("spec"), f"{field}.template.spec")
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        raise InputError(f"{field}.template.spec has no containers.", "Write the container that trains there.")
    return [node(each, f"{field}.template.spec.containers") for each in containers]


def node(value: Any, field: str) -> Node:
    """The value as the mapping that it is to be. Raises InputError."""
    if not isinstance(value, MutableMapping):
        raise InputError(f"{field} is {value!r:.60}, and a mapping was expected.", "Mend the manifest there.")
    return value


def _inner(outer: Node, name: str, field: str) -> Node:
    """A mapping within, made where there is nothing. Raises InputError where there is something else."""
    if outer.get(name) is None:
        outer[name] = {}
    return node(outer[name], f"{field}.{name}")


def _amounts(group: Group, cpu_step_m: int, gpu: str) -> dict[str, str | int]:
    told: dict[str, str | int] = {"cpu": cpu_quantity(group.cpu, cpu_step_m)}
    if group.memory_bytes:
        told["memory"] = memory_quantity(group.memory_bytes)
    if group.gpu:
        told[gpu] = group.gpu.count
    return told


def _read(read: Callable[[], Any]) -> Any:
    """What is read; None for what is no size."""
    try:
        return read()
    except InputError:
        return None


def _set(amounts: Node, amount: str, value: str | int) -> None:
    """An amount that says the same in other words (`0.5` for `500m`) is left."""
    before = amounts.get(amount)
    if before is not None and _same(amount, before, value):
        return
    amounts[amount] = value


def _same(amount: str, before: Any, value: str | int) -> bool:
    read: Callable[[Any, str], float] = {"cpu": read_cores, "memory": read_bytes}.get(amount, _count)
    try:
        return bool(read(before, amount) == read(value, amount))
    except InputError:  # it is mended
        return False


def _count(value: Any, field: str) -> int:
    if isinstance(value, bool) or not is_count(str(value)):
        raise InputError(f"{field} is '{value}', which is not a whole number.", "Write a whole number, 0 or more.")
    return int(value)
