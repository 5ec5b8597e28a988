"""The public functions, which take records and return records. This package combines all other parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.api._records import JobLike
    from sizewright.api.allocating import allocate
    from sizewright.api.applying import apply, manifest, remarks_on
    from sizewright.api.calibrating import calibrate_torchrec
    from sizewright.api.checking import doctor
    from sizewright.api.inputs import assign_job, check_log, counted_job, job_hash, load_job, open_store
    from sizewright.api.placing import place_tables
    from sizewright.api.priors import (
        SHIPPED_BANK,
        SHIPPED_PRIOR,
        compare_priors,
        drift,
        learn_prior,
        load_prior,
        measure_bank,
        open_registry,
        retrain,
    )
    from sizewright.api.reporting import report
    from sizewright.api.running import LOCALHOST, run, run_queue, tune
    from sizewright.api.simulating import simulate
    from sizewright.api.sizing import memory, plan, predict, profile, recommend
    from sizewright.settings import DEFAULT_STORE, DEFAULT_TRACKING, STORE_VARIABLE, TRACKING_VARIABLE

_NAMES = {
    "sizewright.api._records": ("JobLike",),
    "sizewright.api.allocating": ("allocate",),
    "sizewright.api.applying": ("apply", "manifest", "remarks_on"),
    "sizewright.api.calibrating": ("calibrate_torchrec",),
    "sizewright.api.checking": ("doctor",),
    "sizewright.api.inputs": ("assign_job", "check_log", "counted_job", "job_hash", "load_job", "open_store"),
    "sizewright.api.placing": ("place_tables",),
    "sizewright.api.priors": (
        "SHIPPED_BANK", "SHIPPED_PRIOR", "compare_priors", "drift", "learn_prior", "load_prior", "measure_bank",
        "open_registry", "retrain",
    ),
    "sizewright.api.reporting": ("report",),
    "sizewright.api.running": ("LOCALHOST", "run", "run_queue", "tune"),
    "sizewright.api.simulating": ("simulate",),
    "sizewright.api.sizing": ("memory", "plan", "predict", "profile", "recommend"),
    "sizewright.settings": ("DEFAULT_STORE", "DEFAULT_TRACKING", "STORE_VARIABLE", "TRACKING_VARIABLE"),
}  # fmt: skip
"""Modules with their public names. They are imported on first use: each verb needs a few of them."""

__all__ = [
    "DEFAULT_STORE",
    "DEFAULT_TRACKING",
    "LOCALHOST",
    "SHIPPED_BANK",
    "SHIPPED_PRIOR",
    "STORE_VARIABLE",
    "TRACKING_VARIABLE",
    "JobLike",
    "allocate",
    "apply",
    "assign_job",
    "calibrate_torchrec",
    "check_log",
    "compare_priors",
    "counted_job",
    "doctor",
    "drift",
    "job_hash",
    "learn_prior",
    "load_job",
    "load_prior",
    "manifest",
    "measure_bank",
    "memory",
    "open_registry",
    "open_store",
    "place_tables",
    "plan",
    "predict",
    "profile",
    "recommend",
    "remarks_on",
    "report",
    "retrain",
    "run",
    "run_queue",
    "simulate",
    "tune",
]

if not TYPE_CHECKING:  # a type checker uses the imports above
    __getattr__, __dir__ = lazy_exports(__name__, {name: module for module, names in _NAMES.items() for name in names})
