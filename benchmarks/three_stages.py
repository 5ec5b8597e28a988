"""The three stages on jobs that really train here, held to their cores by control groups: auto against static.

*static* is the same engine at the same allocation, the samples split into equal contiguous parts, nothing replaced;
*queue* leases them out, and replaces nothing; *auto* is `sizewright run --tune`, which knows what the shipped prior
tells. 4 workers, 3 PS at .75 of their cores; faults come at 20 % of the run, kills at 50 %, with a checkpoint every
10 %. Costs are what is allocated × price over time, twice during a change, with the loop itself.

Each case is run once in every way, the healthy one in eight pairs. Every run is kept at once in
`results/three_stages_runs.jsonl`; `--resume` goes on with what is missing. QUICK=1 runs four cases, one pair each.
Names of cases as arguments run these only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sizewright as sw
from benchmarks._report import QUICK, finish
from benchmarks._stages_cases import CASES, QUICK_CASES, Case, Runs, calibrated, setting_of
from benchmarks._stages_figures import TARGETS, figures_of
from benchmarks._stages_mix import mix
from benchmarks._stages_run import train
from benchmarks._stages_validation import validation
from benchmarks._stages_watch import decisions
from sizewright.spec import Job

KEPT = Path(__file__).parent / "results" / "three_stages_runs.jsonl"


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "decisions": decisions,
    "mix": mix,
    "validation": validation,
}


class Wanted(NamedTuple):
    """A run that is missing."""

    case: Case
    pair: int
    how: str


def main() -> None:
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    path = Path("out/three_stages_quick.jsonl") if QUICK else KEPT
    path.parent.mkdir(exist_ok=True)
    if "--resume" not in sys.argv or QUICK:
        path.write_text("", encoding="utf-8")
    runs = _read(path)
    cases = [case for case in CASES if (case.name in names if names else not QUICK or case.name in QUICK_CASES)]
    for wanted in _missing(cases, runs):
        _measure(wanted, runs, path)
    for name, part in PARTS.items():
        if (name in names if names else not QUICK) and not any(run["case"] == name for run in runs):
            _keep({"case": name, "pair": 0, "how": "simulated", **part()}, runs, path)
    figures, details = figures_of(runs)
    finish("three_stages", figures, TARGETS, details)


def _missing(cases: list[Case], runs: Runs) -> list[Wanted]:
    """Pair by pair, every other one the other way round, so that a host that drifts favours neither; the first pairs of
    all cases come before the second."""
    done = {(run["case"], run["pair"], run["how"]) for run in runs}
    wanted = []
    for pair in range(1 if QUICK else max(case.pairs for case in cases)):
        for case in (case for case in cases if pair < case.pairs):
            hows = case.hows if pair % 2 == 0 else tuple(reversed(case.hows))
            wanted += [Wanted(case, pair, how) for how in hows if (case.name, pair, how) not in done]
    return wanted


def _measure(wanted: Wanted, runs: Runs, path: Path) -> None:
    case = wanted.case
    if not any(run["case"] == f"calibration of {case.family}" for run in runs):
        told = {"case": f"calibration of {case.family}", "pair": 0, "how": "queue"} | calibrated(case.family)
        _keep(told, runs, path)
    known = next(run for run in runs if run["case"] == f"calibration of {case.family}")
    began = time.monotonic()
    foretold = sw.load_prior("shipped").curve(job_of(case, known))
    ran = train(setting_of(case, known)._replace(foretold=foretold), wanted.how)  # type: ignore[arg-type]
    told = {"case": case.name, "pair": wanted.pair, "wall_s": time.monotonic() - began, **ran._asdict()}
    told["decision_s"] = float(np.quantile(ran.decision_s, 0.99)) if ran.decision_s else None
    _keep(told, runs, path)
    print(
        f"{case.name:<18}{wanted.pair} {wanted.how:<7}{ran.status:<10}{ran.jct_s:8.1f} s  cost {ran.cost:.4f}",
        flush=True,
    )
    for change in ran.changes:
        print(f"    {change}", flush=True)


def job_of(case: Case, known: dict[str, float]) -> Job:
    return setting_of(case, known).job


def _keep(told: dict[str, object], runs: Runs, path: Path) -> None:
    runs.append(told)
    with open(path, "a", encoding="utf-8") as kept:
        kept.write(json.dumps(told) + "\n")


def _read(path: Path) -> Runs:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
