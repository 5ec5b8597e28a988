"""Which column of ours a column of a user's table is: by its name, by a known synonym, or as they say."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sizewright.datasets._columns import COLUMNS
from sizewright.errors import InputError, StoreError


class Known(NamedTuple):
    """A table of ours: what it is called, and its column by each name that people give it."""

    what: str
    columns: tuple[str, ...]
    means: Mapping[str, str]

    def meaning(self, name: str) -> str | None:
        """The column that a name stands for."""
        plain = _plain(name)
        base = plain.removesuffix("_max") if "memory" in plain else _AVERAGED.sub("", plain)
        return self.means.get(plain) or self.means.get(base)


def known(what: str, columns: Sequence[str], synonyms: Mapping[str, str]) -> Known:
    """A table whose columns have these synonyms, blanks between them."""
    means = {name: column for column, names in synonyms.items() for name in names.split()}
    return Known(what, tuple(columns), means | {column: column for column in columns})


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
_CLOSE = 0.75


class Columns(NamedTuple):
    """How the columns of a file are read."""

    read_as: dict[str, str]
    """Our column by that of the file."""
    left_out: tuple[str, ...]
    of: Known = TRIALS

    @property
    def renamed(self) -> dict[str, str]:
        """Those that the file calls otherwise."""
        return {theirs: ours for theirs, ours in self.read_as.items() if theirs != ours}

    def describe(self) -> str:
        """In one or two sentences; empty where the file has our names."""
        parts = []
        if self.renamed:
            parts.append(f"Read {', '.join(f'{theirs} as {ours}' for theirs, ours in self.renamed.items())}.")
        if self.left_out:
            free = [column for column in self.of.columns if column not in self.read_as.values()]
            parts.append(f"Left out: {', '.join(_with_hint(name, free) for name in self.left_out)}.")
        return " ".join(parts)


def meaning(name: str) -> str | None:
    """The column of the trial table that a name stands for."""
    return TRIALS.meaning(name)


def read_mapping(words: Sequence[str]) -> dict[str, str]:
    """`samples_per_sec=throughput` of a command line. Raises InputError for what is no pair."""
    pairs = [word.rpartition("=") for word in words]
    for word, (theirs, _, _) in zip(words, pairs, strict=True):
        if not theirs:
            raise InputError(f"--map {word} is not a pair of columns.", "Write --map samples_per_sec=throughput.")
    return {theirs.strip(): ours.strip() for theirs, _, ours in pairs}


def match_columns(names: Sequence[str], mapping: Mapping[str, str], path: str, of: Known = TRIALS) -> Columns:
    """Match each column of a file; an empty name in `mapping` leaves one out. Raises StoreError."""
    _check_mapping(names, mapping, path, of)
    read_as = {theirs: ours for theirs, ours in mapping.items() if ours}
    for exact in (True, False):  # a column's own name goes before what else could stand for it
        for name in names:
            ours = name if exact and name in of.columns else None if exact else of.meaning(name)
            if name in mapping or name in read_as or not ours:
                continue
            if ours not in read_as.values():
                read_as[name] = ours
            elif not exact and read_as.get(ours) != ours and ours not in mapping.values():
                other = next(theirs for theirs, column in read_as.items() if column == ours)
                raise StoreError(
                    f"{path}: {other} and {name} both look like {ours}.", f"Say which is: --map {name}={ours}."
                )
    left_out = tuple(name for name in names if name and name not in read_as)
    return Columns({name: read_as[name] for name in names if name in read_as}, left_out, of)


def _check_mapping(names: Sequence[str], mapping: Mapping[str, str], path: str, of: Known) -> None:
    for theirs, ours in mapping.items():
        if theirs not in names:
            raise StoreError(f"{path} has no column {theirs!r}.", f"It has: {', '.join(filter(None, names))}.")
        if ours in of.columns and (unit := _other_unit(theirs, ours)):
            raise StoreError(
                f"{theirs} is in {unit}, and {ours} is not.",
                f"Write its unit into the cells, such as 5000{unit}, or convert it; then map it.",
            )
        if ours and ours not in of.columns:
            close = difflib.get_close_matches(ours, of.columns, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"It has: {', '.join(of.columns)}."
            raise StoreError(f"The {of.what} has no column {ours!r}.", hint)
    if twice := [ours for ours in mapping.values() if ours and list(mapping.values()).count(ours) > 1]:
        raise StoreError(f"Two columns are mapped to {twice[0]}.", "Map one of them.")


def _with_hint(name: str, free: Sequence[str]) -> str:
    close = difflib.get_close_matches(_plain(name), free, n=1, cutoff=_CLOSE)
    return f"{name} (--map {name}={close[0]} reads it)" if close and not _other_unit(name, close[0]) else name


def _other_unit(theirs: str, ours: str) -> str:
    """The unit that a name ends in, where the column that it is to be is in bytes or seconds; else nothing."""
    of = {"bytes": r"[kmgt]i?b", "s": r"ms|us|ns|min|mins|minutes|h|hr|hrs|hours|d|days"}.get(ours.rsplit("_", 1)[-1])
    found = re.search(rf"(?:^|[_ ./(\[-])({of})[)\]]?$", theirs.strip(), re.IGNORECASE) if of else None
    return found[1] if found else ""


def _plain(name: str) -> str:
    """`Samples/sec`, `samples per second` and `samples_per_s` are one name."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()) if not name.isupper() else name
    text = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return re.sub(r"_(sec|secs|second|seconds)$", "_s", text)
