from __future__ import annotations

import gzip
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.logs import ClickLog
from sizewright.datasets.clicks.samples import LogSamples, SampleSource, SyntheticSamples, open_samples
from sizewright.datasets.clicks.synthetic import SyntheticLog, write_criteo
from sizewright.errors import ClickLogError
from sizewright.spec import Data, Job, Model, Tables

relaxed = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ranges = st.lists(st.tuples(st.integers(0, 700), st.integers(1, 300)), min_size=1, max_size=12)
BROKEN = "9\t1\t2\ta\tb\tc"
LINES = st.sampled_from(["row", "row", "row", "row", "", " ", BROKEN, "1\t2", '""', "\t\t\t\t\t", "\r"])


def log_of(path: Path | str, **options: float) -> ClickLog:
    return ClickLog(str(path), dense_features=2, tables=3, **options)  # type: ignore[arg-type]


def rows_of(first: int, count: int) -> list[str]:
    """Return rows whose second numeric column and first id encode their number."""
    return [f"{k % 2}\t\t{k}\t{k + 1:08x}\t\tuser-{k}" for k in range(first, first + count)]


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    data = ("\n".join(lines) + end).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def numbers(batch: Batch) -> list[int]:
    return [int(k) - 1 for k in batch.ids[:, 0]]


def equal_batches(a: Batch, b: Batch) -> bool:
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def joined(batches: list[Batch]) -> Batch:
    return Batch(*(np.concatenate(columns) for columns in zip(*batches, strict=True)))


@relaxed
@given(
    kinds=st.lists(st.lists(LINES, max_size=60), min_size=1, max_size=4),
    suffix=st.sampled_from(["", ".gz"]),
    header=st.booleans(),
    end=st.sampled_from(["\n", ""]),
    block_bytes=st.sampled_from([64, 300, 1 << 20]),
    reads=ranges,
)
def test_lines_keep_their_numbers_for_any_ranges(
    tmp_path: Path, kinds: list[list[str]], suffix: str, header: bool, end: str, block_bytes: int,
    reads: list[tuple[int, int]],
) -> None:  # fmt: skip
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    row_by_line: list[int | None] = []
    for file, inner in enumerate(kinds):
        body = ["row", *inner, "1\t2"]
        rows = rows_of(len(row_by_line), len(body))
        lines = [row if kind == "row" else kind for kind, row in zip(body, rows, strict=True)]
        write(folder / f"{file}{suffix}", ["l\tn\tn\tx\ty\tz"] * header + lines, end)
        row_by_line += [len(row_by_line) + k if kind == "row" else None for k, kind in enumerate(body)]
    source = LogSamples(log_of(folder / "*", max_broken_share=1.0), block_bytes=block_bytes)
    for start, count in reads:
        expected = [row for k in range(start, start + count) if (row := row_by_line[k % len(row_by_line)]) is not None]
        batch = source.read(start, count)
        assert numbers(batch) == expected
        assert batch.dense[:, 1] == pytest.approx(np.log1p(expected))


@relaxed
@given(data=st.binary(max_size=300), block_bytes=st.sampled_from([64, 1 << 20]), cut=st.integers(1, 9))
def test_agrees_with_the_streaming_reader_over_bytes_of_any_kind(
    tmp_path: Path, data: bytes, block_bytes: int, cut: int
) -> None:
    data = (rows_of(0, 1)[0] + "\n").encode() + data
    (tmp_path / "log").write_bytes(data)
    expected = joined(list(log_of(tmp_path / "log", max_broken_share=1.0).batches(1000)))
    source = LogSamples(log_of(tmp_path / "log", max_broken_share=1.0), block_bytes=block_bytes)
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    assert equal_batches(expected, source.read(0, lines))
    assert equal_batches(expected, joined([source.read(k, min(cut, lines - k)) for k in range(0, lines, cut)]))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_every_third_range_decodes_little_else(tmp_path: Path, suffix: str) -> None:
    log = log_of(write(tmp_path / f"log{suffix}", rows_of(0, 30_000)))
    source, position = LogSamples(log), 0
    for start in range(0, 27_000, 3000):
        for part in range(start, start + 1000, 100):
            assert numbers(source.read(part, 100)) == list(range(part, part + 100))
            position += 100
    assert log.report.rows < 2 * position


def test_nothing_is_decoded_twice_in_order(tmp_path: Path) -> None:
    log = log_of(write(tmp_path / "log", rows_of(0, 30_000)))
    source = LogSamples(log)
    assert numbers(joined([source.read(k, 70) for k in range(0, 29_960, 70)])) == list(range(29_960))
    assert log.report.rows <= 30_000


