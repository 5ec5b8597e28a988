"""Work that tells how far it is."""

from __future__ import annotations

import threading

from sizewright.task_progress import part, progress_listener, report_progress, steps

Heard = list[tuple[str, float, float]]


def test_steps_are_told_before_each_and_at_the_end() -> None:
    heard: Heard = []
    with progress_listener(lambda *told: heard.append(told)):
        assert list(steps("reading", "ab")) == ["a", "b"]
        assert list(steps("nothing", [])) == []
    assert heard == [("reading", 0, 2), ("reading", 1, 2), ("reading", 2, 2)]


def test_a_part_is_told_as_its_share_of_the_whole() -> None:
    heard: Heard = []
    with progress_listener(lambda *told: heard.append(told)), part("whole", 1, 4):
        report_progress("inside", 1, 2)
        with part("inside", 1, 2):
            report_progress("further inside", 1, 2)
    shares = [1, 1.5, 1.5, 1.75, 2, 2]
    assert heard == [("whole", share, 4) for share in shares]


def test_nobody_has_to_listen() -> None:
    report_progress("reading", 1, 2)
    with part("whole", 0, 1):
        assert list(steps("reading", [1])) == [1]


def test_what_other_threads_do_is_not_heard() -> None:
    heard: Heard = []
    with progress_listener(lambda *told: heard.append(told)):
        other = threading.Thread(target=lambda: report_progress("elsewhere", 1, 2))
        other.start()
        other.join()
    report_progress("afterwards", 1, 2)
    assert heard == []
