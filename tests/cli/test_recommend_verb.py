import gzip
import json
import re

import pytest
import yaml
from jsonschema import validate

from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.datasets.trials.store import TrialStore
from sizewright.spec import Allocation, Job, Outcome, Plan, Recommendation


def test_table_marks_the_chosen_row_and_names_its_evidence(call, example, store):
    result = call("recommend", example, "--store", store)
    assert result.code == 0
    assert result.out.count("→") == 1
    assert "Based on 8 trials" in result.out
    assert "What to ask for" in result.out


def test_remedies_name_the_job_file(call, example, tmp_path):
    TrialStore(tmp_path / "empty.db").close()
    result = call("recommend", example, "--store", tmp_path / "empty.db")
    assert result.code == 4
    assert f"sizewright profile {example}" in " ".join(result.out.split())


def test_remedies_repeat_the_options_that_choose_store_and_data(call, example, tmp_path):
    store, data = tmp_path / "my trials.db", tmp_path / "clicks-JOB.gz"
    data.write_bytes(gzip.compress("\t".join(["0"] + ["1"] * 13 + ["a1"] * 26).encode() + b"\n"))
    TrialStore(store).close()
    options = ("--store", store, "--data", data, "--samples", 5000)
    result = call("recommend", example, *options, "-o", "json")
    assert result.code == 4
    texts = [remedy["text"] for remedy in json.loads(result.out)["remedies"]]
    options = f"--store '{store}' --data {data}"
    assert texts == [
        f"Run: sizewright profile {example} {options} --trials 9.",
        "Or use the prior learned from other jobs: "
        f"sizewright recommend {example} {options} --samples 5000 --prior shipped.",
        f"Or import measurements of your own: sizewright trials import FILE --job {example} --store '{store}'.",
    ]


def test_rows_that_differ_in_an_unknown_column_are_kept(call, example, tmp_path):
    text = "workers,ps,throughput,seed\n1,1,100.123,1\n1,1,100.123,2\n1,1,100.123,2\n"
    result = call("recommend", example, "--trials", _csv(tmp_path, text), "-o", "json")
    assert json.loads(result.out)["evidence"]["trials"] == 2
    assert result.err.count("copy of another row") == 1


def test_json_is_the_published_object(call, example, store):
    result = call("recommend", example, "--store", store, "-o", "json")
    recommendation = json.loads(result.out)
    assert recommendation["schema"] == "sizewright/recommendation/v1"
    assert recommendation["status"] == "ok"
    assert list(recommendation["target"]["worker"][0]) == ["replicas", "cpu", "memory_bytes", "gpu"]
    assert recommendation["evidence"]["trials"] == 8
    assert sum(row["chosen"] for row in recommendation["alternatives"]) == 1
    schema = json.loads(call("schema", "recommendation").out)
    validate(recommendation, schema)


def test_warm_start_names_the_jobs_that_it_used(call, example, tmp_path):
    store, job = tmp_path / "runs.db", Job.load(example)
    alike = job.model_copy(update={"name": "ads-a"}).with_batch_size(2 * job.training.batch_size)
    allocation = Allocation.of(2, 1, 0.5, 0.3, alike.training.batch_size)
    stretch = Segment(at_s=0, duration_s=60, samples=10**6, allocation=allocation)
    run = FinishedJob(id="1", name="ads-a", job=alike, stretches=(stretch,), outcome=Outcome(status="finished"))
    with TrialStore(store) as opened:
        opened.history.add([run])
    args = ("recommend", example, "--store", store, "--prior", "shipped")
    assert "Warm start from 1 run of 1 similar job: ads-a (100 %)." in " ".join(call(*args).out.split())
    (used,) = json.loads(call(*args, "-o", "json").out)["evidence"]["similar"]
    assert (used["name"], used["runs"], used["weight"]) == ("ads-a", 1, 1.0)
    cold = call("recommend", example, "--store", tmp_path / "none.db", "--prior", "shipped")
    assert "Cold start" in cold.out


