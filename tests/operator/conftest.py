"""Suspended jobs of each kind on a stand-in for a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sizewright.executors.kubernetes.api import KubeApi
from tests.helpers.stand_in import StandIn, stand_in


@pytest.fixture
def server() -> Iterator[StandIn]:
    pytest.importorskip("kubernetes")
    with stand_in() as server:
        server.changes_suspended = True
        yield server


@pytest.fixture
def api(server: StandIn, tmp_path: Path) -> KubeApi:
    return KubeApi(kubeconfig=server.kubeconfig(tmp_path), timeout_s=5.0, sleep=lambda _: None)
