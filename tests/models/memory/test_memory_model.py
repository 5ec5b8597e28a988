from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import GIB, MIB
from sizewright.models.memory.embedding import peak_of
from sizewright.models.memory.memory_model import (
    DEFAULT_PS_BASE_BYTES,
    DEFAULT_WORKER_BASE_BYTES,
    MARGIN,
    MemoryModel,
    dense_floats,
    index_bytes,
    largest_partition,
    row_bytes,
    state_floats,
)
from sizewright.models.memory.report import report
from sizewright.spec import Bounds, Cluster, HostKind, Job, Model, Optimizer, Quota, RoleBounds, Tables
from sizewright.training.ps.dense import dense_rule
from sizewright.training.ps.hash_index import HashIndex
from sizewright.training.ps.optimizers import RULES
from sizewright.training.worker.networks import make_network

OPTIMIZERS = list(RULES)
FAMILIES = ["dlrm", "wide_deep", "dcn", "xdeepfm"]


def job(
    rows: tuple[int, ...] = (100_000, 50_000),
    dim: int | tuple[int, ...] = 8,
    optimizer: str = "adagrad",
    pooling: int | tuple[int, ...] = 1,
    **change: object,
) -> Job:
    tables = Tables(count=len(rows), rows=rows, dim=dim, pooling=pooling)
    return Job(model=Model(tables=tables, optimizer=Optimizer(name=optimizer), **change))  # type: ignore[arg-type]


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


@given(st.sampled_from(OPTIMIZERS), st.integers(1, 512))
def test_optimizer_state_is_what_the_update_rules_keep(optimizer: str, width: int) -> None:
    assert state_floats(optimizer, width) == RULES[optimizer](0.1).state_width(width)


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_row"), [("sgd", 64), ("rowwise_adagrad", 68), ("adagrad", 128), ("adam", 192)]
)
def test_bytes_of_a_row_of_dimension_16(optimizer: str, bytes_per_row: int) -> None:
    assert set(row_bytes(job(dim=16, optimizer=optimizer))) == {bytes_per_row}


def test_a_linear_weight_widens_the_rows_of_wide_families() -> None:
    assert [row_bytes(job(dim=16, optimizer="sgd", family=family))[0] for family in FAMILIES] == [64, 68, 64, 68]


@given(st.integers(0, 20_000))
@settings(deadline=None)
def test_the_index_is_as_large_as_the_engines(rows: int) -> None:
    """Its places, a key a row, and the mark that the store keeps for each."""
    index = HashIndex(rows)
    index.find_or_add(np.arange(rows, dtype=np.int64))
    assert index_bytes(one(rows))[0] == index.nbytes + rows


@pytest.mark.parametrize(("rows", "places"), [(0, 1024), (512, 1024), (513, 2048), (1024, 2048), (2**20, 2**21)])
def test_hash_index_is_at_most_half_full(rows: int, places: int) -> None:
    assert index_bytes(one(rows))[0] == 4 * places + 9 * rows


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "change", [{}, {"dense_features": 3, "top_mlp": (7,), "bottom_mlp": ()}, {"cross_layers": 1, "cin": (5, 4, 3)}]
)
def test_dense_weights_are_those_of_the_real_networks(family: str, change: dict[str, object]) -> None:
    described = job((50, 60, 70), dim=4, family=family, **change)
    assert dense_floats(described) == sum(p.numel() for p in make_network(described.model).parameters())


@given(st.integers(1, 10**9), st.integers(1, 64))
def test_the_fullest_partition_lies_between_the_mean_and_all(rows: int, ps: int) -> None:
    largest = largest_partition(float(rows), one(ps))[0]
    assert rows / ps <= largest <= rows
    assert largest <= rows / ps * 1.01 + 500 * (ps > 1) * max(1.0, (rows / ps) ** 0.5 / 100)


def test_the_fullest_partition_of_real_hashed_keys_is_covered() -> None:
    rng = np.random.default_rng(0)
    for rows, ps in [(1000, 2), (1000, 7), (100_000, 4)]:
        fullest = [np.bincount(rng.integers(0, ps, rows)).max() for _ in range(50)]
        assert max(fullest) <= largest_partition(float(rows), one(ps))[0]


def test_the_fullest_ps_counted_by_hand() -> None:
    described = job((100_000, 50_000), dim=8, optimizer="adagrad")
    dense = dense_floats(described)
    rows = 150_000 / 2 + 4 * (150_000 / 2) ** 0.5
    want = rows * ((8 + 8) * 4 + 9) + 2**18 * 4 + dense * 4 * 2 / 2 + 3 * 4 * (512 * 2 * (8 + 2) + 2 * dense) / 2
    assert MemoryModel(described, 0.0, 0.0).ps_bytes(one(2), one(3))[0] == pytest.approx(want, rel=1e-12)


