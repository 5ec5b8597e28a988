"""TorchRec's planner with constants that `sizewright calibrate torchrec` measured on one host.

Use it in place of `EmbeddingShardingPlanner`::

    from calibrated_planner import planner, sharders

    plan = planner(world_size=2, batch_size=512, constraints=constraints).collective_plan(model, sharders())
    model = DistributedModelParallel(model, plan=plan, sharders=sharders())

or take its parts, `topology` and `estimators`, into a planner of your own. Times are in ms, bandwidths in bytes/ms, as
in TorchRec. The constants hold for ranks with one thread each, on CPU, on this host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorFactory,
    EstimatorPerfCoefficients,
    HardwarePerfConfig,
    PerfCoefficient,
    PerfCoefficientConfig,
    ShardPerfContext,
)
from torchrec.distributed.planner.estimator.annotations import (
    backward_compute,
    use_block_usage_penalty,
    use_min_dim_for_lookup,
)
from torchrec.distributed.planner.estimator.estimator import get_embedding_perf_sharding_evaluator
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    CollectiveType,
    GeneralizedCommsBandwidth,
    Perf,
    PerfModel,
    ShardingOption,
    Storage,
)
from torchrec.distributed.types import ShardingType

Constants = Mapping[str, float]
Constraints = dict[str, ParameterConstraints]

# CONSTANTS BEGIN
CONSTANTS: Constants = {}
# CONSTANTS END

_DATA_PARALLEL = ShardingType.DATA_PARALLEL.value
_NO_COST = 1e30
"""Bandwidth of an exchange that a rank has with itself."""


def planner(
    world_size: int, batch_size: int, constraints: Constraints | None = None, **more: Any
) -> EmbeddingShardingPlanner:
    """Return a planner for `world_size` ranks on this host, with `batch_size` samples each."""
    hosts = topology(world_size)
    enumerator = EmbeddingEnumerator(
        hosts, batch_size=batch_size, constraints=constraints, estimator=estimators(hosts, constraints)
    )
    return EmbeddingShardingPlanner(
        topology=hosts,
        batch_size=batch_size,
        enumerator=enumerator,
        performance_model=MeasuredStep(hosts),
        constraints=constraints,
        **{"debug": False, **more},
    )


def topology(world_size: int, constants: Constants | None = None, **more: Any) -> Topology:
    """Return the topology of `world_size` ranks on this host."""
    measured = CONSTANTS if constants is None else constants
    return Topology(
        world_size=world_size,
        compute_device="cpu",
        **{
            "local_world_size": world_size,
            "ddr_mem_bw": measured["memory_bandwidth"],
            "bwd_compute_multiplier": measured["bwd_compute_multiplier"],
            "generalized_comms_bandwidths": MeasuredBandwidths(measured),
            **more,
        },
    )


def estimators(
    hosts: Topology, constraints: Constraints | None = None, constants: Constants | None = None
) -> list[Any]:
    """Return the estimators of time and of storage, as `EmbeddingEnumerator` takes them."""
    measured = CONSTANTS if constants is None else constants
    time = EmbeddingPerfEstimatorFactory.create_with_config(
        MeasuredHardware(measured), topology=hosts, constraints=constraints
    )
    return [time, MeasuredStorage(hosts, constraints, measured)]


def sharders() -> list[Any]:
    """Return sharders that also offer row-wise sharding, which TorchRec's own do not on CPU."""
    return [RowWiseSharder()]


class RowWiseSharder(EmbeddingBagCollectionSharder):  # type: ignore[misc]
    """A sharder of bags that offers row-wise sharding on every device."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return the ways in which a table may be sharded."""
        offered = super().sharding_types(compute_device_type)
        return [*offered, *({ShardingType.ROW_WISE.value} - set(offered))]