def test_yaml_and_json_say_the_same(call, example, store):
    as_json = json.loads(call("recommend", example, "--store", store, "-o", "json").out)
    as_yaml = yaml.safe_load(call("recommend", example, "--store", store, "-o", "yaml").out)
    assert as_yaml == as_json


def test_out_writes_a_plan_that_loads(call, example, store, tmp_path):
    path = tmp_path / "plans" / "plan.yaml"
    result = call("recommend", example, "--store", store, "--out", path)
    assert result.code == 0
    assert str(path) in result.err
    plan = Plan.load(path)
    assert plan.job == Job.load(example)
    recommendation = Recommendation.model_validate_json(call("recommend", example, "--store", store, "-o", "json").out)
    assert plan.target == recommendation.target


def test_executor_without_out_prints_the_manifest(call, example, store):
    result = call("recommend", example, "--store", store, "--executor", "dlrover")
    manifest = yaml.safe_load(result.out)
    assert manifest["kind"] == "ElasticJob"


def test_vpa_is_the_status_of_an_autoscaler(call, example, store, tmp_path):
    status = yaml.safe_load(call("recommend", example, "--store", store, "-o", "vpa").out)
    containers = status["recommendation"]["containerRecommendations"]
    assert [container["containerName"] for container in containers] == ["worker", "ps"]
    assert containers[0].keys() >= {"target", "lowerBound", "upperBound", "uncappedTarget"}
    result = call("recommend", example, "--store", store, "-o", "vpa", "--executor", "jobset")
    assert (result.code, result.out) == (1, "")
    assert "-o vpa is a format of the recommendation, not of a manifest" in result.err
    trials = tmp_path / "one.csv"
    trials.write_text("workers,ps,worker_cpu,ps_cpu,throughput\n1,1,1,1,1000\n")
    result = call("recommend", example, "--trials", trials, "-o", "vpa")
    assert (result.code, result.out) == (4, "")
    assert "not enough data" in result.err


def test_base_manifest_is_changed_only_in_its_sizes(call, example, store, tmp_path):
    base = tmp_path / "base.yaml"
    manifest = call("recommend", example, "--store", store, "--executor", "kubeflow").out
    base.write_text(manifest.replace("image: ", "image: mine/").replace("spec:\n", "spec:  # mine\n", 1))
    result = call("recommend", example, "--store", store, "--executor", "kubeflow", "--base", base)
    assert result.out.count("mine/") == base.read_text().count("mine/") > 0
    assert "spec:  # mine" in result.out
    assert "such as --executor" in call("recommend", example, "--store", store, "--base", base).err


@pytest.mark.parametrize("executor", ["dlrover", "kubeflow", "kuberay", "volcano"])
def test_manifest_without_secrets_is_printed_as_it_is(call, example, store, executor):
    printed = call("recommend", example, "--store", store, "--executor", executor, "-o", "yaml").out
    assert printed.startswith("# ")
    assert "***" not in printed


def test_secrets_of_a_base_are_hidden_in_json_and_yaml(call, example, store, tmp_path):
    args = ("recommend", example, "--store", store, "--executor", "kubeflow")
    manifest = yaml.safe_load(call(*args).out)
    manifest["metadata"]["labels"] = {"api_key": 12345678, "mode": "fast"}
    manifest["metadata"]["annotations"] = {"password": 'a"b', "record": '{"password": "a\\"b"}'}
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump(manifest))
    args = (*args, "--base", base)
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        result = call(*args, "-o", form)
        metadata = read(result.out)["metadata"]
        assert metadata["labels"] == {"api_key": "***", "mode": "fast"}
        assert metadata["annotations"]["password"] == "***"
        assert json.loads(metadata["annotations"]["record"]) == {"password": "***"}
        assert "Pass --out FILE" in " ".join(result.err.split())
    assert "12345678" in call(*args).out


