"""The report in a real browser: nothing on its console, nothing fetched, hover, keys, filter, light, dark and print."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from sizewright.datasets.trials.files import import_trials
from sizewright.recommender.sizing.build import build_recommendation
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
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser saw of a report with all it can have."""
    chromium = browser()
    folder = tmp_path_factory.mktemp("report")
    job = Job.load(EXAMPLES / "criteo.yaml")
    trials = import_trials(EXAMPLES / "criteo-trials.csv")
    decision = select(job, trials)
    assert isinstance(decision, Selection)
    ended = trials[0].model_copy(update={"status": "oom", "throughput": None, "message": "memory ended ps-0"})
    sized = SizingResult(job, build_recommendation(decision), [*trials, ended], [run_of(job)], decision.model)
    (folder / "report.html").write_text(page(ReportData(sized, observations_of(job), decisions=decisions_of(job))))
    words = ["node", HERE / "look.mjs", folder / "report.html", chromium, folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    keep_picture(folder / "report.png")
    return dict(json.loads(done.stdout), folder=folder)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_logs_nothing_and_fetches_nothing(seen: dict[str, Any], scheme: str) -> None:
    told = seen[scheme]
    assert told["console"] == []
    assert [url for url in told["fetched"] if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in told["fetched"]) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(seen: dict[str, Any], scheme: str) -> None:
    assert seen[scheme]["violations"] == []


def test_theme_can_be_changed(seen: dict[str, Any]) -> None:
    light, dark = seen["light"], seen["dark"]
    assert (light["paper"], dark["paper"]) == ("rgb(255, 255, 255)", "rgb(20, 24, 28)")
    assert light["svgInk"] != dark["svgInk"]
    assert light["toggled"] == dark["paper"]
    assert (seen["folder"] / "report-light.png").read_bytes() != (seen["folder"] / "report-dark.png").read_bytes()


def test_print_is_dark_on_white_without_controls(seen: dict[str, Any]) -> None:
    assert seen["light"]["printed"] == {"paper": "rgb(255, 255, 255)", "nav": False}


def test_points_show_labels_for_mouse_and_keyboard(seen: dict[str, Any]) -> None:
    told = seen["light"]
    assert told["hovered"]["is"] == told["hovered"]["of"]
    assert not told["afterwards"]
    first, second = told["focused"]
    assert first
    assert second
    assert first != second
    assert not told["escaped"]
    assert {"A", "g"} <= set(told["tabbed"]), "links and groups of points are reached"
    assert "BODY" not in told["tabbed"]


def test_trials_are_filtered_and_sorted(seen: dict[str, Any]) -> None:
    told = seen["light"]
    assert told["rows"] == 13
    assert told["filtered"] == {"rows": 1, "shown": "1 of 13"}
    numbers = [float(text.replace(",", "")) for text in told["sorted"] if text != "–"]
    assert numbers == sorted(numbers)
    assert told["sorted"][-1] == "–"
    assert told["sort"] == "ascending"
