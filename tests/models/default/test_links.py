from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sizewright.errors import InputError
from sizewright.models import ThroughputModel
from sizewright.models.default.links import Traffic
from sizewright.testing import queueing

TABLES = Path(__file__).parents[3] / "benchmarks" / "tables"


def table() -> pd.DataFrame:
    return queueing.table().iloc[::3].assign(network_bytes=2e6)


def test_slow_link_limits_throughput_measured_on_loopback() -> None:
    model = ThroughputModel().fit(table())
    free = model.predict(table())
    assert model.predict(table().assign(network_gbps=1000.0)) == pytest.approx(free, rel=0.01)
    linked = table().assign(network_gbps=0.01)
    slow = model.predict(linked)
    limit = linked.workers * 512 * 0.01e9 / 8 / 1e6 / np.maximum(1, linked.workers / linked.ps)
    assert np.all(slow <= limit)
    assert np.all(slow >= 0.3 * np.minimum(limit, free))
    low, high = model.predict_interval(linked)
    loose, wide = model.predict_interval(table())
    assert np.median(high / low) > np.median(wide / loose)


def test_workers_of_one_host_share_its_link() -> None:
    traffic = Traffic.of(pd.DataFrame({"network_bytes": [1e6], "batch_size": [512]}))
    assert traffic is not None
    columns = {"ps": 8, "batch_size": 512, "network_gbps": 1.0}
    separate = traffic.log_limit(pd.DataFrame([{"workers": 8, **columns}]))
    together = traffic.log_limit(pd.DataFrame([{"workers": 8, "workers_per_host": 8, **columns}]))
    assert np.exp(separate - together)[0] == pytest.approx(4.0)


def test_bytes_of_a_step_grow_with_the_batch_as_measured() -> None:
    traffic = Traffic.of(pd.DataFrame({"network_bytes": [1e6, 2e6, 4e6], "batch_size": [100, 400, 1600]}))
    assert traffic is not None
    assert traffic.exponent == pytest.approx(0.5)
    columns = {"workers": 1, "ps": 1, "network_gbps": 1.0}
    limit = traffic.log_limit(pd.DataFrame([{"batch_size": m, **columns} for m in (400, 6400)]))
    assert np.exp(limit[1] - limit[0]) == pytest.approx(4.0)


def test_one_worker_without_ps_needs_no_link() -> None:
    traffic = Traffic.of(pd.DataFrame({"network_bytes": [1e6], "batch_size": [512]}))
    assert traffic is not None
    alone = pd.DataFrame([{"workers": 1, "ps": 0, "network_gbps": 1e-3, "batch_size": 512}])
    assert np.isinf(traffic.log_limit(alone)[0])
    assert np.isfinite(traffic.log_limit(alone.assign(workers=2))[0])


def test_trials_behind_links_contain_the_effect_of_links() -> None:
    behind = table().assign(network_gbps=0.01)
    model = ThroughputModel().fit(behind)
    assert model.predict(behind) == pytest.approx(ThroughputModel().fit(table()).predict(table()))
    assert np.all(model.predict(table().assign(network_gbps=0.001)) < model.predict(behind))


def test_trials_without_network_bytes_have_no_traffic() -> None:
    assert Traffic.of(pd.DataFrame({"workers": [1], "ps": [1]})) is None


def test_prediction_from_loopback_holds_behind_links() -> None:
    """The same job, measured on one host and on hosts joined by 80 Mbit/s; workers sat together."""
    free, linked = (pd.read_csv(TABLES / f"{name}.csv") for name in ("loopback", "network"))
    assert free["throughput"].median() > 2 * linked["throughput"].median()
    model = ThroughputModel().fit(free.iloc[::6])
    behind = linked.assign(network_gbps=0.08, workers_per_host=linked["workers"])
    off = np.abs(np.log(model.predict(behind) / linked["throughput"]))
    assert np.median(off) < 0.2
    low, high = model.predict_interval(behind)
    assert np.mean((low <= linked["throughput"]) & (linked["throughput"] <= high)) > 0.8


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"network_gbps": 0.0}, "network_gbps is 0"),
        ({"network_gbps": -1.0}, "network_gbps is -1"),
        ({"network_gbps": 1.0, "workers_per_host": -3}, "workers_per_host is -3"),
    ],
)
def test_invalid_links_are_refused(columns: dict[str, float], message: str) -> None:
    model = ThroughputModel().fit(table())
    with pytest.raises(InputError, match=message):
        model.predict(table().assign(**columns))
    with pytest.raises(InputError, match="network_bytes is inf"):
        ThroughputModel().fit(table().assign(network_bytes=np.inf))
