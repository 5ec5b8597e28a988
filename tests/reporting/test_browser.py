"""The report in a real browser: nothing on its console, nothing fetched, hover, keys, filter, light, dark and print."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from sizewright.datasets.trials.files import import_trials
from sizewright.recommender.sizing.build import build_recommendation
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import Selection, SizingResult
from sizewright.recommender.sizing.select import select
from sizewright.reporting.contents import ReportData
from sizewright.reporting.page import page
from sizewright.spec import Job
from tests.helpers.browser_pictures import BROWSER as HERE
from tests.helpers.browser_pictures import browser, keep_picture
from tests.helpers.finished_runs import decisions_of, observations_of, run_of

pytestmark = pytest.mark.long
EXAMPLES = HERE.parents[2] / "examples"


@pytest.fixture(scope="module")
def browser_report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the browser's observations of a report with all sections."""
    chromium = browser()
    folder = tmp_path_factory.mktemp("report")
    job = Job.load(EXAMPLES / "criteo.yaml")
    trials = import_trials(EXAMPLES / "criteo-trials.csv")
    decision = select(SizingRequest(job, trials))
    assert isinstance(decision, Selection)
    failed_trial = trials[0].model_copy(update={"status": "oom", "throughput": None, "message": "memory ended ps-0"})
    sized = SizingResult(job, build_recommendation(decision), [*trials, failed_trial], [run_of(job)], decision.model)
    (folder / "report.html").write_text(page(ReportData(sized, observations_of(job), decisions=decisions_of(job))))
    args = ["node", HERE / "look.mjs", folder / "report.html", chromium, folder]
    completed = subprocess.run(args, capture_output=True, text=True, check=False, timeout=300)
    assert completed.returncode == 0, completed.stderr
    keep_picture(folder / "report.png")
    return dict(json.loads(completed.stdout), folder=folder)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_logs_nothing_and_fetches_nothing(browser_report: dict[str, Any], scheme: str) -> None:
    observed = browser_report[scheme]
    assert observed["console"] == []
    assert [url for url in observed["fetched"] if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in observed["fetched"]) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser_report: dict[str, Any], scheme: str) -> None:
    assert browser_report[scheme]["violations"] == []


def test_theme_can_be_changed(browser_report: dict[str, Any]) -> None:
    light, dark = browser_report["light"], browser_report["dark"]
    assert (light["paper"], dark["paper"]) == ("rgb(255, 255, 255)", "rgb(20, 24, 28)")
    assert light["svgInk"] != dark["svgInk"]
    assert light["toggled"] == dark["paper"]
    assert (browser_report["folder"] / "report-light.png").read_bytes() != (
        browser_report["folder"] / "report-dark.png"
    ).read_bytes()


def test_print_is_dark_on_white_without_controls(browser_report: dict[str, Any]) -> None:
    assert browser_report["light"]["printed"] == {"paper": "rgb(255, 255, 255)", "nav": False}


def test_points_show_labels_for_mouse_and_keyboard(browser_report: dict[str, Any]) -> None:
    observed = browser_report["light"]
    assert observed["hovered"]["is"] == observed["hovered"]["of"]
    assert not observed["afterwards"]
    first, second = observed["focused"]
    assert first
    assert second
    assert first != second
    assert not observed["escaped"]
    assert {"A", "g"} <= set(observed["tabbed"]), "links and groups of points are reached"
    assert "BODY" not in observed["tabbed"]


def test_trials_are_filtered_and_sorted(browser_report: dict[str, Any]) -> None:
    observed = browser_report["light"]
    assert observed["rows"] == 13
    assert observed["filtered"] == {"rows": 1, "shown": "1 of 13"}
    numbers = [float(text.replace(",", "")) for text in observed["sorted"] if text != "–"]
    assert numbers == sorted(numbers)
    assert observed["sorted"][-1] == "–"
    assert observed["sort"] == "ascending"