def test_not_enough_data_exits_4_with_numbered_remedies(call, example, tmp_path):
    store = tmp_path / "t.db"
    assert call(
        "trials", "import", _csv(tmp_path, "workers,ps,throughput\n1,1,100\n"), "--store", store, "--job", example
    )
    result = call("recommend", example, "--store", store)
    assert result.code == 4
    assert "1. " in result.out


def test_infeasible_exits_3(call, example, store, tmp_path):
    text = example.read_text().replace("ps: {replicas: [1, 3], cpu: [0.1, 1], memory: [256Mi, 4Gi]}",
                                       "ps: {replicas: 1, cpu: [0.1, 1], memory: [16Mi, 32Mi]}")  # fmt: skip
    small = tmp_path / "small.yaml"
    small.write_text(text)
    result = call("recommend", small, "--store", store, "-o", "json")
    assert result.code == 3
    recommendation = json.loads(result.out)
    assert recommendation["status"] == "infeasible"
    assert recommendation["remedies"][0]["number"] == 1


def test_recommendation_stays_within_the_quota_of_the_cluster_file(call, example, store, tmp_path):
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("hosts: [{kind: a, count: 4, cpu: 8, memory: 32Gi}]\nquota: {cpu: 3}\n")
    recommendation = json.loads(call("recommend", example, "--store", store, "--cluster", cluster, "-o", "json").out)
    target = recommendation["target"]
    assert sum(g["replicas"] * g["cpu"] for role in ("worker", "ps") for g in target[role]) <= 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["recommend", "missing.yaml"], "No job file"),
        (["recommend", "{example}", "--store", "none.db"], "sizewright profile"),
        (["recommend", "{example}", "--store", "{store}", "--executor", "nomad"], "dlrover, file, jobset"),
        (["recommend", "{example}", "--store", "{store}", "--deadline", "soon"], "deadline"),
        (["recommend", "{example}", "--store", "{store}", "--cluster", "nowhere.yaml"], "No cluster file"),
        (["recommend", "{example}", "--trials", "nowhere.csv"], "nowhere.csv"),
        (["recommend", "{example}", "--store", "{store}", "--data", "nowhere.tsv", "--out", "/proc/nope/x"], "nowhere"),
        (["profile", "{example}", "--store", "{text}"], "store"),
    ],
)
def test_invalid_input_gives_one_sentence_and_an_exit_code(call, example, store, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to look at\n" * 20)
    result = call(*(a.format(example=example, store=store, text=text) for a in args))
    assert result.code in (1, 4)
    assert message in result.err + result.out
    assert "Traceback" not in result.err
    assert len(result.err.strip().splitlines()) <= 2


def test_usage_errors_exit_2(call):
    assert call("recommend").code == 2
    assert call("frobnicate").code == 2


def _csv(folder, text):
    path = folder / "mine.csv"
    path.write_text(text)
    return path


def test_samples_option_replaces_the_samples_of_the_job(call, example, store):
    def prediction(*options):
        return json.loads(call("recommend", example, "--store", store, *options, "-o", "json").out)["predicted"]

    default, million = prediction(), prediction("--samples", "1M")
    rate = default["throughput"]["value"]
    assert million["completion_time_s"]["value"] == pytest.approx(1e6 / rate)
    assert million["cost"]["value"] < default["cost"]["value"]
    assert million["price_per_hour"] == default["price_per_hour"]
    assert call("recommend", example, "--store", store, "--samples", "none").code == 2


_HOSTS = """
hosts:
- {kind: small, count: 10, cpu: 2, memory: 8Gi, price_hour: 0.1, spot_price_hour: 0.03, interruptions_hour: 0.1}
- {kind: big, count: 2, cpu: 16, memory: 64Gi, price_hour: 0.77}
"""


@pytest.fixture
def hosts(tmp_path):
    path = tmp_path / "hosts.yaml"
    path.write_text(_HOSTS)
    return path


@pytest.fixture
def saved(example, tmp_path):
    """Return the example with checkpoints; its trials are the same."""
    path = tmp_path / "saved.yaml"
    path.write_text(example.read_text().replace("training:\n", "training:\n  checkpoint: 30m\n"))
    assert Job.load(path).hash == Job.load(example).hash
    return path


def _machines(result):
    assert result.code == 0, result.err
    return [(m["kind"], m["spot"], m["chosen"]) for m in json.loads(result.out)["machines"]]


def test_cheaper_spot_hosts_are_recommended(call, saved, store, hosts, tmp_path):
    args = ("recommend", saved, "--store", store, "--cluster", hosts, "--objective", "cost", "--samples", "1G")
    result = call(*args)
    text = " ".join(result.out.split())
    assert "On which hosts" in text
    assert re.search(r"The job costs [\d.]+ \([\d.]+ to [\d.]+\) on \d+ spot hosts? of small; [\d.]+ on", text)
    assert _machines(call(*args, "-o", "json"))[0] == ("small", True, True)
    plan = tmp_path / "plan.yaml"
    call(*args, "--out", plan)
    assert (Plan.load(plan).machines.kind, Plan.load(plan).machines.spot) == ("small", True)


def test_dearer_spot_hosts_are_not_recommended(call, saved, store, hosts):
    hosts.write_text(_HOSTS.replace("spot_price_hour: 0.03", "spot_price_hour: 0.1"))
    args = ("recommend", saved, "--store", store, "--cluster", hosts, "--objective", "cost", "-o", "json")
    rows = _machines(call(*args))
    assert rows[0] == ("small", False, True)
    assert ("small", True, False) in rows


def test_deadline_is_told_with_its_probability_and_rules_slow_spot_hosts_out(call, saved, store, hosts):
    hosts.write_text(_HOSTS.replace("interruptions_hour: 0.1", "interruptions_hour: 2"))
    args = ("recommend", saved, "--store", store, "--cluster", hosts, "--samples", "1G", "--machine", "small")
    fastest = json.loads(call(*args, "--objective", "time", "-o", "json").out)["predicted"]
    deadline = f"{1.05 * fastest['completion_time_s']['upper']:.0f}s"
    kept = call(*args, "--deadline", deadline)
    assert "done within" in " ".join(kept.out.split())
    assert "on demand" in kept.out.split("Cost is that of")[1].splitlines()[0]
    refused = call(*args, "--deadline", deadline, "--spot")
    assert refused.code == 3
    assert "the earliest completion with 90 % probability" in " ".join(refused.out.split())


def test_machine_and_market_can_be_chosen(call, saved, store, hosts):
    args = ("recommend", saved, "--store", store, "--cluster", hosts, "-o", "json")
    assert _machines(call(*args, "--machine", "big")) == [("big", False, True)]
    assert _machines(call(*args, "--spot")) == [("small", True, True)]
    assert [spot for _, spot, _ in _machines(call(*args, "--on-demand"))] == [False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--spot"], "Spot hosts are refused for criteo-dlrm, since it is not checkpointed"),
        (["--spot", "--machine", "big"], "Spot hosts are refused"),
        (["--machine", "huge"], "has no hosts of kind huge. Choose one of: small, big."),
    ],
)
def test_hosts_that_cannot_be_used_are_refused_in_one_sentence(call, example, store, hosts, options, message):
    result = call("recommend", example, "--store", store, "--cluster", hosts, *options)
    assert (result.code, result.out) == (1, "")
    assert message in " ".join(result.err.split())


def test_missing_spot_price_and_missing_cluster_are_told(call, saved, store, hosts):
    result = call("recommend", saved, "--store", store, "--cluster", hosts, "--spot", "--machine", "big")
    assert result.code == 1
    assert "No spot price is known of big." in result.err
    alone = call("recommend", saved, "--store", store, "--spot")
    assert alone.code == 1
    assert "there is no cluster file" in alone.err
    unsaved = call("recommend", saved, "--store", store, "--cluster", hosts, "--machine", "small", "-o", "yaml")
    assert unsaved.code == 0
