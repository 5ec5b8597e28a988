"""A complete pipeline: profile if there are too few trials, recommend, run, record the run, retrain after drift.

    python examples/pipeline.py job.yaml

Trials and history are in $SIZEWRIGHT_STORE (default: sizewright.db), learned priors in $SIZEWRIGHT_TRACKING_URI. Choose
the bounds of the job such that any allocation within them fits this host.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import sizewright as sw
from sizewright.executors import get_executor


def main() -> None:
    """Run the pipeline. Raises SizewrightError, whose message ends with a remedy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--samples", type=int, help="number of samples to train; default: those of the job file")
    parser.add_argument("--plan", default="plan.yaml")
    args = parser.parse_args()
    if args.samples is not None and args.samples < 1:
        parser.error(f"--samples must be above 0, got {args.samples}.")
    uri = os.environ.get("SIZEWRIGHT_TRACKING_URI", "sqlite:///sizewright-models.db")

    answer = sw.recommend(args.job, tracking_uri=uri)
    if answer.evidence.trials < 2:
        sw.profile(args.job, trials=4, accept_drift=True)
        answer = sw.recommend(args.job, tracking_uri=uri)
    if answer.target is None:
        sys.exit(f"{answer.status}: {' '.join(answer.reasons)}")
    plan = sw.plan(args.job, answer)
    Path(args.plan).write_text(get_executor("local").render(plan), encoding="utf-8")

    outcome = sw.run(plan, samples=args.samples)  # recorded in the history of the store
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
