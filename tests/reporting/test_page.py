"""The report is one file that fetches nothing, shows its data, and escapes text."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.plots import Picture
from sizewright.recommender.sizing.build import build_recommendation
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import Selection, SizingResult
from sizewright.recommender.sizing.select import recommend, select
from sizewright.reporting.contents import ReportData
from sizewright.reporting.page import page
from sizewright.reporting.svg import as_svg
from sizewright.spec import Checkpoint, Cluster, HostKind, Job
from tests.helpers.finished_runs import run_of
from tests.helpers.formula_trials import formula_trials

SAVED = Checkpoint(every="30m")
VOID = {"meta", "link", "input", "br", "use"}


class ParsedPage(HTMLParser):
    """Elements and text of a page; parsing fails if the page is not well formed."""

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
def sizing(example: Path) -> SizingResult:
    job = Job.load(example)
    trials = formula_trials(job)
    decision = select(SizingRequest(job, trials))
    assert isinstance(decision, Selection)
    return SizingResult(job, build_recommendation(decision), trials, [run_of(job)], decision.model)


def test_page_contains_allocation_reasons_and_trials(sizing: SizingResult) -> None:
    parsed = ParsedPage(page(ReportData(sizing), datetime(2026, 6, 1, 12, tzinfo=timezone.utc)))
    answer = sizing.answer
    assert answer.target is not None
    assert f"{answer.target.worker[0].replicas} × {answer.target.worker[0].cpu:g} cores" in parsed.text
    assert all(reason in parsed.text for reason in answer.reasons)
    assert "2026-06-01 12:00 UTC" in parsed.text
    assert all(f"{trial.throughput:,.0f}" in parsed.text for trial in sizing.trials)
    assert "nightly" in parsed.text
    (record,) = [text for text in parsed.texts if text.lstrip().startswith("{") and "recommendation/v1" in text]
    assert json.loads(record) == json.loads(answer.model_dump_json())


def test_page_shows_the_hosts_with_their_prices(example: Path) -> None:
    described = Job.load(example)
    job = described.model_copy(update={"training": described.training.model_copy(update={"checkpoint": SAVED})})
    host = HostKind(
        kind="big", count=4, cpu=16, memory="64Gi", price_hour=0.7, spot_price_hour=0.2, interruptions_hour=1
    )
    trials = formula_trials(job)
    decision = select(SizingRequest(job, trials, cluster=Cluster(hosts=(host,))))
    assert isinstance(decision, Selection)
    answer = build_recommendation(decision)
    parsed = ParsedPage(page(ReportData(SizingResult(job, answer, trials, [], decision.model))))
    assert "On which hosts" in parsed.text
    assert all(each.describe() in parsed.text for each in answer.machines)
    assert "cost, at 0.200 for each big" in parsed.text


def test_page_fetches_nothing(sizing: SizingResult) -> None:
    parsed = ParsedPage(page(ReportData(sizing)))
    for tag, attributes in parsed.elements:
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", page(ReportData(sizing)))


def test_every_figure_has_a_text_alternative_and_numbers(sizing: SizingResult) -> None:
    parsed = ParsedPage(page(ReportData(sizing)))
    pictures = [attributes for tag, attributes in parsed.elements if tag == "svg"]
    assert len(pictures) == 5, "no trial has phases"
    assert "No trial has the phases of its steps." in parsed.text
    for attributes in pictures:
        assert len(attributes["aria-label"] or "") > 40
    assert sum(tag == "details" for tag, _ in parsed.elements) == 5


def test_ids_are_unique_and_references_resolve(sizing: SizingResult) -> None:
    parsed = ParsedPage(page(ReportData(sizing)))
    names = [attributes["id"] for _, attributes in parsed.elements if attributes.get("id")]
    assert len(names) == len(set(names))
    links = {attributes.get("href") or attributes.get("xlink:href") for _, attributes in parsed.elements}
    referred = {link[1:] for link in links if link and link.startswith("#")}
    referred |= set(re.findall(r"url\(#([^)]+)\)", page(ReportData(sizing))))
    assert referred <= set(names)


def test_text_is_escaped(sizing: SizingResult) -> None:
    wild = "</script><script>alert(1)</script>"
    trial = sizing.trials[0].model_copy(update={"message": wild, "host": '"><img src=x onerror=alert(2)>'})
    answer = sizing.answer.model_copy(update={"reasons": (wild,)})
    run = run_of(sizing.job, name=wild)
    text = page(ReportData(sizing._replace(answer=answer, trials=[trial, *sizing.trials[1:]], runs=[run])))
    parsed = ParsedPage(text)
    assert "<script>alert" not in text
    assert not any(tag == "img" for tag, _ in parsed.elements)
    assert sum(tag == "script" for tag, _ in parsed.elements) == 2


def test_secrets_are_removed_before_text_is_escaped(sizing: SizingResult) -> None:
    evil = 'x --password "abc hunter22" \x1b[31m'
    trial = sizing.trials[0].model_copy(update={"message": evil})
    evidence = sizing.answer.evidence.model_copy(update={"host": (evil,)})
    answer = sizing.answer.model_copy(update={"reasons": (evil,), "evidence": evidence})
    text = page(ReportData(sizing._replace(answer=answer, trials=[trial, *sizing.trials[1:]])))
    assert "hunter22" not in text
    assert "\x1b" not in text
    (record,) = [text for text in ParsedPage(text).texts if text.lstrip().startswith("{") and "recommendation" in text]
    assert json.loads(record)["reasons"] == ['x --password "***" \x1b[31m']


def test_secrets_are_removed_from_pictures() -> None:
    evil = 'host --password "abc hunter22"'
    picture = Picture()
    axes = picture.add_subplot()
    axes.set_title(evil)
    picture.label(axes.scatter([1], [1]), [evil])
    picture.alt = evil
    assert "hunter22" not in as_svg(picture, "p")
    assert "password" in as_svg(picture, "p")


def test_page_without_enough_data_lists_remedies(example: Path) -> None:
    job = Job.load(example)
    answer = recommend(SizingRequest(job))
    parsed = ParsedPage(page(ReportData(SizingResult(job, answer))))
    assert "Not enough data yet." in parsed.text
    assert all(remedy.text in parsed.text for remedy in answer.remedies)
    assert not any(tag == "svg" for tag, _ in parsed.elements)


def test_incomplete_trial_is_shown(sizing: SizingResult) -> None:
    parsed = ParsedPage(
        page(ReportData(sizing._replace(trials=[Trial(workers=1, ps=0, status="failed", message="no room")])))
    )
    assert "no room" in parsed.text
