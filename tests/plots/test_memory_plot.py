"""Unknown memory is left out of its picture and of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

import sizewright as sw
from sizewright import plots
from sizewright.errors import InputError
from sizewright.formatting import GIB

ROWS = [
    {"workers": w, "worker_cpu": c, "throughput": 1000.0 * w * c * (1 - 0.02 * w)}
    for w, c in ((1, 1), (2, 1), (4, 1), (4, 2), (2, 2))
]


def own_code(memory: object = None) -> dict[str, object]:
    bounds: dict[str, object] = {"replicas": [1, 8], "cpu": [1, 4]} | ({"memory": memory} if memory else {})
    return {
        "name": "own", "command": {"run": "python train.py", "rendezvous": "torchrun"}, "bounds": {"worker": bounds},
        "training": {"samples": 10**7},
    }  # fmt: skip


def test_unknown_memory_is_not_drawn(tmp_path: Path) -> None:
    answer = sw.recommend(own_code(), trials=ROWS)
    with pytest.raises(InputError, match="how much memory"):
        plots.memory(answer)
    (page,), _ = sw.report(own_code(), trials=ROWS, out=tmp_path / "r.html")
    assert "It is not known how much memory" in page.read_text(encoding="utf-8")
    _, why_not = sw.report(own_code(), trials=ROWS, form="svg", out=tmp_path / "pictures")
    assert any("how much memory" in text for text in why_not)


def test_limit_and_peak_are_drawn_independently(tmp_path: Path) -> None:
    limited = plots.memory(sw.recommend(own_code(["1Gi", "8Gi"]), trials=ROWS))
    assert limited.numbers[1][0][1:3] == ("unknown", "8.0 GiB")
    measured = [row | {"worker_memory_bytes": GIB} for row in ROWS]
    peaked = plots.memory(sw.recommend(own_code(), trials=measured))
    assert "unknown" not in peaked.numbers[1][0][1]
