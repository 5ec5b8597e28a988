"""What a person sees of a running job."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

from rich.console import Console

from sizewright.cli.live import LiveView, describe_decision, sparks
from sizewright.recommender.control.decisions import Decision, Forecast
from sizewright.runtime.run import RunProgress
from sizewright.spec import Allocation
from sizewright.spec.units import MIB
from sizewright.task_progress import report_progress

AT = Allocation.of(2, 1, 0.5, 0.25, 512)
GOING = Forecast(finish_s=90.0, ps_peak_bytes=300 * MIB, ps_peak_at_end_bytes=400 * MIB, ps_limit_bytes=512 * MIB)


def decision(kind: str = "keep", reason: str = "It stays.", **more: Any) -> Decision:
    usual = {"number": 0, "at": datetime(2026, 1, 1, tzinfo=timezone.utc), "job_hash": "x", "allocation": AT}
    return Decision.model_validate(usual | {"kind": kind, "reason": reason, "forecast": GOING} | more)


def seen(*decisions: Decision, terminal: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, highlight=False, color_system=None)
    with LiveView(console, 1000) as view:
        for samples in (100, 250):
            view.progressed(RunProgress(samples, 1500.0, 2, 1, 1000 - samples))
        for each in decisions:
            view.decided(each)
    return out.getvalue()


def test_it_shows_how_far_the_job_is_at_what_and_where_it_is_going() -> None:
    text = seen(decision())
    assert "250 samples, 1,500/s, 2 workers + 1 PS" in text
    assert "25%" in text
    assert AT.describe() in text
    assert "done in 1.5 min; fullest PS 300.0 MiB, at the end at most 400.0 MiB of 512.0 MiB" in text
    assert "It stays." in text


def test_the_time_that_is_left_is_told_and_what_is_done_before_it_trains() -> None:
    for before in (True, False):
        out = io.StringIO()
        with LiveView(Console(file=out, force_terminal=True, force_interactive=True, width=100), None) as view:
            if not before:
                view.progressed(RunProgress(100, 50.0, 2, 1, 1000))
            report_progress("counting rows of the log", 1, 4)
        assert ("counting rows of the log, 25%" in out.getvalue()) is before
        assert ("20 s left" in out.getvalue()) is not before


def test_a_reason_that_differs_by_numbers_only_is_told_once() -> None:
    last = seen(*(decision(reason=f"It saves {i} %.") for i in range(5))).rsplit("forecast", 1)[1]
    assert last.count("It saves") == 1


def test_without_a_terminal_changes_and_the_end_are_lines() -> None:
    text = seen(decision(), decision("adjust", "More workers.", applied=True), terminal=False)
    lines = text.strip().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("Changed: More workers.")
    assert lines[1].startswith("250 samples")


def test_what_became_of_a_change_is_told() -> None:
    assert (
        describe_decision(decision("adjust", "More.", applied=False, error="No room."))
        == "Could not change: No room. (More.)"
    )
    assert describe_decision(decision("adjust", "More.")) == "Would change: More."


def test_sparks_are_as_high_as_the_values() -> None:
    assert sparks([0.0, 1.0, 2.0, 4.0]) == "▁▃▅█"
    assert sparks([0.0]) == "▁"


def test_a_pause_of_the_loop_is_told_when_it_begins_and_ends() -> None:
    out = io.StringIO()
    with LiveView(Console(file=out, width=100), 1000) as view:
        for paused in (False, True, True, False):
            view.progressed(RunProgress(100, 1500.0, 2, 1, 900, paused))
    assert out.getvalue().splitlines()[:2] == ["The control loop is paused.", "The control loop continues."]
