"""Tests of progress reports of long tasks."""

from __future__ import annotations

import threading

from sizewright.task_progress import part, progress_listener, report_progress, steps

Heard = list[tuple[str, float, float]]


def test_steps_are_reported_before_each_and_at_the_end() -> None:
    heard: Heard = []
    with progress_listener(lambda *report: heard.append(report)):
        assert list(steps("reading", "ab")) == ["a", "b"]
        assert list(steps("nothing", [])) == []
    assert heard == [("reading", 0, 2), ("reading", 1, 2), ("reading", 2, 2)]


def test_part_is_reported_as_its_share_of_the_total() -> None:
    heard: Heard = []
    with progress_listener(lambda *report: heard.append(report)), part("whole", 1, 4):
        report_progress("inside", 1, 2)
        with part("inside", 1, 2):
            report_progress("further inside", 1, 2)
    shares = [1, 1.5, 1.5, 1.75, 2, 2]
    assert heard == [("whole", share, 4) for share in shares]


def test_report_without_listener_does_nothing() -> None:
    report_progress("reading", 1, 2)
    with part("whole", 0, 1):
        assert list(steps("reading", [1])) == [1]


def test_reports_of_other_threads_are_ignored() -> None:
    heard: Heard = []
    with progress_listener(lambda *report: heard.append(report)):
        other = threading.Thread(target=lambda: report_progress("elsewhere", 1, 2))
        other.start()
        other.join()
    report_progress("afterwards", 1, 2)
    assert heard == []
