"""Read and write the size of replicas in a manifest."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

from sizewright.errors import InputError
from sizewright.formatting import cpu_quantity, memory_quantity
from sizewright.spec import Gpu, Group
from sizewright.spec.units import is_count, read_bytes, read_cores

GPU_RESOURCE = "nvidia.com/gpu"
_GPU_RESOURCES = re.compile(r"(nvidia|amd)\.com/(gpu(\.shared)?|mig-.+)|gpu\.intel\.com/.+|habana\.ai/gaudi")
_VENDORS = {r"mi\d+x?": "amd.com/gpu", r"gaudi\d*": "habana.ai/gaudi"}
BATCH_SIZE_ENV = "SIZEWRIGHT_BATCH_SIZE"
LOADERS_ENV = "SIZEWRIGHT_LOADERS"
YamlMap = MutableMapping[str, Any]


class ContainerSizes(NamedTuple):
    """The sizes that a base manifest states. A size that is missing or invalid is None."""

    replicas: int | None
    cpu: float | None
    memory_bytes: int | None
    gpus: int

    @property
    def processes(self) -> int | None:
        """The processes that torchrun starts by default: one for each GPU, or else for each core."""
        return self.gpus or (round_up_cores(self.cpu) if self.cpu else None)


class Counter(NamedTuple):
    """A mapping of a manifest, and its keys that state the number of replicas: the first is read, all are written."""

    entry: YamlMap
    names: tuple[str, ...] = ("replicas",)
    elsewhere: int = 0
    """Replicas of the group that stand in another entry."""


class ContainerSpec(NamedTuple):
    """The place in a manifest that holds the size of one group of replicas."""

    field: str
    """The path of the entry, for messages: `spec.tfReplicaSpecs.Worker`."""
    entry: YamlMap
    """The mapping that has the pod template."""
    container: YamlMap
    """The mapping whose `resources` are those of one replica."""
    counter: Counter | None = None
    """Where the number of replicas stands, if that is not `replicas` of the entry."""
    resources: str = "resources"
    """The key of the container's resources."""

    def write(self, group: Group, cpu_step_m: int = 1) -> None:
        """Write the number of replicas and their resources.

        An amount that is already among the requests or the limits is changed there. Unknown memory (0), GPUs that the
        plan does not have, and limits that are not set stay unchanged.
        """
        for name in self.counted_by.names:
            self.counted_by.entry[name] = group.replicas - self.counted_by.elsewhere
        resources = _get_or_create(self.container, self.resources, self.field)
        is_empty = not resources.get("requests") and not resources.get("limits")
        gpu = self.gpu_resource or (gpu_resource(group.gpu) if group.gpu else "")
        for amount, value in _amounts_of(group, cpu_step_m, gpu).items():
            parts = [part for part in ("requests", "limits") if amount in (resources.get(part) or {})]
            if not parts:
                parts = ["requests", "limits"] if is_empty or amount == gpu else ["requests"]
            for part in parts:
                amounts = _get_or_create(resources, part, f"{self.field}: {self.resources}")
                # An amount that states the same in other words (`0.5` for `500m`) stays as the user wrote it.
                if amounts.get(amount) is None or not is_same(amount, amounts[amount], value):
                    amounts[amount] = value

    def has(self, group: Group, cpu_step_m: int = 1) -> bool:
        """Return whether the manifest states this size already, as far as the group's size is known."""
        if not self.asks_for_cores:
            return False
        current = self.read()
        target = rounded(group, cpu_step_m)
        same_memory = not target.memory_bytes or current.memory_bytes == target.memory_bytes
        same_gpus = target.gpu is None or current.gpu == target.gpu
        return same_memory and same_gpus and (current.replicas, current.cpu) == (target.replicas, target.cpu)

    @property
    def has_pod(self) -> bool:
        """True if the manifest has the pod of the container; without it the platform's own template has the rest."""
        return self.entry is not self.container

    @property
    def asks_for_cores(self) -> bool:
        """True if the container states how many cores it requests."""
        return "cpu" in self.amounts()

    @property
    def gpu_resource(self) -> str:
        """The resource name by which the container requests GPUs; empty if it requests none."""
        return next((name for name in self.amounts() if _GPU_RESOURCES.fullmatch(name)), "")

    @property
    def counted_by(self) -> Counter:
        """Where the number of replicas stands."""
        return self.counter or Counter(self.entry)

    @property
    def replicas(self) -> int:
        """The number of replicas. Raises InputError if it is not a whole number."""
        counter = self.counted_by
        name = counter.names[0]
        return _read_count(counter.entry.get(name, 1), f"{self.field}.{name}") + counter.elsewhere

    def sizes(self) -> ContainerSizes:
        """Return the sizes that the manifest states; None for those that are missing or invalid."""
        amounts = self.amounts()
        gpu, counter = self.gpu_resource, self.counted_by
        return ContainerSizes(
            replicas=_none_if_invalid(lambda: self.replicas) if counter.names[0] in counter.entry else None,
            cpu=_none_if_invalid(lambda: read_cores(amounts["cpu"], "")) if "cpu" in amounts else None,
            memory_bytes=_none_if_invalid(lambda: read_bytes(amounts["memory"], "")) if "memory" in amounts else None,
            gpus=(_none_if_invalid(lambda: _read_count(amounts[gpu], "")) or 0) if gpu else 0,
        )

    def amounts(self) -> dict[str, Any]:
        """Return all resource amounts of the container; a request takes precedence over a limit.

        Raises InputError if the resources are not a mapping.
        """
        path = f"{self.field}: {self.resources}"
        resources = expect_mapping(self.container.get(self.resources) or {}, path)
        return {
            **expect_mapping(resources.get("limits") or {}, f"{path}.limits"),
            **expect_mapping(resources.get("requests") or {}, f"{path}.requests"),
        }

    def read(self) -> Group:
        """Return the size of the group. Raises InputError with the field of an amount that is invalid."""
        path = f"{self.field}: {self.resources}"
        amounts = self.amounts()
        if "cpu" not in amounts:
            raise InputError(f"{path} have no cpu.", "Write what each replica requests, such as cpu: 500m.")
        gpu = self.gpu_resource
        gpus = _read_count(amounts[gpu], f"{path}.{gpu}") if gpu else 0
        return Group(
            replicas=self.replicas,
            cpu=read_cores(amounts["cpu"], f"{path}.cpu"),
            memory_bytes=read_bytes(amounts["memory"], f"{path}.memory") if "memory" in amounts else 0,
            gpu=Gpu(count=gpus) if gpus else None,
        )

    def write_batch_size(self, batch_size: int, default: int) -> None:
        """Write the batch size into the container's environment, where that has the variable.

        Raises InputError if it does not, and the batch size differs from the job's `default`.
        """
        self._write(BATCH_SIZE_ENV, batch_size, default, f"The plan's batch size is {batch_size}")

    def write_loaders(self, loaders: int, default: int) -> None:
        """Write the number of loader processes into the container's environment, where that has the variable.

        Raises InputError if it does not, and the number differs from the job's `default`.
        """
        self._write(LOADERS_ENV, loaders, default, f"The plan's number of loaders is {loaders}")

    def _write(self, name: str, value: int, default: int, sentence: str) -> None:
        for variable in self.environment():
            if variable.get("name") == name:
                if str(variable.get("value")) != str(value):
                    variable["value"] = quoted_like(variable.get("value"), value)
                return
        if value != default:
            raise InputError(
                f"{sentence}, but the container of {self.field} does not read one.",
                f"Add {name} to its env, and read it there.",
            )

    def write_counts(self, workers: int, ps: int, cores: float) -> None:
        """Write the job's counts into those environment variables of the container that state them."""
        values = {"SIZEWRIGHT_WORKERS": str(workers), "SIZEWRIGHT_PS": str(ps), "SIZEWRIGHT_CORES": f"{cores:g}"}
        for variable in self.environment():
            name = str(variable.get("name"))
            if name in values and "value" in variable and str(variable["value"]) != values[name]:
                variable["value"] = quoted_like(variable["value"], values[name])

    def read_batch_size(self, default: int) -> int:
        """Return the batch size in the container's environment, or `default` if it has none.

        Raises InputError if it is not a whole number.
        """
        return self._read(BATCH_SIZE_ENV, default)

    def read_loaders(self, default: int) -> int:
        """Return the number of loader processes in the container's environment, or `default` if it has none.

        Raises InputError if it is not a whole number.
        """
        return self._read(LOADERS_ENV, default)

    def _read(self, name: str, default: int) -> int:
        for variable in self.environment():
            if variable.get("name") == name:
                return _read_count(variable.get("value"), f"{self.field}: {name}")
        return default

    def environment(self) -> list[YamlMap]:
        """Return the entries of `env`. Raises InputError if it is not a list of mappings."""
        env = self.container.get("env") or []
        if not isinstance(env, list):
            raise InputError(f"{self.field}: env must be a list, got {env!r:.60}.", "Correct the manifest.")
        return [expect_mapping(each, f"{self.field}: env") for each in env]


