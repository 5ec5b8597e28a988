"""MLflow's own pages show a retraining: its run, metrics, figures, and the version with its reason."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from sizewright.datasets.trials.store import TrialStore
from sizewright.retraining.registry import Registry
from sizewright.retraining.retrain import retrain
from tests.helpers import real_servers
from tests.helpers.browser_pictures import BROWSER, browser, keep_picture

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, filled: TrialStore) -> dict[str, Any]:
    chromium, folder = browser(), tmp_path_factory.mktemp("mlflow")
    with real_servers.mlflow_server(folder) as uri:
        result = retrain(filled, Registry(uri), None)
        alias = "champion" if result.promoted else "challenger"
        args = ["node", BROWSER / "mlflow.mjs", uri, result.run_id, alias, chromium, folder]
        completed = subprocess.run(args, capture_output=True, text=True, check=False, timeout=300)
    assert completed.returncode == 0, completed.stderr
    keep_picture(folder / "mlflow.png")
    return dict(json.loads(completed.stdout), alias=alias, reason=result.reason)


def test_run_is_shown_with_its_metrics(pages: dict[str, Any]) -> None:
    assert "retrain" in pages["experiment"]
    assert "1 matching run" in pages["experiment"]
    for name in ("held_out_mdape", "base_out_mdape", "data_sha256", "worst_family"):
        assert name in pages["run"]


def test_model_version_says_why_it_was_promoted_or_not(pages: dict[str, Any]) -> None:
    assert pages["alias"] in pages["version"]
    assert pages["reason"][:40] in pages["version"]


def test_metrics_are_shown(pages: dict[str, Any]) -> None:
    wide, high = pages["figure"]
    assert min(wide, high) > 300
