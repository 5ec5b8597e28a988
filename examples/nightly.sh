#!/bin/sh
# What a scheduler runs at night, for instance cron:
#
#   0 3 * * *  STORE=/srv/ctr/trials.db URI=http://mlflow:5000 PROMETHEUS=http://prometheus:9090 /srv/ctr/nightly.sh
#
# Runs of the last two days come into the history, each once; the prior is learned anew where runs have drifted. A second
# start meanwhile is refused. Exits other than 0 are for the scheduler to tell of.
set -eu
if [ -n "${PROMETHEUS:-}" ]; then
    sizewright history prometheus "$PROMETHEUS" --since 48h --store "$STORE" ${JOB:+--job "$JOB"}
fi
sizewright retrain --if-drifted --store "$STORE" --tracking-uri "$URI"