SIZES = st.integers(1, 10**7)


@given(rows=SIZES, more=SIZES, ps=st.integers(1, 30), more_ps=st.integers(1, 30), workers=st.integers(1, 50))
@settings(max_examples=200)
def test_a_ps_needs_no_less_with_more_rows_and_no_more_with_more_ps(
    rows: int, more: int, ps: int, more_ps: int, workers: int
) -> None:
    small, large = MemoryModel(job((rows,))), MemoryModel(job((rows + more,)))
    assert small.ps_request_bytes(one(ps), one(workers)) <= large.ps_request_bytes(one(ps), one(workers))
    assert small.ps_request_bytes(one(ps + more_ps), one(workers)) <= small.ps_request_bytes(one(ps), one(workers))
    assert small.ps_request_bytes(one(ps), one(workers)) <= small.ps_request_bytes(one(ps), one(workers + 1))


@given(
    peaks=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 2**40), st.sampled_from([1.0, None])), min_size=1, max_size=5
    ),
    ps=st.integers(1, 8),
    workers=st.integers(1, 8),
)
def test_a_request_is_never_below_the_measured_sum_of_peaks_times_the_largest_share(
    peaks: list[tuple[int, int, float | None]], ps: int, workers: int
) -> None:
    trials = [
        Trial(workers=1, ps=n, throughput=1.0, ps_memory_bytes=peak, table_scale=scale) for n, peak, scale in peaks
    ]
    model = MemoryModel.fit(job(), trials)
    share = largest_partition(150_000.0, one(ps))[0] / 150_000
    measured = max(n * peak for n, peak, _ in peaks)
    assert model.ps_request_bytes(one(ps), one(workers))[0] >= measured * share * (1 - 1e-12)
    assert model.trials == len(peaks)


def test_the_margin_is_15_percent() -> None:
    model = MemoryModel(job())
    assert MARGIN == 0.15
    assert model.ps_request_bytes(one(2), one(2)) == pytest.approx(1.15 * model.ps_bytes(one(2), one(2)))
    assert model.worker_request_bytes(one(512)) == pytest.approx(1.15 * model.worker_bytes(one(512)))


def test_constants_are_the_largest_excess_of_measured_peaks() -> None:
    described = job()
    bare = MemoryModel(described, 0.0, 0.0)
    trials = [
        Trial(
            workers=w, ps=p, throughput=1.0, batch_size=b, table_scale=s,
            ps_memory_bytes=round(bare.ps_bytes(one(p), one(w), s, one(b))[0]) + extra * MIB,
            worker_memory_bytes=round(bare.worker_bytes(one(b))[0]) + 2 * extra * MIB,
        )
        for w, p, b, s, extra in [(1, 1, 512, 1.0, 90), (2, 2, 256, 0.25, 110), (3, 1, 512, 0.0625, 100)]
    ]  # fmt: skip
    model = MemoryModel.fit(described, trials)
    assert model.ps_base_bytes == pytest.approx(110 * MIB, abs=2)
    assert model.worker_base_bytes == pytest.approx(220 * MIB, abs=2)
    assert MemoryModel.fit(described, pd.DataFrame([t.model_dump() for t in trials])) == model


def test_failed_trials_and_trials_without_peaks_are_ignored() -> None:
    ended_badly = [
        Trial(workers=1, ps=1, status=status, throughput=1.0, ps_memory_bytes=2**40, worker_memory_bytes=2**40)  # type: ignore[arg-type]
        for status in ("oom", "failed", "void")
    ]
    no_ps = Trial(workers=1, ps=0, throughput=1.0, ps_memory_bytes=2**40)
    model = MemoryModel.fit(job(), [*ended_badly, no_ps, Trial(workers=1, ps=1, throughput=1.0)])
    assert model == MemoryModel(job(), DEFAULT_PS_BASE_BYTES, DEFAULT_WORKER_BASE_BYTES)


@given(st.floats(1e6, 1e12))
def test_fitting_scale_is_the_largest_power_of_one_half(limit: float) -> None:
    model = MemoryModel(job((10_000_000,)))

    def need(scale: float) -> float:
        return float(model.ps_bytes(one(1), one(1), scale)[0])

    scale = model.scale_that_fits(limit)
    if scale > 1e-6:
        assert need(scale) <= limit
    assert scale == 1.0 or need(2 * scale) > limit


