from __future__ import annotations

from sizewright.recommender.cool_down import CoolDown
from sizewright.testing import ManualClock


def test_it_lasts_as_long_as_was_said() -> None:
    clock = ManualClock()
    cool = CoolDown(clock)
    assert cool.left_s <= 0
    clock.sleep(5.0)
    cool.begin(20.0)
    assert cool.left_s == 20.0
    clock.sleep(19.0)
    assert cool.left_s == 1.0
    clock.sleep(1.0)
    assert cool.left_s <= 0


def test_after_a_clock_has_gone_back_it_lasts_no_longer() -> None:
    now = 4000.0
    cool = CoolDown(lambda: now)
    cool.begin(20.0)
    now = 400.0
    assert cool.left_s == 20.0
    now = 420.0
    assert cool.left_s <= 0
