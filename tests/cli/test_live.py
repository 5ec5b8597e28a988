"""Tests of the live view of a running job."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

from rich.console import Console

from sizewright.cli.live import LiveView, describe_decision, sparks
from sizewright.formatting import MIB
from sizewright.recommender.control.decisions import Decision, Forecast
from sizewright.runtime.run import RunProgress
from sizewright.spec import Allocation
from sizewright.task_progress import report_progress

ALLOCATION = Allocation.of(2, 1, 0.5, 0.25, 512)
FORECAST = Forecast(finish_s=90.0, ps_peak_bytes=300 * MIB, ps_peak_at_end_bytes=400 * MIB, ps_limit_bytes=512 * MIB)


def decision(kind: str = "keep", reason: str = "It stays.", **more: Any) -> Decision:
    defaults = {"number": 0, "at": datetime(2026, 1, 1, tzinfo=timezone.utc), "job_hash": "x", "allocation": ALLOCATION}
    return Decision.model_validate(defaults | {"kind": kind, "reason": reason, "forecast": FORECAST} | more)


def render(*decisions: Decision, terminal: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, highlight=False, color_system=None)
    with LiveView(console, 1000) as view:
        for samples in (100, 250):
            view.progressed(RunProgress(samples, 1500.0, 2, 1, 1000 - samples))
        for event in decisions:
            view.on_decision(event)
    return out.getvalue()


def test_view_shows_progress_allocation_and_forecast() -> None:
    text = render(decision())
    assert "250 samples, 1,500/s, 2 workers + 1 PS" in text
    assert "25%" in text
    assert ALLOCATION.describe() in text
    assert "done in 1.5 min; fullest PS 300.0 MiB, at the end at most 400.0 MiB of 512.0 MiB" in text
    assert "It stays." in text


def test_view_shows_remaining_time_and_work_before_training() -> None:
    for before_training in (True, False):
        out = io.StringIO()
        with LiveView(Console(file=out, force_terminal=True, force_interactive=True, width=100), None) as view:
            if not before_training:
                view.progressed(RunProgress(100, 50.0, 2, 1, 1000))
            report_progress("counting rows of the log", 1, 4)
        assert ("counting rows of the log, 25 %" in out.getvalue()) is before_training
        assert ("20 s left" in out.getvalue()) is not before_training


def test_reasons_that_differ_only_in_numbers_are_shown_once() -> None:
    last_frame = render(*(decision(reason=f"It saves {i} %.") for i in range(5))).rsplit("forecast", 1)[1]
    assert last_frame.count("It saves") == 1


def test_view_without_terminal_prints_changes_and_the_end_as_lines() -> None:
    text = render(decision(), decision("adjust", "More workers.", applied=True), terminal=False)
    lines = text.strip().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("Changed: More workers.")
    assert lines[1].startswith("250 samples")


def test_decision_is_described_with_the_result_of_its_change() -> None:
    assert (
        describe_decision(decision("adjust", "More.", applied=False, error="No room."))
        == "Could not change: No room. (More.)"
    )
    assert describe_decision(decision("adjust", "More.")) == "Would change: More."


def test_sparks_are_proportional_to_the_values() -> None:
    assert sparks([0.0, 1.0, 2.0, 4.0]) == "▁▃▅█"
    assert sparks([0.0]) == "▁"


def test_pause_of_the_control_loop_is_printed_at_its_start_and_end() -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, width=100), 1000) as view:
        for paused in (False, True, True, False):
            view.progressed(RunProgress(100, 1500.0, 2, 1, 900, paused))
    assert out.getvalue().splitlines()[:2] == ["The control loop is paused.", "The control loop continues."]