def test_parts_of_the_report_sum_to_its_total() -> None:
    described = job((100_000, 50_000, 7), dim=8, optimizer="adam")
    answer = report(described, [])
    assert [t.rows for t in answer.tables] == [100_000, 50_000, 7]
    assert [(t.rows_lower, t.rows_upper) for t in answer.tables] == [(t.rows, t.rows) for t in answer.tables]
    assert [t.weight_bytes for t in answer.tables] == [32 * t.rows for t in answer.tables]
    assert [t.state_bytes for t in answer.tables] == [64 * t.rows for t in answer.tables]
    assert answer.embedding_bytes == 96 * 150_007 == 150_007 * row_bytes(described)[0]
    assert answer.index_bytes == sum(t.index_bytes for t in answer.tables)
    assert answer.index_bytes == pytest.approx(4 * 2**19 + 9 * 150_007, abs=3)
    assert sum(t.total_bytes for t in answer.tables) == answer.embedding_bytes + answer.index_bytes
    assert answer.margin == MARGIN
    assert "nothing was measured" in answer.rests_on


def test_the_report_names_the_fewest_ps_that_fit_the_bounds() -> None:
    described = job((4_000_000,), dim=16)
    need = {option.ps: option.memory_bytes for option in report(described, []).servers}
    for ps in (1, 2, 3):
        tight = RoleBounds(replicas=(1, 4), memory=(0, need[ps]))
        answer = report(described.model_copy(update={"bounds": Bounds(ps=tight)}), [])
        assert answer.least_ps == ps
        assert [option.fits for option in answer.servers] == [n >= ps for n in (1, 2, 3, 4)]
    none = described.model_copy(update={"bounds": Bounds(ps=RoleBounds(memory=(0, MIB)))})
    assert report(none, []).least_ps is None
    at_least_three = described.model_copy(update={"bounds": Bounds(ps=RoleBounds(replicas=(3, 4)))})
    assert report(at_least_three, []).least_ps == 3


def test_report_compares_with_the_cluster() -> None:
    described = job((4_000_000,), dim=16)
    need = {option.ps: option.memory_bytes for option in report(described, []).servers}
    small_hosts = Cluster(hosts=(HostKind(kind="h", count=9, cpu=4, memory=need[2]),))
    assert report(described, [], small_hosts).least_ps == 2
    in_all = need[1] + report(described, []).worker_memory_bytes
    quota = Cluster(hosts=(HostKind(kind="h", cpu=4, memory=64 * GIB),), quota=Quota(memory=in_all))
    assert [option.fits for option in report(described, [], quota).servers] == [True, False, False, False]


def test_report_uses_trials() -> None:
    trials = [Trial(workers=1, ps=1, throughput=1.0, ps_memory_bytes=GIB, worker_memory_bytes=GIB)] * 2
    answer = report(job(), trials)
    assert answer.rests_on == "2 trials with measured peaks"
    assert answer.servers[0].memory_bytes >= GIB


def test_report_has_ranges_of_estimated_tables() -> None:
    answer = report(job((100, 200)), [], ranges=[(90, 110), (150, 260)])
    assert [(t.rows_lower, t.rows_upper) for t in answer.tables] == [(90, 110), (150, 260)]