@use_min_dim_for_lookup(False)
@use_block_usage_penalty(False)
class MeasuredHardware(HardwarePerfConfig):  # type: ignore[misc]
    """The measured coefficients of compute. A CPU has no blocks of threads, so that no dimension is penalised."""

    name = "measured"

    def __init__(self, constants: Constants) -> None:
        self._shard_ms = constants["shard_ms"]
        self._distinct_row_ms = constants["distinct_row_ms"]
        self.kernel_device_bandwidths = {
            ("cpu", "fused"): constants["fused_bandwidth"],
            ("cpu", "dense"): constants["dense_bandwidth"],
        }
        fused, copied = (_coefficients(constants, kernel) for kernel in ("fused", "data_parallel"))
        self._coefficients = PerfCoefficientConfig(
            data_parallel=copied, default=fused, bwd_compute_multiplier=constants["bwd_compute_multiplier"]
        )

    @backward_compute  # type: ignore[untyped-decorator]
    def backward(self, ctx: ShardPerfContext) -> float:
        """Return the time of a backward: TorchRec's, and that of updating each distinct row once.

        Ids are taken as uniform: skewed ones have fewer distinct rows.
        """
        evaluator = get_embedding_perf_sharding_evaluator(ctx.sharding_type)
        usual: float = evaluator._default_bwd_comp(ctx, self)
        if ctx.sharding_type == _DATA_PARALLEL or not ctx.hash_size:
            return usual
        ids = evaluator.get_batch_inputs(ctx, self) * ctx.world_size
        distinct = ctx.hash_size * -math.expm1(-ids / ctx.hash_size)
        updates: float = self._distinct_row_ms * distinct
        return usual + updates

    def post_process_perfs(
        self,
        shard_perfs: list[Perf],
        shard_sizes: list[list[int]],
        sharding_type: str,
        uneven_sharding_perf_multiplier: float = 1.0,
    ) -> list[Perf]:
        """Add the time that a shard takes however little is read of it."""
        for perf in shard_perfs:
            perf.fwd_compute += self._shard_ms
        return shard_perfs


def _coefficients(constants: Constants, kernel: str) -> EstimatorPerfCoefficients:
    return EstimatorPerfCoefficients(
        fwd=PerfCoefficient(
            input_read_size_multiplier=constants[f"{kernel}_input"],
            lookup_size_multiplier=constants[f"{kernel}_lookup"],
            embedding_output_multiplier=constants[f"{kernel}_output"],
        )
    )


class MeasuredBandwidths(GeneralizedCommsBandwidth):  # type: ignore[misc]
    """The measured bandwidth of each collective between ranks of one host."""

    def __init__(self, constants: Constants) -> None:
        self._by_type = {
            CollectiveType.ALL_TO_ALL: constants["all_to_all_bandwidth"],
            CollectiveType.REDUCE_SCATTER: constants["reduce_scatter_bandwidth"],
            CollectiveType.ALL_GATHER: constants["reduce_scatter_bandwidth"],
            CollectiveType.ALL_REDUCE: constants["all_reduce_bandwidth"],
        }

    def get_bw(self, local_world_size: int, world_size: int, collective_type: CollectiveType) -> float:
        """Return the bandwidth; one rank alone has nothing to send."""
        return self._by_type[collective_type] if world_size > 1 else _NO_COST

    @property
    def intra_host_bw(self) -> float:
        """The bandwidth within a host."""
        return self._by_type[CollectiveType.ALL_TO_ALL]

    @property
    def inter_host_bw(self) -> float:
        """The bandwidth between hosts, which was not measured: that within a host."""
        return self._by_type[CollectiveType.ALL_TO_ALL]


class MeasuredStep(PerfModel):  # type: ignore[misc]
    """The time of a step: that of the slowest rank, and what a step takes whatever is read."""

    def __init__(self, hosts: Topology, constants: Constants | None = None) -> None:
        self._ranks = hosts.world_size
        self._constants = CONSTANTS if constants is None else constants

    def rate(self, plan: list[ShardingOption]) -> float:
        """Return the time of a step in ms."""
        return max(self.times(plan))

    def times(self, plan: Sequence[ShardingOption]) -> list[float]:
        """Return the time of a step in ms, as each rank alone would need it."""
        ways = {option.sharding_type for option in plan}
        fixed = self._constants["step_ms"] + self._constants["table_ms"] * len(plan)
        if self._ranks > 1:
            fixed += self._constants["exchange_ms"] * len(ways - {_DATA_PARALLEL})
            fixed += self._constants["data_parallel_ms"] * (_DATA_PARALLEL in ways)
        times = [fixed] * self._ranks
        for option in plan:
            for shard in option.shards:
                times[shard.rank] += shard.perf.total
        return times


class MeasuredStorage(EmbeddingStorageEstimator):  # type: ignore[misc]
    """The storage that TorchRec counts, times what a measured peak had of it."""

    def __init__(self, hosts: Topology, constraints: Constraints | None, constants: Constants) -> None:
        super().__init__(topology=hosts, constraints=constraints)
        self._constants = constants

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: Any) -> None:
        """Set the storage of each shard."""
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            name = "data_parallel_storage" if option.sharding_type == _DATA_PARALLEL else "fused_storage"
            for shard in option.shards:
                counted = shard.storage
                shard.storage = Storage(
                    hbm=counted.hbm, ddr=round(counted.ddr * self._constants[name]), ssd=counted.ssd
                )
