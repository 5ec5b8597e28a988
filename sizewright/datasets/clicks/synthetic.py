"""A synthetic click log: Zipf-distributed ids, count-like numeric columns, and labels that can be learned."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.blocks import select
from sizewright.errors import ClickLogError

BASE_RATE = 0.25
"""Share of clicks, about that of the Criteo Kaggle log (0.256)."""

# With this standard deviation of the logit, the true probabilities have an AUC of about 0.82.
_LOGIT_SD = 1.5
_DENSE_SHARE = 0.4  # of the logit's variance
_EFFECTS = 1 << 16
_DENSE_LEVELS = 1 << 12
_CALIBRATION_ROWS = 4096
# Where samples have several ids in a table, at least 64 samples with about this many ids in all.
_CALIBRATION_IDS, _MIN_CALIBRATION_ROWS = 1 << 18, 64

# Share of empty fields in the public Criteo sample, column by column.
_MISSING_DENSE = (0.45, 0, 0.17, 0.18, 0.03, 0.26, 0.05, 0, 0.05, 0.45, 0.05, 0.78, 0.18)
_MISSING_IDS = (0, 0, 0.04, 0.04, 0, 0.16, 0, 0, 0, 0, 0, 0.04, 0, 0, 0, 0.04, 0, 0,
                0.41, 0.41, 0.04, 0.8, 0, 0.04, 0.41, 0.41)  # fmt: skip


class SyntheticLog:
    """An endless log of `dense_features` numeric columns, and of `pooling[t]` ids of each table of `rows[t]` rows.

    Ids of table t are ranks in [0, rows[t]): id k has the mass of [k + 1, k + 2) under the density ∝ x^-zipf on
    [1, rows[t] + 1), the continuous form of Zipf's law; 0 is the most frequent id, and zipf 0 is uniform. Numeric
    columns are log(1 + count) of log-normal counts. A label is 1 with the probability that `true_probability` gives:
    the logistic of weighted numeric columns plus one pseudo-random effect for each id of a table. The seed determines
    everything. Raises ValueError without a table, or for a table without a row.
    """

    def __init__(
        self,
        rows: Sequence[int],
        *,
        dense_features: int = 13,
        zipf: float = 1.05,
        seed: int = 0,
        pooling: Sequence[int] | None = None,
    ) -> None:
        if not rows or min(rows) < 1:
            raise ValueError("rows must list at least one table of at least one row")
        self.rows, self.dense_features, self.zipf, self.seed = tuple(rows), dense_features, zipf, seed
        columns = np.ones(len(rows), np.int64) if pooling is None else np.array(pooling)
        self._spans = np.repeat([_span(count, zipf) for count in rows], columns)
        self._last = np.repeat(np.array(rows, dtype=np.int64) - 1, columns)
        self._levels = _levels()
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        self._effects = rng.standard_normal(_EFFECTS).astype(np.float32)
        self._starts = np.repeat(rng.integers(_EFFECTS, size=len(rows)), columns)
        self._weights = rng.standard_normal(dense_features).astype(np.float32)
        self._bias = np.float32(0.0)
        self._calibrate(rng)

    def batches(self, batch_size: int, *, shard: tuple[int, int] = (0, 1)) -> Iterator[Batch]:
        """Yield endless batches: labels (n,), dense (n, dense_features), ids (n, id columns).

        `shard` (i, n) draws from stream i of the seed, which is independent of the others and the same for every n.
        """
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(shard[0],)))
        while True:
            yield self._draw(rng, batch_size)

    def block(self, number: int, count: int) -> Batch:
        """Draw `count` samples that depend only on the seed and `number`, not on blocks drawn before."""
        return self._draw(np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(0, 1, number))), count)

    def true_probability(self, batch: Batch) -> NDArray[np.float32]:
        """Return the probability (n,) of a click that each label was drawn with."""
        return _logistic(self._logit(batch.dense, batch.ids))

    def _draw(self, rng: np.random.Generator, count: int) -> Batch:
        dense, ids = self._features(rng, count)
        labels = rng.random(count) < _logistic(self._logit(dense, ids))
        return Batch(labels.astype(np.float32), dense, ids)

    def _features(self, rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        levels = rng.integers(_DENSE_LEVELS, size=(count, self.dense_features), dtype=np.uint16)
        uniform = rng.random((count, len(self._last)))
        return self._levels[levels], np.minimum(self._ranks(uniform), self._last)

    def _ranks(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the inverse of F(x) = (x^(1-s) - 1) / ((rows + 1)^(1-s) - 1), minus 1; its limit where s is 1."""
        flatness = 1.0 - self.zipf
        uniform *= self._spans
        if flatness == 0.0:
            return np.expm1(uniform).astype(np.int64)
        return np.expm1(np.log1p(uniform) / flatness).astype(np.int64)

    def _logit(self, dense: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        effects = self._effects[(ids + self._starts) & (_EFFECTS - 1)].sum(axis=1)
        return cast("NDArray[np.float32]", self._bias + dense @ self._weights + effects)

    def _calibrate(self, rng: np.random.Generator) -> None:
        """Scale both parts of the logit to their share of its variance, and set the bias to meet the base rate."""
        rows, columns = _CALIBRATION_ROWS, len(self._last)
        if columns > len(self.rows):
            rows = min(rows, max(_MIN_CALIBRATION_ROWS, _CALIBRATION_IDS // columns))
        dense, ids = self._features(rng, rows)
        by_ids, by_dense = float(self._logit(dense * 0, ids).std()), float((dense @ self._weights).std())
        varied = {"dense": by_dense > 1e-3, "ids": by_ids > 1e-3}  # not so with no numeric column, one-row tables
        dense_share = _DENSE_SHARE if all(varied.values()) else float(varied["dense"])
        self._weights *= _LOGIT_SD * math.sqrt(dense_share) / by_dense if varied["dense"] else 0.0
        self._effects *= _LOGIT_SD * math.sqrt(1 - dense_share) / by_ids if varied["ids"] else 0.0
        logit = self._logit(dense, ids)
        low, high = -100.0 - float(logit.max()), 100.0 - float(logit.min())
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if _logistic(logit + middle).mean() > BASE_RATE else (middle, high)
        self._bias = np.float32(middle)


def write_criteo(
    path: str | Path,
    log: SyntheticLog,
    rows: int,
    *,
    header: bool = False,
    separator: str | None = None,
    missing: bool = True,
) -> None:
    """Write `rows` rows as a Criteo log: tab-separated, or comma-separated with a header.

    The file is compressed with gzip where `path` ends in .gz. An id k is written as the 8 hex digits of k + 1, so that
    no id is the reader's missing id. With `missing`, fields are empty as often as in the public sample. Raises
    ClickLogError when the file cannot be written.
    """
    separator = separator or ("," if header else "\t")
    rng = np.random.default_rng(np.random.SeedSequence(log.seed, spawn_key=(0, 0)))
    try:
        with _create(Path(path)) as stream:
            if header:
                stream.write((separator.join(_names(log)) + "\n").encode())
            for batch in log.batches(min(rows, 10_000)) if rows else ():
                stream.write(_text(select(batch, slice(rows)), rng, separator, missing))
                rows -= len(batch.labels)
                if rows <= 0:
                    return
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ClickLogError(
            f"Cannot write {path}: {reason}.", "Check the folder, its permissions and free space."
        ) from None


def _span(rows: int, zipf: float) -> float:
    """Return (rows + 1)^(1 - zipf) - 1, or log(rows + 1) where zipf is 1."""
    return math.log(rows + 1) if zipf == 1.0 else math.expm1((1.0 - zipf) * math.log(rows + 1))


def _levels() -> NDArray[np.float32]:
    """Return log(1 + count) at the quantiles of a log-normal count, so that a draw is a single look-up."""
    normal = NormalDist(1.5, 1.7)
    counts = [math.floor(math.exp(normal.inv_cdf((k + 0.5) / _DENSE_LEVELS))) for k in range(_DENSE_LEVELS)]
    return np.log1p(np.array(counts, dtype=np.float32))


def _logistic(logit: NDArray[np.float32]) -> NDArray[np.float32]:
    return cast("NDArray[np.float32]", 1.0 / (1.0 + np.exp(-logit)))


def _create(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "wb", compresslevel=1))
    return open(path, "wb")


def _names(log: SyntheticLog) -> list[str]:
    numeric = [f"I{k + 1}" for k in range(log.dense_features)]
    return ["label", *numeric, *(f"C{k + 1}" for k in range(len(log.rows)))]


def _text(batch: Batch, rng: np.random.Generator, separator: str, missing: bool) -> bytes:
    counts = np.rint(np.expm1(batch.dense.astype(np.float64))).astype(np.int64).astype(str).astype(object)
    tokens = np.array([format(value, "08x") for value in (batch.ids + 1).ravel().tolist()], dtype=object)
    tokens = tokens.reshape(batch.ids.shape)
    if missing:
        for cells, shares in ((counts, _MISSING_DENSE), (tokens, _MISSING_IDS)):
            cells[rng.random(cells.shape) < np.resize(shares, cells.shape[1])] = ""
    labels = batch.labels.astype(np.int64).astype(str).astype(object)[:, None]
    rows = np.hstack([labels, counts, tokens]).tolist()
    return ("\n".join(separator.join(row) for row in rows) + "\n").encode()
