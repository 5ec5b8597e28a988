"""Size the training jobs of deep learning recommendation models::

    import sizewright as sw
    sw.profile("job.yaml")
    print(sw.recommend("job.yaml").to_json())

Names are loaded on first use, so that importing the package stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    __version__: str
    from sizewright import skypilot
    from sizewright.api import (
        allocate,
        apply,
        calibrate_torchrec,
        compare_priors,
        doctor,
        drift,
        learn_prior,
        load_job,
        load_prior,
        measure_bank,
        memory,
        open_store,
        place_tables,
        plan,
        predict,
        profile,
        recommend,
        report,
        retrain,
        run,
        run_queue,
        simulate,
        tune,
    )
    from sizewright.datasets.trials.trial import Trial
    from sizewright.errors import SizewrightError
    from sizewright.progress import log_samples
    from sizewright.spec import Allocation, Cluster, Job, MemoryReport, Outcome, Plan, Recommendation

_HOMES = {
    "__version__": "sizewright.lazy_exports",
    "Allocation": "sizewright.spec",
    "Cluster": "sizewright.spec",
    "Job": "sizewright.spec",
    "MemoryReport": "sizewright.spec",
    "Outcome": "sizewright.spec",
    "Plan": "sizewright.spec",
    "Recommendation": "sizewright.spec",
    "SizewrightError": "sizewright.errors",
    "Trial": "sizewright.datasets.trials.trial",
    "allocate": "sizewright.api",
    "apply": "sizewright.api",
    "calibrate_torchrec": "sizewright.api",
    "compare_priors": "sizewright.api",
    "doctor": "sizewright.api",
    "drift": "sizewright.api",
    "learn_prior": "sizewright.api",
    "load_job": "sizewright.api",
    "load_prior": "sizewright.api",
    "log_samples": "sizewright.progress",
    "measure_bank": "sizewright.api",
    "memory": "sizewright.api",
    "open_store": "sizewright.api",
    "place_tables": "sizewright.api",
    "plan": "sizewright.api",
    "predict": "sizewright.api",
    "profile": "sizewright.api",
    "recommend": "sizewright.api",
    "report": "sizewright.api",
    "retrain": "sizewright.api",
    "run": "sizewright.api",
    "run_queue": "sizewright.api",
    "simulate": "sizewright.api",
    "skypilot": "sizewright.skypilot",
    "tune": "sizewright.api",
}

__all__ = [
    "Allocation",
    "Cluster",
    "Job",
    "MemoryReport",
    "Outcome",
    "Plan",
    "Recommendation",
    "SizewrightError",
    "Trial",
    "allocate",
    "apply",
    "calibrate_torchrec",
    "compare_priors",
    "doctor",
    "drift",
    "learn_prior",
    "load_job",
    "load_prior",
    "log_samples",
    "measure_bank",
    "memory",
    "open_store",
    "place_tables",
    "plan",
    "predict",
    "profile",
    "recommend",
    "report",
    "retrain",
    "run",
    "run_queue",
    "simulate",
    "skypilot",
    "tune",
]

if not TYPE_CHECKING:  # a type checker uses the imports above
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
