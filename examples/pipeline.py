"""A whole pipeline: measure if nothing is known, recommend, run, keep what became of it, retrain when runs drift.

    python examples/pipeline.py job.yaml

Trials and history are in $SIZEWRIGHT_STORE (sizewright.db), learned priors in $SIZEWRIGHT_TRACKING_URI. The bounds of
the job must be such that this host can hold what is recommended.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import sizewright as sw
from sizewright.executors import get_executor


def main() -> None:
    """Raises SizewrightError, with one sentence that says what to do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--samples", type=int, help="train so many, not the job's own")
    parser.add_argument("--plan", default="plan.yaml")
    told = parser.parse_args()
    if told.samples is not None and told.samples < 1:
        parser.error("--samples must be above 0")
    uri = os.environ.get("SIZEWRIGHT_TRACKING_URI", "sqlite:///sizewright-models.db")

    answer = sw.recommend(told.job, tracking_uri=uri)
    if answer.evidence.trials < 2:
        sw.profile(told.job, trials=4, accept_drift=True)
        answer = sw.recommend(told.job, tracking_uri=uri)
    if answer.target is None:
        sys.exit(f"{answer.status}: {' '.join(answer.reasons)}")
    plan = sw.plan(told.job, answer)
    Path(told.plan).write_text(get_executor("local").render(plan), encoding="utf-8")

    outcome = sw.run(plan, samples=told.samples)  # it is kept in the store's history
    print(f"{outcome.status}: {outcome.samples:,} samples in {outcome.duration_s:.0f} s")

    drift = sw.drift(tracking_uri=uri)
    print(drift.reason)
    if drift.drifted:
        print(sw.retrain(tracking_uri=uri).reason)


if __name__ == "__main__":
    try:
        main()
    except sw.SizewrightError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
