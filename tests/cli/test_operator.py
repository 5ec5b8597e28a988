"""`sizewright operator`: one turn on a stand-in for a cluster, its health and metrics, and what installs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from typer.testing import CliRunner

import sizewright as sw
from sizewright.cli.app import app
from sizewright.errors import InputError
from sizewright.operator.labels import SIZED, TRIALS
from tests.helpers.real_servers import free_port
from tests.helpers.stand_in import RATE, StandIn, stand_in
from tests.helpers.suspended_jobs import suspended, suspended_with_ps

DLRM = "name: dlrm\nmodel: {family: dlrm}\nbounds: {worker: {replicas: [1, 4]}, ps: {replicas: [1, 4]}}\n"


@pytest.fixture
def server() -> Iterator[StandIn]:
    pytest.importorskip("kubernetes")
    with stand_in() as server:
        server.changes_suspended = True
        yield server


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["operator", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_one_turn_sizes_a_job_from_the_shipped_prior(server: StandIn, tmp_path: Path) -> None:
    server.create("RayJob", "default", suspended_with_ps("dlrm", DLRM))
    kubeconfig, store = server.kubeconfig(tmp_path), f"sqlite:///{tmp_path}/none.db"
    shown = run("run", "--once", "--dry-run", "--kubeconfig", kubeconfig, "--store", store)
    assert shown.startswith("RayJob default/dlrm: Nothing is changed. Sized to ")
    assert server.objects["RayJob", "default", "dlrm"]["spec"]["suspend"]
    shown = run("run", "--once", "--kubeconfig", kubeconfig, "--store", store)
    assert "samples/s expected" in shown
    document = server.objects["RayJob", "default", "dlrm"]
    assert not document["spec"]["suspend"]
    assert document["metadata"]["annotations"][SIZED] == document["metadata"]["uid"]
    groups = document["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert all(1 <= group["replicas"] <= 4 for group in groups)
    assert run("run", "--once", "--kubeconfig", kubeconfig, "--store", store) == ""
    assert json.loads(run("run", "--once", "--kubeconfig", kubeconfig, "--store", store, "-o", "json")) == []


def test_shares_need_a_cluster(server: StandIn, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--share has no capacity to divide\. Add --cluster with a cluster file\.$"):
        run("run", "--once", "--share", "--kubeconfig", server.kubeconfig(tmp_path))


def test_jobs_share_the_cluster_of_a_file(server: StandIn, tmp_path: Path) -> None:
    for name in ("a", "b"):
        server.create("BatchJob", "default", suspended("job", name))  # two cores each
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("hosts: [{kind: host, cpu: 3, memory: 64Gi}]\n")
    words = ["run", "--once", "--kubeconfig", server.kubeconfig(tmp_path), "--share", "--cluster", str(cluster)]
    shown = run(*words, "--store", f"sqlite:///{tmp_path}/none.db", "-o", "json")
    assert sorted(each["message"][:20] for each in json.loads(shown)) == [
        "It waits for capacit",
        "Its sizes were left ",
    ]
    assert [server.objects["BatchJob", "default", name]["spec"]["suspend"] for name in "ab"].count(True) == 1


def test_trial_jobs_are_measured_into_the_store(server: StandIn, tmp_path: Path) -> None:
    server.create("BatchJob", "default", suspended("job", **{TRIALS: "yes"}))
    store = f"sqlite:///{tmp_path}/trials.db"
    words = ["run", "--once", "--kubeconfig", server.kubeconfig(tmp_path), "--store", store]
    words += ["--without-data", "trials", "--trial-jobs", "2", "--trial-cores", "4"]
    shown = [run(*words), run(*words)]
    assert "Trial 1 of 2 runs as Job default/ctr-" in shown[1]
    for pod in server.pods.values():
        pod["began"] -= 60
    assert "samples/s." in run(*words)
    with sw.open_store(store) as opened:
        (trial,) = opened.trials()
    assert trial.throughput == pytest.approx(trial.workers * RATE, rel=0.01)
    assert (trial.job, trial.status) == ("ctr", "ok")


def test_cluster_that_refuses_fails_a_single_turn(server: StandIn, tmp_path: Path) -> None:
    server.fail("GET", "/jobsets", 403, times=9)
    server.create("BatchJob", "default", suspended("job"))
    with pytest.raises(InputError, match="Not allowed to list JobSets in all namespaces"):
        run("run", "--once", "--kubeconfig", server.kubeconfig(tmp_path))
    assert SIZED in server.objects["BatchJob", "default", "ctr"]["metadata"]["annotations"], "other kinds are handled"


def test_it_leads_serves_and_stops(server: StandIn, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    port = free_port()
    command = [sys.executable, "-m", "sizewright.cli.main", "operator", "run", "--lease-namespace", "here"]
    command += ["--kubeconfig", server.kubeconfig(tmp_path), "--metrics-port", str(port), "--interval", "1s"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        server.create("BatchJob", "default", suspended("job"))
        until = time.monotonic() + 60
        while server.objects["BatchJob", "default", "ctr"]["spec"]["suspend"]:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.1)
        assert urlopen(f"http://127.0.0.1:{port}/healthz").read() == b"ok\n"
        metrics = ""
        while 'sizewright_operator_jobs_total{outcome="left"} 1.0' not in metrics:
            assert time.monotonic() < until, metrics
            metrics = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        assert "sizewright_operator_leads 1.0" in metrics
    finally:
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert stderr == "Stopped.\n"


def test_manifests_run_what_was_asked_for() -> None:
    documents = list(yaml.safe_load_all(run("manifests", "--image", "ours:1", "--namespace", "a", "--", "--recreate")))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "ours:1"
    assert container["command"][-2:] == ["a", "--recreate"]
    (deployment,) = json.loads(run("manifests", "--image", "ours:1", "-o", "json", "--", "--limit", "10m"))["items"][
        -1:
    ]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == ["--limit", "10m"]
    listed = json.loads(run("manifests", "--image", "ours:1", "--namespace", "a", "-o", "json", "--", "--recreate"))
    assert listed["items"] == documents
    assert all(each["metadata"]["name"] for each in documents)
    rules = [rule for each in documents for rule in each.get("rules", [])]
    assert any("delete" in rule["verbs"] for rule in rules)
