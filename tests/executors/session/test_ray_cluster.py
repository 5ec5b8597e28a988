"""The `ray` executor on a Ray of two machines, each with a network of its own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers.network.testbed import Bed

HELPERS = Path(__file__).parents[2] / "helpers"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_contract_holds_on_two_machines(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if os.geteuid() != 0 or any(not shutil.which(tool) for tool in ("ip", "tc", "nsenter")):
        pytest.skip("network namespaces need root, ip, tc and nsenter")
    words = ["-m", "pytest", "-v", "--timeout=300", "-p", "no:cacheprovider", str(HELPERS / "ray_on_two_nodes.py")]
    with Bed(nodes=2, delay="1ms") as bed:
        done = bed.run([sys.executable, *words], timeout_s=800, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout, "the ray executor does all that an executor does"