def rounded(group: Group, cpu_step_m: int = 1) -> Group:
    """Return a group as it reads back from a manifest: whole steps of CPU, whole Mi, and GPUs without their kind."""
    memory = read_bytes(memory_quantity(group.memory_bytes), "") if group.memory_bytes else 0
    gpu = Gpu(count=group.gpu.count) if group.gpu else None
    cpu = read_cores(cpu_quantity(group.cpu, cpu_step_m), "")
    return Group(replicas=group.replicas, cpu=cpu, memory_bytes=memory, gpu=gpu)


def one_of(group: Group) -> Group:
    """Return a group of one replica of this size."""
    return group.model_copy(update={"replicas": 1})


def gpu_resource(gpu: Gpu) -> str:
    """Return the resource name by which Kubernetes counts GPUs of this kind."""
    return next((name for kind, name in _VENDORS.items() if re.fullmatch(kind, gpu.kind.lower())), GPU_RESOURCE)


def round_up_cores(cores: float) -> int:
    """Return whole cores, at least one, as thread pools, Ray and Slurm count them."""
    return max(1, math.ceil(round(cores, 6)))


def quoted_like(previous: Any, value: object) -> Any:
    """Return the value as text, in the quotes of the YAML scalar that it replaces."""
    from ruamel.yaml.scalarstring import ScalarString

    return type(previous)(str(value)) if isinstance(previous, ScalarString) else str(value)