def test_memory_is_counted_table_by_table() -> None:
    """Tables of one width share an index; each of the others has its own."""
    described = job((100_000, 50_000, 3_000), dim=(8, 32, 8), optimizer="rowwise_adagrad")
    tables = report(described, []).tables
    assert [table.weight_bytes for table in tables] == [4 * 8 * 100_000, 4 * 32 * 50_000, 4 * 8 * 3_000]
    assert [(table.dim, table.pooling) for table in tables] == [(8, 1), (32, 1), (8, 1)]
    assert [table.state_bytes for table in tables] == [4 * 100_000, 4 * 50_000, 4 * 3_000]
    eights, wide = (float(index_bytes(np.array([rows]))[0]) for rows in (103_000.0, 50_000.0))
    assert tables[0].index_bytes + tables[2].index_bytes == pytest.approx(eights, abs=2)
    assert tables[1].index_bytes == pytest.approx(wide, abs=2)
    one_ps = MemoryModel(described, ps_base_bytes=0.0).ps_bytes(one(1), one(0))[0]
    counted = sum(table.weight_bytes + table.state_bytes + table.index_bytes for table in tables)
    assert one_ps == pytest.approx(counted + 4 * 2 * dense_floats(described), rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dim", [8, (8, 4, 16)])
def test_dense_weights_are_those_of_the_network_whatever_the_dimensions(
    family: str, dim: int | tuple[int, ...]
) -> None:
    described = job((10, 20, 30), dim=dim, family=family)
    assert dense_floats(described) == sum(weights.numel() for weights in make_network(described.model).parameters())


def test_more_ids_a_sample_cost_a_worker_and_the_buffers_of_a_ps_more() -> None:
    single, pooled = (job((1000, 1000), pooling=pooling) for pooling in (1, (1, 9)))
    more_ids = 512 * 8 * (8 + 2) * 4
    worker, server = (
        [method(MemoryModel(each)) for each in (single, pooled)]
        for method in (lambda m: m.worker_bytes(one(512))[0], lambda m: m.ps_bytes(one(1), one(3), 1.0, one(512))[0])
    )
    assert worker[1] - worker[0] == pytest.approx(2 * more_ids)
    assert server[1] - server[0] == pytest.approx(3 * more_ids)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_dense_weights_have_the_state_that_the_engine_keeps_for_them(optimizer: str) -> None:
    """Each is a row of its own there."""
    it, plain = (job(optimizer=name) for name in (optimizer, "sgd"))
    peak, plain_peak = (MemoryModel(each).ps_bytes(one(1), one(1))[0] for each in (it, plain))
    of_rows = float(sum(it.model.tables.sizes())) * (row_bytes(it)[0] - row_bytes(plain)[0])
    kept = dense_rule(it.model.optimizer).state_width(1)
    assert peak - plain_peak == pytest.approx(of_rows + 4 * kept * dense_floats(it))


def test_memory_of_the_fewest_workers_counts_towards_the_cluster() -> None:
    described = job().model_copy(update={"bounds": Bounds(worker=RoleBounds(replicas=(4, 8)))})
    alone = report(described, [])
    need = min(server.ps * server.memory_bytes for server in alone.servers)
    capacity = need + 4 * alone.worker_memory_bytes
    for missing_bytes, fits in ((0, True), (1, False)):
        hosts = (HostKind(kind="h", cpu=64, memory=capacity - missing_bytes),)
        answer = report(described, [], Cluster(hosts=hosts))
        assert any(server.fits for server in answer.servers) is fits
        assert (answer.needed_ps is not None) is fits


DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "int8": 1}
STATE_VALUES = {
    "sgd": lambda width: 0, "lars_sgd": lambda width: width, "adagrad": lambda width: width,
    "rowwise_adagrad": lambda width: 1, "adam": lambda width: 2 * width, "rowwise_adam": lambda width: width + 1,
    "lamb": lambda width: 2 * width, "rowwise_lamb": lambda width: width + 1,
}  # fmt: skip
TABLE = st.tuples(
    st.integers(1, 10**6), st.integers(1, 300), st.sampled_from([*DTYPES]), st.sampled_from([*STATE_VALUES])
)


def described(tables: list[tuple[int, int, str, str]]) -> Job:
    rows, dims, dtypes, optimizers = zip(*tables, strict=True)
    fields = {"count": len(tables), "rows": rows, "dim": dims, "dtype": dtypes, "optimizer": optimizers}
    return Job.model_validate({"model": {"tables": fields}})


@given(st.lists(TABLE, min_size=1, max_size=8))
def test_tables_of_any_data_type_and_optimizer_are_counted_one_by_one(tables: list[tuple[int, int, str, str]]) -> None:
    answer = report(described(tables), [])
    for (rows, dim, dtype, optimizer), table in zip(tables, answer.tables, strict=True):
        assert table.weight_bytes == rows * (dim * DTYPES[dtype] + (8 if dtype == "int8" else 0))
        assert table.state_bytes == rows * 4 * STATE_VALUES[optimizer](dim)
        assert (table.dtype, table.optimizer) == (dtype, optimizer)
    assert answer.embedding_bytes == sum(table.weight_bytes + table.state_bytes for table in answer.tables)
    # One PS holds all of it: the rows, the dense weights and its base, then the margin.
    assert answer.servers[0].memory_bytes > answer.embedding_bytes + answer.index_bytes


@given(st.permutations([("float32", "adam"), ("float16", "sgd"), ("float16", "adam"), ("int8", "rowwise_adagrad")]))
def test_memory_of_a_ps_does_not_depend_on_the_order_of_the_tables(kinds: list[tuple[str, str]]) -> None:
    first = described([(50_000, 16, *kind) for kind in sorted(kinds)])
    second = described([(50_000, 16, *kind) for kind in kinds])
    ps = np.arange(1.0, 9.0)
    assert MemoryModel(first).ps_bytes(ps, ps) == pytest.approx(MemoryModel(second).ps_bytes(ps, ps))


def test_the_forecast_of_growing_tables_counts_their_data_type() -> None:
    wide, narrow = (described([(10_000, 64, dtype, "sgd")]) for dtype in ("float32", "float16"))
    rows = [np.full(4, 10_000.0)]
    peaks = [peak_of(each, rows, 1, 0.0, 10_000.0).value for each in (wide, narrow)]
    assert peaks[0] - peaks[1] == pytest.approx(10_000 * 64 * 2)
