"""History in PostgreSQL, pods and runs out of a Prometheus, and retraining against an MLflow server: all real."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.runs.pod_history import CPU, MEMORY, MEMORY_LIMIT, OOM, PERIOD, QUOTA, jobs_of_pods
from sizewright.datasets.runs.prometheus import Prometheus
from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError, RegistryError, StoreError
from sizewright.retraining.champion import champion_prior
from sizewright.retraining.gate import GateLimits
from sizewright.retraining.registry import Registry
from sizewright.retraining.retrain import ONE_AT_A_TIME, retrain
from sizewright.runtime.metrics_port import MetricsPort
from sizewright.runtime.prometheus_metrics import PrometheusObserver
from sizewright.runtime.run import Running
from sizewright.spec import Allocation, Handle, Job, Metrics, ReplicaMetrics, Role
from sizewright.spec.wording import sentence
from sizewright.testing import FakeExecutor, ManualClock
from tests.helpers import finished_jobs, real_servers

pytestmark = pytest.mark.long
MIB = 1 << 20


def test_trials_and_history_in_postgresql(tmp_path: Path) -> None:
    with real_servers.postgres_server(tmp_path) as url:
        runs = [finished_jobs.run_of(Job(name="ctr"), number) for number in range(60)]
        trial = Trial(workers=2, ps=1, throughput=123.25, job_hash=Job().hash, started_at=runs[0].started_at)
        with TrialStore(url) as store:
            store.add(trial)
            with ThreadPoolExecutor(6) as writers:  # in both orders, so that row locks alone would end in a deadlock
                new = list(writers.map(store.history.add, [runs, runs[::-1], runs[30:], runs[:30:-1], runs, runs]))
            assert sum(new) == len(runs)
        with TrialStore(url, create=False) as store:
            assert store.trials() == [trial]
            assert sorted(store.history.finished(), key=lambda run: run.id) == sorted(runs, key=lambda run: run.id)
            assert store.history.jobs() == {Job().hash: Job(name="ctr")}
            with (
                store.exclusively(ONE_AT_A_TIME),
                TrialStore(url) as other,
                pytest.raises(StoreError, match="Another retraining uses"),
                other.exclusively(ONE_AT_A_TIME),
            ):
                pass
    with pytest.raises(StoreError, match="cannot be used"):
        TrialStore(url)


class Exporter(BaseHTTPRequestHandler):
    """Metrics that cAdvisor would export for a job with two workers and a PS, until it is over."""

    began = time.monotonic()
    over = False
    oom = 0

    def do_GET(self) -> None:
        lived = time.monotonic() - self.began
        lines = []
        for pod, cores, memory in (("ctr-worker-0", 0.5, 300), ("ctr-worker-1", 0.25, 200), ("ctr-ps-0", 0.1, 400)):
            labels = f'{{namespace="train",pod="{pod}",container="main"}}'
            metrics = {
                CPU: cores * lived, MEMORY: memory * MIB, MEMORY_LIMIT: 512 * MIB, QUOTA: 50_000, PERIOD: 100_000,
                OOM: self.oom if pod == "ctr-ps-0" else 0,
            }  # fmt: skip
            lines += [f"{name}{labels} {value}" for name, value in metrics.items() if not self.over]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(("\n".join(lines) + "\n").encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_pods_are_imported_from_a_real_prometheus(tmp_path: Path) -> None:
    exporter = HTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    try:
        with real_servers.prometheus_server(tmp_path, f"127.0.0.1:{exporter.server_port}") as url:
            start = time.time()
            time.sleep(12)
            Exporter.oom = 1
            time.sleep(3)
            Exporter.over = True
            time.sleep(8)
            (run,) = jobs_of_pods(Prometheus(url), start - 5, time.time(), step_s=1.0, namespace="train")
            with pytest.raises(StoreError, match=r"has 0 series of \w+ in the namespace other"):
                jobs_of_pods(Prometheus(url), start - 5, time.time(), step_s=1.0, namespace="other")
            with pytest.raises(StoreError, match=r"refuses: .*parse"):
                Prometheus(url).series("sum by (", start, start + 1, 1.0)
    finally:
        exporter.shutdown()
        exporter.server_close()
    assert run.name == "ctr"
    longest = max(run.stretches, key=lambda stretch: stretch.duration_s).allocation
    assert (longest.replicas("worker"), longest.replicas("ps")) == (2, 1)
    assert longest.worker[0].cpu == 0.5
    assert run.worker.cpu_used == pytest.approx(0.375, rel=0.1)
    assert run.ps.memory_peak_bytes == 400 * MIB
    assert 5 < run.outcome.duration_s < 20
    assert run.ran_out_of_memory


def test_job_is_observed_through_a_real_prometheus(tmp_path: Path) -> None:
    def replica(role: Role, index: int, **sums: Any) -> ReplicaMetrics:
        return ReplicaMetrics(role=role, index=index, throttled_s=0.1, memory_peak_bytes=3 << 30, **sums)

    allocation = Allocation.of(2, 1, 0.5, 0.3, 512, 1 << 30, 1 << 30)
    replicas = tuple(replica("worker", i, at_s=9.5, cpu_s=1 / 3, steps=2**40, loss=0.1) for i in range(2))
    before_loss = Metrics(
        replicas=(replica("ps", 0, at_s=9.5, cpu_s=0.2), *replicas),
        samples_trained=10,
        samples_left=5,
        allocation=allocation,
    )
    after_loss = before_loss.model_copy(update={"replicas": before_loss.replicas[:-1], "samples_trained": 11})
    clock = ManualClock(12.25)
    running = Running(FakeExecutor(), Handle(executor="fake", id="r-1", job="ctr"), Job(name="ctr"), allocation, clock)

    def until(expected: Metrics | None) -> None:
        deadline, observed = time.monotonic() + 30, None
        while observed != expected or expected is None:
            assert time.monotonic() < deadline, observed
            time.sleep(0.2)
            try:
                observed = observer.observe(running.handle)
            except InputError:
                if expected is None:
                    return

    with ExitStack() as stack:
        port = stack.enter_context(MetricsPort(0))
        look = port.observer(running)
        look(before_loss)
        with real_servers.prometheus_server(tmp_path, f"127.0.0.1:{port.port}") as url:
            observer = PrometheusObserver(url, "ctr")
            until(before_loss)
            assert observer.handle().id == "r-1"
            assert observer.clock() == 12.25
            clock.sleep(5.0)
            look(after_loss)  # one replica is gone, and must not reappear
            until(after_loss)
            assert observer.clock() == 17.25
            stack.close()
            until(None)


def test_retraining_against_a_server_that_vanishes(
    tmp_path: Path, made_bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bases = ("mlperf-dlrm", "criteo-dlrm", "rm1", "wide-and-deep", "din", "ncf", "mlperf-dcnv2")
    store = TrialStore(tmp_path / "s.db")
    for key, job in made_bank.jobs.items():
        if job.base in bases:
            store.history.add_job(job.job)
            for trial in made_bank.trials:
                if trial.job_hash == key:
                    store.add(trial)
    with ExitStack() as server:
        uri = server.enter_context(real_servers.mlflow_server(tmp_path))
        registry = Registry(uri)
        first = retrain(store, registry, None)
        assert first.promoted
        store.add(store.trials()[0].model_copy(update={"series": "another"}))
        second = retrain(store, registry, None, limits=GateLimits(margin=0.5))
        assert not second.promoted
        assert registry.version("challenger").number == second.version
        prior, why_not_champion = champion_prior(uri)
        assert why_not_champion is None
        code = f"""
import mlflow, numpy as np
mlflow.set_tracking_uri({uri!r})
model = mlflow.pyfunc.load_model("models:/sizewright-prior@champion")
print(np.isfinite(model.predict(model.input_example)).all())
"""
        completed = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
        )
        assert completed.stdout.strip().endswith("True")
        store.add(store.trials()[0].model_copy(update={"series": "one more"}))
        count = store.count()
        with pytest.raises(RegistryError, match="cannot be used"):
            retrain(store, registry, None, progress=lambda text: server.close() if "logging" in text else None)
    assert store.count() == count
    cached, why_not_champion = champion_prior(uri)
    assert why_not_champion
    assert "The last known champion is used" in sentence(why_not_champion)
    assert np.array_equal(cached.parameters, prior.parameters)
    with real_servers.mlflow_server(tmp_path) as uri:
        restarted = Registry(uri)
        assert [version.number for version in restarted.versions()] == [2, 1]
        assert restarted.version("champion").number == first.version
