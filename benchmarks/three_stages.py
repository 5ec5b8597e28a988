"""The three stages on jobs that really train, with their cores limited by control groups: auto against static.

*static* is the same engine at the same allocation: the samples are split into equal contiguous parts, and nothing is
replaced. *queue* leases the samples and replaces nothing. *auto* is `sizewright run --tune` with the shipped prior. The
job has 4 workers and 3 PS, which use .75 of their cores; xDeepFM has work for one PS only. In `hot_ps` one of three
busy PS gets 77 % of the look-ups of a job whose dense layers are small, so that look-ups are most of its work. Faults
occur at 20 % of the run and kills at 50 %, with a checkpoint every 10 %. The cost is allocated resources × price over
time. It counts both allocations during a change, and includes the loop itself.

Each case runs once in every way, and the healthy one in eight pairs. Every run is kept at once in
`results/three_stages_runs.jsonl`, and `--resume` runs only what is missing. QUICK=1 runs three cases for a fifth of the
time, one pair each, and smaller mixes. Names of cases as arguments select these cases.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import sizewright as sw
from benchmarks._kept_rows import KeptRows
from benchmarks._report import QUICK, finish
from benchmarks._stages_cases import CASES, QUICK_CASES, Case, Runs, calibrated, setting_of
from benchmarks._stages_figures import TARGETS, figures_of
from benchmarks._stages_mix import mix
from benchmarks._stages_run import train
from benchmarks._stages_validation import validation
from benchmarks._stages_watch import decisions
from sizewright.spec import Job

PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "decisions": decisions,
    "mix": mix,
    "validation": validation,
}


class MissingRun(NamedTuple):
    """A run that is not yet kept."""

    case: Case
    pair: int
    how: str


def main() -> None:
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    kept = KeptRows("three_stages")
    runs = kept.rows
    cases = [case for case in CASES if (case.name in names if names else not QUICK or case.name in QUICK_CASES)]
    for missing in _missing(cases, runs):
        _measure(missing, kept)
    for name, part in PARTS.items():
        if (not names or name in names) and not any(run["case"] == name for run in runs):
            kept.add({"case": name, "pair": 0, "how": "simulated", **part()})
    figures, details = figures_of(runs)
    finish("three_stages", figures, TARGETS, details)


def _missing(cases: list[Case], runs: Runs) -> list[MissingRun]:
    """Return the missing runs pair by pair, the first pairs of all cases before the second ones.

    Every other pair has the reverse order, so that drift of the host favours neither way.
    """
    done = {(run["case"], run["pair"], run["how"]) for run in runs}
    missing = []
    for pair in range(1 if QUICK else max((case.pairs for case in cases), default=0)):
        for case in (case for case in cases if pair < case.pairs):
            hows = case.hows if pair % 2 == 0 else tuple(reversed(case.hows))
            missing += [MissingRun(case, pair, how) for how in hows if (case.name, pair, how) not in done]
    return missing


def _measure(missing: MissingRun, kept: KeptRows) -> None:
    case = missing.case
    if not any(run["case"] == case.calibration for run in kept.rows):
        kept.add({"case": case.calibration, "pair": 0, "how": "queue", **calibrated(case)})
    calibration = next(run for run in kept.rows if run["case"] == case.calibration)
    began = time.monotonic()
    prior_curve = sw.load_prior("shipped").curve(job_of(case, calibration))
    ran = train(setting_of(case, calibration)._replace(prior_curve=prior_curve), missing.how)  # type: ignore[arg-type]
    row = {"case": case.name, "pair": missing.pair, "wall_s": time.monotonic() - began, **ran._asdict()}
    row["decision_s"] = float(np.quantile(ran.decision_s, 0.99)) if ran.decision_s else None
    kept.add(row)
    print(
        f"{case.name:<18}{missing.pair} {missing.how:<7}{ran.status:<10}{ran.jct_s:8.1f} s  cost {ran.cost:.4f}",
        flush=True,
    )
    for change in ran.changes:
        print(f"    {change}", flush=True)


def job_of(case: Case, calibration: dict[str, float]) -> Job:
    return setting_of(case, calibration).job


if __name__ == "__main__":
    main()
