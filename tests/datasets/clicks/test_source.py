from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from sizewright.datasets.clicks.source import open_source
from sizewright.datasets.clicks.synthetic import SyntheticLog, write_criteo
from sizewright.errors import ClickLogError
from sizewright.spec import Data, Job, Model, Tables


def job(rows: object = (50, 7, 2000), **data: object) -> Job:
    tables = Tables.model_validate({"count": 3, "rows": rows})
    return Job(model=Model(dense_features=2, tables=tables), data=Data.model_validate(data))


def test_synthetic() -> None:
    batch = next(open_source(job(), batch_size=64))
    assert batch.ids.shape == (64, 3)
    assert batch.dense.shape == (64, 2)
    assert len(next(open_source(job())).labels) == job().training.batch_size


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.001, 3.0])
def test_ids_fit_the_scaled_tables(tmp_path: Path, scale: float) -> None:
    write_criteo(tmp_path / "log", SyntheticLog([50, 7, 2000], dense_features=2), 300)
    for task in (job(zipf=0.0), job(format="criteo", path=str(tmp_path / "log"))):
        for batch in islice(open_source(task, scale=scale, batch_size=100), 5):
            assert (batch.ids < np.array(task.model.tables.sizes(scale))).all()
            assert (batch.ids >= 0).all()


def test_a_log_repeats_and_shards_differ(tmp_path: Path) -> None:
    write_criteo(tmp_path / "log", SyntheticLog([50, 7, 2000], dense_features=2), 30)
    task = job(format="criteo", path=str(tmp_path / "log"))
    first, second = (next(open_source(task, shard=(k, 2), batch_size=100)) for k in range(2))
    assert len(first.labels) == len(second.labels) == 100
    assert not np.array_equal(first.ids, second.ids)


def test_log_with_other_columns_than_the_model_is_refused(tmp_path: Path) -> None:
    write_criteo(tmp_path / "log", SyntheticLog([50, 7], dense_features=2), 30)
    with pytest.raises(ClickLogError, match=r"5 tab-separated columns.*3 tables make 6") as caught:
        open_source(job(format="criteo", path=str(tmp_path / "log")))
    assert "tables.count" in caught.value.remedy


def test_tables_that_are_not_counted_are_refused() -> None:
    with pytest.raises(ClickLogError, match="not counted yet"):
        open_source(job("from-data"))
