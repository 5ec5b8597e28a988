"""Match the columns of a user's table to a schema: by name, by a known synonym, or by the user's mapping."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sizewright.datasets._columns import COLUMNS
from sizewright.errors import InputError, StoreError


class Schema(NamedTuple):
    """A schema: its name, its columns, and the column that each known name or synonym means."""

    what: str
    columns: tuple[str, ...]
    means: Mapping[str, str]

    def meaning(self, name: str) -> str | None:
        """Return the column that a name stands for, or None."""
        plain = _plain(name)
        base = plain.removesuffix("_max") if "memory" in plain else _AVERAGED.sub("", plain)
        return self.means.get(plain) or self.means.get(base)


def known(what: str, columns: Sequence[str], synonyms: Mapping[str, str]) -> Schema:
    """Build a schema whose columns have these synonyms, separated by blanks."""
    means = {name: column for column, names in synonyms.items() for name in names.split()}
    return Schema(what, tuple(columns), means | {column: column for column in columns})


_SYNONYMS = {
    "throughput": "samples_per_s samples_s sps throughput_samples_per_s throughput_samples_s throughput_sps "
    "examples_per_s examples_s global_samples_per_s total_samples_per_s global_throughput total_throughput "
    "rows_per_s records_per_s images_per_s avg_throughput mean_throughput throughput_mean throughput_avg",
    "workers": "worker num_workers n_workers nworkers worker_num worker_count workers_count worker_replicas "
    "number_of_workers no_of_workers nb_workers num_worker n_worker",
    "ps": "num_ps n_ps nps ps_num ps_count ps_replicas number_of_ps no_of_ps nb_ps parameter_servers "
    "num_parameter_servers n_parameter_servers parameter_server servers num_servers n_servers pservers num_pservers",
    "worker_cpu": "worker_cores worker_cpus worker_vcpu worker_vcpus cpu_per_worker cpus_per_worker cores_per_worker "
    "vcpus_per_worker cpu_worker",
    "ps_cpu": "ps_cores ps_cpus ps_vcpu ps_vcpus cpu_per_ps cpus_per_ps cores_per_ps vcpus_per_ps cpu_ps",
    "worker_gpu": "worker_gpus gpu_per_worker gpus_per_worker",
    "loaders": "num_loaders loader_processes data_loaders dataloaders dataloader_workers data_loader_workers",
    "batch_size": "bs batch batchsize minibatch mini_batch minibatch_size mini_batch_size local_batch_size "
    "batch_size_per_worker per_worker_batch_size worker_batch_size per_device_batch_size",
    "worker_memory_bytes": "worker_memory_peak_bytes worker_memory_peak worker_peak_memory worker_peak_memory_bytes "
    "peak_worker_memory worker_max_memory worker_rss worker_max_rss",
    "ps_memory_bytes": "ps_memory_peak_bytes ps_memory_peak ps_peak_memory ps_peak_memory_bytes peak_ps_memory "
    "ps_max_memory ps_rss ps_max_rss",
    "throughput_se": "throughput_sem throughput_stderr throughput_standard_error",
    "duration_s": "duration elapsed elapsed_s seconds",
    "steps": "num_steps n_steps iterations",
    "host": "hostname node",
    "started_at": "timestamp start_time started",
    "message": "error",
}
TRIALS = known("trial table", tuple(COLUMNS), _SYNONYMS)
_AVERAGED = re.compile(r"_(mean|avg|median)$")
_SUGGESTION_CUTOFF = 0.75


class Columns(NamedTuple):
    """The mapping from the columns of a file to a schema."""

    read_as: dict[str, str]
    """Column of the schema by column of the file."""
    left_out: tuple[str, ...]
    of: Schema = TRIALS

    @property
    def renamed(self) -> dict[str, str]:
        """The columns with another name in the file."""
        return {name: column for name, column in self.read_as.items() if name != column}

    def describe(self) -> str:
        """Describe the mapping in one or two sentences; empty where the file has the names of the schema."""
        parts = []
        if self.renamed:
            parts.append(f"Read {', '.join(f'{name} as {column}' for name, column in self.renamed.items())}.")
        if self.left_out:
            unused = [column for column in self.of.columns if column not in self.read_as.values()]
            parts.append(f"Left out: {', '.join(_with_hint(name, unused) for name in self.left_out)}.")
        return " ".join(parts)


def meaning(name: str) -> str | None:
    """Return the column of the trial table that a name stands for, or None."""
    return TRIALS.meaning(name)


def read_mapping(words: Sequence[str]) -> dict[str, str]:
    """Parse pairs such as `samples_per_sec=throughput` of a command line. Raises InputError for anything else."""
    mapping = {}
    for word in words:
        name, _, column = word.rpartition("=")
        if not name:
            raise InputError(f"--map {word} is not a pair of columns.", "Write --map samples_per_sec=throughput.")
        mapping[name.strip()] = column.strip()
    return mapping


def match_columns(names: Sequence[str], mapping: Mapping[str, str], path: str, of: Schema = TRIALS) -> Columns:
    """Match each column of a file to the schema; an empty name in `mapping` leaves a column out.

    Raises StoreError where the mapping is invalid or a match is ambiguous.
    """
    _check_mapping(names, mapping, path, of)
    read_as = {name: column for name, column in mapping.items() if column}
    for exact in (True, False):  # an exact name takes precedence over a synonym
        for name in names:
            column = (name if name in of.columns else None) if exact else of.meaning(name)
            if name in mapping or name in read_as or not column:
                continue
            if column not in read_as.values():
                read_as[name] = column
            elif not exact and read_as.get(column) != column and column not in mapping.values():
                other = next(name for name, known_as in read_as.items() if known_as == column)
                raise StoreError(
                    f"{path}: {other} and {name} both look like {column}.",
                    f"Choose one of them: --map {name}={column}.",
                )
    left_out = tuple(name for name in names if name and name not in read_as)
    return Columns({name: read_as[name] for name in names if name in read_as}, left_out, of)


def _check_mapping(names: Sequence[str], mapping: Mapping[str, str], path: str, of: Schema) -> None:
    for name, column in mapping.items():
        if name not in names:
            raise StoreError(f"{path} has no column {name!r}.", f"It has: {', '.join(filter(None, names))}.")
        if column in of.columns and (unit := _other_unit(name, column)):
            raise StoreError(
                f"{name} is in {unit}, and {column} is not.",
                f"Write the unit into its cells, such as 5000{unit}, or convert them; then map it.",
            )
        if column and column not in of.columns:
            close = difflib.get_close_matches(column, of.columns, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"It has: {', '.join(of.columns)}."
            raise StoreError(f"The {of.what} has no column {column!r}.", hint)
    columns = [column for column in mapping.values() if column]
    if duplicates := [column for column in columns if columns.count(column) > 1]:
        raise StoreError(f"Two columns are mapped to {duplicates[0]}.", "Map one of them.")


def _with_hint(name: str, unused: Sequence[str]) -> str:
    close = difflib.get_close_matches(_plain(name), unused, n=1, cutoff=_SUGGESTION_CUTOFF)
    return f"{name} (--map {name}={close[0]} reads it)" if close and not _other_unit(name, close[0]) else name


def _other_unit(name: str, column: str) -> str:
    """Return the unit at the end of `name` where it differs from the bytes or seconds of `column`, else ""."""
    other_units = {"bytes": r"[kmgt]i?b", "s": r"ms|us|ns|min|mins|minutes|h|hr|hrs|hours|d|days"}
    units = other_units.get(column.rsplit("_", 1)[-1])
    match = re.search(rf"(?:^|[_ ./(\[-])({units})[)\]]?$", name.strip(), re.IGNORECASE) if units else None
    return match[1] if match else ""


def _plain(name: str) -> str:
    """Normalise a name: `Samples/sec`, `samples per second` and `samples_per_s` become the same."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()) if not name.isupper() else name
    text = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return re.sub(r"_(sec|secs|second|seconds)$", "_s", text)
