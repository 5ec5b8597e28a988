"""The public functions: record in, record out. Here the parts are put together."""

from __future__ import annotations

from sizewright.api.allocating import allocate
from sizewright.api.applying import Application, apply, manifest
from sizewright.api.inputs import (
    DEFAULT_STORE,
    STORE_VARIABLE,
    JobLike,
    assign_job,
    check_log,
    counted,
    job_hash,
    load_job,
    open_store,
)
from sizewright.api.priors import (
    DEFAULT_TRACKING,
    SHIPPED_BANK,
    SHIPPED_PRIOR,
    TRACKING_VARIABLE,
    compare_priors,
    drift,
    learn_prior,
    load_prior,
    measure_bank,
    open_registry,
    retrain,
)
from sizewright.api.running import (
    LOCALHOST,
    run,
    tune,
)
from sizewright.api.simulating import simulate
from sizewright.api.sizing import (
    memory,
    plan,
    profile,
    recommend,
)

__all__ = [
    "DEFAULT_STORE",
    "DEFAULT_TRACKING",
    "LOCALHOST",
    "SHIPPED_BANK",
    "SHIPPED_PRIOR",
    "STORE_VARIABLE",
    "TRACKING_VARIABLE",
    "Application",
    "JobLike",
    "allocate",
    "apply",
    "assign_job",
    "check_log",
    "compare_priors",
    "counted",
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
    "plan",
    "profile",
    "recommend",
    "retrain",
    "run",
    "simulate",
    "tune",
]