def main_container(template: Any, names: Sequence[str], field: str) -> YamlMap:
    """Return the container of a pod template that has one of these names, else the first.

    Raises InputError if the template has no containers.
    """
    containers = all_containers(template, field)
    return next((each for each in containers if each.get("name") in names), containers[0])


def training_container(template: Any, names: Sequence[str], field: str, others: Sequence[Any] = ()) -> YamlMap:
    """Return the container that trains, of a pod template that a user wrote.

    These criteria are tried in order, and the first that exactly one container meets decides: it has one of `names`; it
    is the only container; it reads a SIZEWRIGHT_ variable; it has GPUs; all other roles (templates `others`) have a
    container of the same name, or of the same image. Raises InputError if none decides.
    """
    containers = all_containers(template, field)
    other_roles = [all_containers(each, field) for each in others]

    def in_all_roles(container: YamlMap, key: str) -> bool:
        value = container.get(key)
        return bool(other_roles) and all(any(each.get(key) == value for each in role) for role in other_roles)

    def reads_sizewright_variable(container: YamlMap) -> bool:
        variables = ContainerSpec(field, {}, container).environment()
        return any(str(variable.get("name")).startswith("SIZEWRIGHT_") for variable in variables)

    criteria: list[Callable[[YamlMap], bool]] = [
        lambda container: container.get("name") in names,
        lambda _: len(containers) == 1,
        reads_sizewright_variable,
        lambda container: bool(ContainerSpec(field, {}, container).gpu_resource),
        lambda container: in_all_roles(container, "name"),
        lambda container: in_all_roles(container, "image"),
    ]
    for criterion in criteria:
        matches = [each for each in containers if criterion(each)]
        if len(matches) == 1:
            return matches[0]
    raise InputError(
        f"{field} has {len(containers)} containers ({', '.join(str(each.get('name')) for each in containers)}), and it "
        "is unclear which one trains.",
        f"Name the one that trains {names[0]}.",
    )


def all_containers(template: Any, field: str) -> list[YamlMap]:
    """Return the containers of a pod template. Raises InputError if there are none."""
    spec = expect_mapping(expect_mapping(template, f"{field}.template").get("spec"), f"{field}.template.spec")
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        raise InputError(f"{field}.template.spec has no containers.", "Add the container that trains.")
    return [expect_mapping(each, f"{field}.template.spec.containers") for each in containers]


def expect_mapping(value: Any, field: str) -> YamlMap:
    """Return the value, which must be a mapping. Raises InputError with the field if it is not."""
    if not isinstance(value, MutableMapping):
        raise InputError(f"{field} must be a mapping, got {value!r:.60}.", "Correct the manifest.")
    return value


def _get_or_create(outer: YamlMap, name: str, field: str) -> YamlMap:
    if outer.get(name) is None:
        outer[name] = {}
    return expect_mapping(outer[name], f"{field}.{name}")


def _amounts_of(group: Group, cpu_step_m: int, gpu: str) -> dict[str, str | int]:
    amounts: dict[str, str | int] = {"cpu": cpu_quantity(group.cpu, cpu_step_m)}
    if group.memory_bytes:
        amounts["memory"] = memory_quantity(group.memory_bytes)
    if group.gpu:
        amounts[gpu] = group.gpu.count
    return amounts


def _none_if_invalid(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except InputError:
        return None


def is_same(amount: str, previous: Any, value: Any) -> bool:
    """Return whether two quantities of a resource are equal; an invalid one equals nothing."""
    read: Callable[[Any, str], float] = {"cpu": read_cores, "memory": read_bytes}.get(amount, _read_count)
    try:
        return bool(read(previous, amount) == read(value, amount))
    except InputError:  # an invalid amount is replaced
        return False


def _read_count(value: Any, field: str) -> int:
    if isinstance(value, bool) or not is_count(str(value)):
        raise InputError(f"{field} is '{value}', which is not a whole number.", "Write a whole number, 0 or more.")
    return int(value)
