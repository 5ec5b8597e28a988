"""Plans from the sizes that a user chose."""

from __future__ import annotations

from pathlib import Path

import pytest

from sizewright.errors import InputError
from sizewright.runtime.plan_files import plan_from_file

SIZES = {"worker_cpu": "500m", "ps": 1, "ps_cpu": 1}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("{training: {global_batch_size: 1200}, bounds: {worker: {replicas: [1, 8]}}}")
    return path


@pytest.mark.parametrize(("workers", "batch_size"), [(1, 1200), (3, 400), (8, 150)])
def test_workers_of_a_plan_share_the_global_batch(shared: Path, workers: int, batch_size: int) -> None:
    plan = plan_from_file(shared, {"workers": workers, **SIZES})
    assert plan.target.batch_size == batch_size
    assert plan.job.training.global_batch_size == 1200


def test_workers_that_cannot_share_the_global_batch_are_refused(shared: Path) -> None:
    with pytest.raises(InputError, match=r"7 workers cannot share .* 1,200 evenly. .* these can: 1, 2, 3, 4, 5, 6, 8"):
        plan_from_file(shared, {"workers": 7, **SIZES})
