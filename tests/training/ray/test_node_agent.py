from __future__ import annotations

import pytest

from sizewright.training.ray import node_agent
from sizewright.training.ray.node_agent import NodeAgent


def test_start_removes_the_remains_of_killed_sessions_before_it_makes_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def record_groups(name: str) -> None:
        calls.append(f"groups of {name}")

    monkeypatch.setattr(node_agent, "remove_leftovers", lambda: calls.append("remains removed"))
    monkeypatch.setattr(node_agent, "group_name", lambda name: name)
    monkeypatch.setattr(node_agent, "find_cgroups", record_groups)
    NodeAgent("session").close()
    assert calls == ["remains removed", "groups of session"]
