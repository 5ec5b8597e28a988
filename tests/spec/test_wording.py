from __future__ import annotations

import re
from pathlib import Path

import sizewright
from sizewright.spec.reason import Reason
from sizewright.spec.wording import (
    _CLAUSES,
    _SENTENCES,
    infeasible_because,
    not_enough_because,
    sentence,
    sentences,
)

_CONSTRUCTED = re.compile(r"Reason\.of\(\s*\"(\w+)\"(?: if [^\"]* else \"(\w+)\")?")


def constructed_kinds() -> set[str]:
    """Return the kinds of reasons that the package constructs."""
    texts = [path.read_text(encoding="utf-8") for path in Path(sizewright.__file__).parent.rglob("*.py")]
    return {kind for text in texts for kinds in _CONSTRUCTED.findall(text) for kind in kinds if kind}


def test_every_kind_that_is_constructed_has_a_sentence_and_no_other_has() -> None:
    assert constructed_kinds() == {*_CLAUSES, *_SENTENCES}


def test_reason_is_the_same_after_json() -> None:
    reason = Reason.of("remedy_failed", remedy="migrate", tries=1, ratio=2.0, absent=None)
    assert Reason.model_validate_json(reason.model_dump_json()) == reason
    assert reason.values == {"remedy": "migrate", "tries": 1, "ratio": 2.0}


def test_sentence_formats_the_values() -> None:
    risk = Reason.of("oom_risk", limit_bytes=2**30, within_s=12.4, probability=0.25)
    enough = Reason.of("ps_memory_enough", ps=2, memory_bytes=3 * 2**30)
    assert sentences((risk, enough)) == (
        "A PS exceeds its limit of 1.0 GiB within 12 s with probability 25 %. 2 PS of 3.0 GiB suffice until the end."
    )
    failed = Reason.of("remedy_failed", remedy="add_worker", tries=1)
    assert sentence(failed) == "Adding a worker was tried 1 time and does not help, so nothing is changed."


def test_sentence_of_a_remedy_without_a_known_end_has_no_seconds() -> None:
    assert sentence(Reason.of("remedy_saves", remedy="migrate", saved_s=30.4)) == "Replacing it saves 30 s."
    assert sentence(Reason.of("remedy_saves", remedy="migrate")) == (
        "Replacing it saves time for as long as the job runs."
    )


def test_clause_is_framed_by_what_it_explains() -> None:
    quota = Reason.of("quota", cluster="c", limit_cores=8.0, limit_gpus=1.0)
    assert sentence(quota) == "The quota of c is 8 cores and 1 GPU."
    ruled_out = quota.adding(cap="quota", ruled_out=1200)
    assert sentence(ruled_out) == "The quota cap ruled out 1,200 allocations: the quota of c is 8 cores and 1 GPU."
    asking = quota.adding(needed_cores=9.5)
    assert infeasible_because(asking) == (
        "Infeasible: the quota of c is 8 cores and 1 GPU, and the smallest allocation asks for 9.5 cores."
    )
    assert not_enough_because(Reason.of("no_trials")) == "Not enough data: there are no trials of this job."


def test_sentence_keeps_the_name_of_a_job_as_it_is() -> None:
    assert sentence(Reason.of("prior_refused", error="my-job is unlike the others")) == "my-job is unlike the others."


def test_hosts_are_described_by_two_limits_that_need_not_be_of_one_host() -> None:
    hosts = Reason.of("hosts", cluster="c", limit_cores=64.0, limit_memory_bytes=float(512 * 2**30))
    assert sentence(hosts) == "The hosts of c cannot hold them (no host has more than 64 cores or more than 512Gi)."


def test_measured_range_says_what_is_not_chosen_on_either_side() -> None:
    varied = Reason.of("measured_range", workers_min=2.0, workers_max=4.0)
    assert sentence(varied) == (
        "Trials (or the prior) cover workers 2 to 4; less than half or more than twice these is not chosen."
    )
    assert sentence(varied.adding(worker_cpu_min=1.0, worker_cpu_max=1.0)).endswith(
        "is not chosen; cores that no trial varied are not lowered."
    )


def test_input_bound_calls_cores_idle_only_where_their_use_was_recorded() -> None:
    bound = Reason.of("input_bound", ceiling=900.0, has_ps=True, trials_with_phases=0, trials_reading=0)
    assert "more workers or PS, whose cores are idle." in sentence(bound.adding(use_recorded=True))
    assert "more workers or PS. More workers" in sentence(bound.adding(use_recorded=False))


def test_text_in_a_value_is_no_template() -> None:
    skipped = Reason.of("not_observed", error="{samples} is not a number")
    assert sentence(skipped) == "Skipped: the job cannot be observed ({samples} is not a number)."


def test_similar_jobs_of_a_warm_start_are_named_with_their_weights() -> None:
    warm = Reason.of("warm_start", runs=9, jobs=3)
    named = warm.adding_each("job", [{"name": "a", "weight": 0.5}, {"name": "b", "weight": 0.3}])
    assert sentence(named) == "Warm start from 9 runs of 3 similar jobs: a (50 %), b (30 %) and 1 more."


def test_contradicting_trials_are_named_with_their_allocations() -> None:
    conflict = {"workers": 2, "ps": 1, "worker_cpu": 0.5, "lower": 1000.0, "upper": 4000.0}
    wide = Reason.of("interval_too_wide", ratio=12.0, extrapolated=False, conflicts=2)
    assert sentence(wide.adding_each("conflict", [conflict])) == (
        "The 90 % interval of the best allocation spans a factor of 12, since trials contradict each other: "
        "(workers 2, PS 1, cores per worker 0.5) measured 1,000 to 4,000 samples/s; and 1 more."
    )


def test_long_values_of_keys_are_shortened() -> None:
    similar = Reason.of("similar_job_in_store", trials=1, job="ctr", different_keys=1)
    keys = similar.adding_each("key", [{"name": "model.tables.rows", "stored": "1 " * 40, "asked": None}])
    assert "model.tables.rows (1 1 1" in sentence(keys)
    assert sentence(keys).endswith("1… there, none here).")
