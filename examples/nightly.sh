#!/bin/sh
# A nightly job for a scheduler, for instance cron:
#
#   0 3 * * *  STORE=/srv/ctr/trials.db URI=http://mlflow:5000 PROMETHEUS=http://prometheus:9090 /srv/ctr/nightly.sh
#
# It imports the runs of the last two days into the history, without duplicates, and retrains the prior if runs have
# drifted. A second start at the same time is refused. Let the scheduler report exit codes other than 0.
set -eu
if [ -n "${PROMETHEUS:-}" ]; then
    sizewright history prometheus "$PROMETHEUS" --since 48h --store "$STORE" ${JOB:+--job "$JOB"}
fi
sizewright retrain --if-drifted --store "$STORE" --tracking-uri "$URI"
