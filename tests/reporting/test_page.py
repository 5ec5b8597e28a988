"""The report is one file that fetches nothing, shows what was told to it, and takes it literally."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.recommender.sizing.build import build_recommendation
from sizewright.recommender.sizing.result import Selection, SizingResult
from sizewright.recommender.sizing.select import recommend, select
from sizewright.reporting.contents import ReportData
from sizewright.reporting.page import page
from sizewright.spec import Job
from tests.helpers.finished_runs import run_of
from tests.helpers.formula_trials import formula_trials

VOID = {"meta", "link", "input", "br", "use"}


class Seen(HTMLParser):
    """Elements and text of a page; fails where it is not well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.elements, self.texts = list[str](), list[tuple[str, dict[str, str | None]]](), list[str]()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture
def told(example: Path) -> SizingResult:
    job = Job.load(example)
    trials = formula_trials(job)
    decision = select(job, trials)
    assert isinstance(decision, Selection)
    return SizingResult(job, build_recommendation(decision), trials, [run_of(job)], decision.model)


def test_page_contains_allocation_reasons_and_trials(told: SizingResult) -> None:
    seen = Seen(page(ReportData(told), datetime(2026, 6, 1, 12, tzinfo=timezone.utc)))
    answer = told.answer
    assert answer.target is not None
    assert f"{answer.target.worker[0].replicas} × {answer.target.worker[0].cpu:g} cores" in seen.text
    assert all(reason in seen.text for reason in answer.reasons)
    assert "2026-06-01 12:00 UTC" in seen.text
    assert all(f"{trial.throughput:,.0f}" in seen.text for trial in told.trials)
    assert "nightly" in seen.text
    (record,) = [text for text in seen.texts if text.lstrip().startswith("{") and "recommendation/v1" in text]
    assert json.loads(record) == json.loads(answer.model_dump_json())


def test_page_fetches_nothing(told: SizingResult) -> None:
    seen = Seen(page(ReportData(told)))
    for tag, attributes in seen.elements:
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", page(ReportData(told)))


def test_every_figure_has_a_text_alternative_and_numbers(told: SizingResult) -> None:
    seen = Seen(page(ReportData(told)))
    pictures = [attributes for tag, attributes in seen.elements if tag == "svg"]
    assert len(pictures) == 5, "no trial tells phases"
    assert "No trial has the phases of its steps." in seen.text
    for attributes in pictures:
        assert len(attributes["aria-label"] or "") > 40
    assert sum(tag == "details" for tag, _ in seen.elements) == 5


def test_ids_are_unique_and_references_resolve(told: SizingResult) -> None:
    seen = Seen(page(ReportData(told)))
    names = [attributes["id"] for _, attributes in seen.elements if attributes.get("id")]
    assert len(names) == len(set(names))
    links = {attributes.get("href") or attributes.get("xlink:href") for _, attributes in seen.elements}
    referred = {link[1:] for link in links if link and link.startswith("#")}
    referred |= set(re.findall(r"url\(#([^)]+)\)", page(ReportData(told))))
    assert referred <= set(names)


def test_text_is_escaped(told: SizingResult) -> None:
    wild = "</script><script>alert(1)</script>"
    trial = told.trials[0].model_copy(update={"message": wild, "host": '"><img src=x onerror=alert(2)>'})
    answer = told.answer.model_copy(update={"reasons": (wild,)})
    run = run_of(told.job, name=wild)
    text = page(ReportData(told._replace(answer=answer, trials=[trial, *told.trials[1:]], runs=[run])))
    seen = Seen(text)
    assert "<script>alert" not in text
    assert not any(tag == "img" for tag, _ in seen.elements)
    assert sum(tag == "script" for tag, _ in seen.elements) == 2


def test_page_without_enough_data_lists_remedies(example: Path) -> None:
    job = Job.load(example)
    answer = recommend(job, [])
    seen = Seen(page(ReportData(SizingResult(job, answer))))
    assert "Not enough data yet." in seen.text
    assert all(remedy.text in seen.text for remedy in answer.remedies)
    assert not any(tag == "svg" for tag, _ in seen.elements)


def test_incomplete_trial_is_shown(told: SizingResult) -> None:
    seen = Seen(page(ReportData(told._replace(trials=[Trial(workers=1, ps=0, status="failed", message="no room")]))))
    assert "no room" in seen.text