def test_a_short_log_repeats_without_being_decoded_again(tmp_path: Path) -> None:
    log = log_of(write(tmp_path / "log", rows_of(0, 5)))
    source = LogSamples(log)
    assert numbers(source.read(3, 12)) == [3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert numbers(source.read(10**15, 3)) == [0, 1, 2]
    assert log.report.rows <= 10


def test_broken_rows_are_located_and_too_many_refused(tmp_path: Path) -> None:
    lines = rows_of(0, 3000)
    lines[2500] = BROKEN
    log = log_of(write(tmp_path / "log", ["l\tn\tn\tx\ty\tz", *lines]))
    assert numbers(LogSamples(log).read(2499, 3)) == [2499, 2501]
    assert (log.report.broken, log.report.faults[0].line) == (1, 2502)
    lines[::10] = [BROKEN] * 300
    source = LogSamples(log_of(write(tmp_path / "log", lines)))
    with pytest.raises(ClickLogError, match=r"of the first .* rows .* are broken"):
        [source.read(k, 100) for k in range(0, 3000, 100)]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_small_log_is_checked_for_broken_rows_at_its_end(tmp_path: Path, suffix: str) -> None:
    lines = rows_of(0, 199)
    lines[::10] = [BROKEN] * 20
    source = LogSamples(log_of(write(tmp_path / f"log{suffix}", ["l\tn\tn\tx\ty\tz", *lines])))
    assert len(source.read(0, 50).labels) == 45
    with pytest.raises(ClickLogError, match="20 of the first 199 rows"):
        source.read(50, 149)


def test_logs_without_rows(tmp_path: Path) -> None:
    source = LogSamples(log_of(write(tmp_path / "log", [BROKEN] * 5), max_broken_share=1.0))
    with pytest.raises(ClickLogError, match=r"All \d+ rows of .* are broken"):
        source.read(0, 9)
    for end, message in (("\n", "holds no rows"), ("\n\n \n", "holds no rows")):
        source = LogSamples(log_of(write(tmp_path / "log", ["l\tn\tn\tx\ty\tz"], end)))
        with pytest.raises(ClickLogError, match=message):
            source.read(0, 9)


def test_damaged_log_is_refused_at_every_read(tmp_path: Path) -> None:
    path = write(tmp_path / "log.gz", rows_of(0, 20_000))
    path.write_bytes(path.read_bytes()[:-2000])
    source = LogSamples(log_of(path))
    for _ in range(2):
        with pytest.raises(ClickLogError, match="cut short"):
            source.read(19_990, 20)


@settings(max_examples=40, deadline=None)
@given(reads=st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 3000)), min_size=1, max_size=5))
def test_synthetic_samples_depend_on_their_numbers_alone(reads: list[tuple[int, int]]) -> None:
    log = SyntheticLog([50, 70_000], dense_features=2)
    source, data = SyntheticSamples(log), SyntheticSamples(log).read(0, 12_000)
    for start, count in reads:
        assert equal_batches(source.read(start, count), Batch(*(column[start : start + count] for column in data)))


def test_synthetic_samples_keep_their_distribution() -> None:
    log = SyntheticLog([50, 70_000], seed=4)
    streamed, numbered = next(log.batches(200_000)), SyntheticSamples(log).read(10**12, 200_000)
    assert numbered.labels.mean() == pytest.approx(streamed.labels.mean(), abs=0.005)
    assert numbered.dense.mean(axis=0) == pytest.approx(streamed.dense.mean(axis=0), abs=0.02)
    frequencies = [np.bincount(batch.ids[:, 0], minlength=50) / 200_000 for batch in (numbered, streamed)]
    assert frequencies[0] == pytest.approx(frequencies[1], abs=0.005)
    assert len(np.unique(numbered.dense, axis=0)) > 199_000
    others = SyntheticSamples(SyntheticLog([50, 70_000], seed=5)).read(10**12, 100)
    assert not np.array_equal(others.ids, numbered.ids[:100])


def job(rows: object = (50, 7, 2000), **data: object) -> Job:
    tables = Tables.model_validate({"count": 3, "rows": rows})
    return Job(model=Model(dense_features=2, tables=tables), data=Data.model_validate(data))


def read_some(source: SampleSource) -> Batch:
    return source.read(90, 400)


@pytest.mark.parametrize("scale", [1.0, 0.1, 3.0])
def test_ids_fit_the_scaled_tables(tmp_path: Path, scale: float) -> None:
    write_criteo(tmp_path / "log", SyntheticLog([50, 7, 2000], dense_features=2), 300)
    for task in (job(zipf=0.0), job(format="criteo", path=str(tmp_path / "log"))):
        source = open_samples(task, scale=scale)
        copy = pickle.loads(pickle.dumps(source))
        batch = read_some(source)
        assert batch.ids.shape == (400, 3)
        assert batch.dense.shape == (400, 2)
        assert (batch.ids < np.array(task.model.tables.sizes(scale))).all()
        assert equal_batches(read_some(copy), batch)
    folded, plain = read_some(open_samples(task, scale=scale)), read_some(LogSamples(log_of(tmp_path / "log")))
    assert np.array_equal(folded.ids, plain.ids % np.array(task.model.tables.sizes(scale)))


def test_seed_is_that_of_synthetic_data() -> None:
    assert equal_batches(read_some(open_samples(job(), seed=3)), read_some(open_samples(job(), seed=3)))
    assert not equal_batches(read_some(open_samples(job(), seed=3)), read_some(open_samples(job(), seed=4)))


def test_invalid_job_or_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="not counted yet"):
        open_samples(job("from-data"))
    with pytest.raises(ClickLogError, match="There is no click log"):
        open_samples(job(format="criteo", path=str(tmp_path / "none")))
    for source in (open_samples(job()), LogSamples(log_of(write(tmp_path / "log", rows_of(0, 5))))):
        for start, count in ((-1, 5), (0, 0)):
            with pytest.raises(ValueError, match="no samples"):
                source.read(start, count)
