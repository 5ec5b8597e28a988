"""Of several operators one leads, and another takes over when it is gone."""

from __future__ import annotations

import threading

import pytest

from sizewright.errors import EngineError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.operator.leadership import LEASE, Leadership
from tests.helpers.stand_in import StandIn

QUICK = {"lease_s": 4, "renew_s": 3, "retry_s": 1}


def test_one_leads_and_another_takes_over(server: StandIn, api: KubeApi) -> None:
    first = Leadership(api, "here", **QUICK)
    first.await_lead()
    first.check()
    lease = server.objects["Lease", "here", LEASE]
    assert lease["spec"]["holderIdentity"]
    waited = threading.Event()
    second = Leadership(api, "here", waited.set, **QUICK)
    leads = threading.Thread(target=second.await_lead, daemon=True)
    leads.start()
    assert waited.wait(10), "an operator that waits says that it is alive"
    assert leads.is_alive(), "the first holds the lease"
    server.fail("PUT", "/leases", 0, times=5)  # silence: the first cannot renew it, the second cannot take it yet
    leads.join(60)
    assert not leads.is_alive()
    second.check()
    first._thread.join(60)
    with pytest.raises(EngineError, match="lease of the operator was lost"):
        first.check()


def test_operator_that_may_not_read_leases_waits(server: StandIn, api: KubeApi) -> None:
    server.fail("GET", "/leases", 403, times=2)
    leadership = Leadership(api, "here", **QUICK)
    leadership.await_lead()
    leadership.check()
