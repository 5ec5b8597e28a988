"""Measure steps of TorchRec in one rank. This script runs in an environment with TorchRec, which may lack Sizewright.

Its argument is a file that `measure.py` writes: what to do, for which cases. Rank 0 prints a line per finished case; at
the end each rank writes its results. It ends when its standard input ends, so that it never outlives its parent.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

WARM_STEPS = 3
MIN_ROUNDS, AGREEMENT = 2, 1.08
BATCHES = 4
"""Batches that are drawn in advance and used in turn."""
MEMORY_STEPS = 3
PROBE_BYTES = 16 << 20


def main() -> None:
    """Do the task of the file that the first argument names, as the rank that the second one names."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = int(sys.argv[2])
    if task["mode"] == "probe":
        _write(task, rank, probed())
        return
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    ranks = task["ranks"]
    if task["mode"] in ("time", "memory"):
        dist.init_process_group(
            "gloo",
            init_method=f"file://{task['rendezvous']}",
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=task["timeout_s"]),
        )
    results = {"time": timed, "memory": remembered, "estimate": estimated, "place": placed}
    _write(task, rank, results[task["mode"]](task, rank))
    if dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of gloo may abort the interpreter's shutdown


def _write(task: dict[str, Any], rank: int, answer: dict[str, Any]) -> None:
    Path(task["folder"], f"result-{rank}.json").write_text(json.dumps(answer), encoding="utf-8")


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def timed(task: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the bandwidths of this host, and of each case the times of its forward and backward in ms.

    Other work on the host only ever makes a step longer. So cases are measured in rounds, one after the other, until
    the two shortest lower quartiles of a case agree, or `max_rounds` are over; the shortest one counts.
    """
    probes = _bandwidths(task["ranks"])
    quartiles: list[list[tuple[float, float]]] = [[] for _ in task["cases"]]
    for number in range(task["max_rounds"]):
        for case, of_case in zip(task["cases"], quartiles):  # noqa: B905 (Python 3.9 has no `strict`)
            if number < MIN_ROUNDS or not _agree(of_case):  # the same on each rank, as times are exchanged
                model = _Model(case, task["planner_file"], rank)
                steps = sorted(model.time(task["step_s"], task["max_steps"]), key=sum)
                of_case.append(steps[len(steps) // 4])
                del model
                gc.collect()
            if rank == 0:
                print("done", flush=True)
    return {"probes": probes, "times_ms": [min(each, key=sum) for each in quartiles]}


def _agree(quartiles: list[tuple[float, float]]) -> bool:
    first, second = sorted(map(sum, quartiles))[:2]
    return second <= AGREEMENT * first


def remembered(task: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return of each case the bytes that its model and steps added, at the peak and afterwards.

    Rows of weights and of optimizer state are all written once, as in a training that has seen every id.
    """
    _Model(task["cases"][0], task["planner_file"], rank).step()  # loads what all cases need
    found = []
    for case in task["cases"]:
        gc.collect()
        _release()
        before = _status_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        model = _Model(case, task["planner_file"], rank)
        model.touch()
        for _ in range(MEMORY_STEPS):
            model.step()
        peak = _status_bytes("VmHWM") - before
        model.forget_batches()
        gc.collect()
        _release()
        found.append({"peak": peak, "resident": _status_bytes("VmRSS") - before})
        del model
        if rank == 0:
            print("done", flush=True)
    return {"memory": found}


def estimated(task: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return of each case what the planner estimates of each rank, with each of several sets of constants.

    Without constants these are TorchRec's own estimates.
    """
    found = []
    for case in task["cases"]:
        planned = _Planned(case, task["planner_file"])
        found.append([planned.estimate(constants) for constants in task["constants"]])
        print("done", flush=True)
    return {"estimates": found}


def placed(task: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return of each case the rank of each table in TorchRec's own plan, and the estimated time of each table."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner

    found = []
    for case in task["cases"]:
        planned = _Planned(case, task["planner_file"])
        planner = EmbeddingShardingPlanner(
            topology=planned.topology, batch_size=case["batch"], constraints=planned.constraints, debug=False
        )
        began = time.perf_counter()
        plan = planner.plan(planned.tables, planned.sharders).plan[""]
        seconds = time.perf_counter() - began
        names = [f"table_{number}" for number in range(len(case["tables"]))]
        times = {option.name: sum(shard.perf.total for shard in option.shards) for option in planned.options}
        found.append(
            {
                "ranks": [plan[name].ranks[0] for name in names],
                "times_ms": [times[name] for name in names],
                "seconds": seconds,
            }
        )
        print("done", flush=True)
    return {"placements": found}


def probed() -> dict[str, Any]:
    """Return the versions that are installed, without the seconds that an import takes."""
    from importlib.metadata import version
    from importlib.util import find_spec

    for name in ("torch", "torchrec", "fbgemm_gpu"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named '{name}'")
    return {"versions": {name: version(name) for name in ("torch", "torchrec")}}


class _Planned:
    """The tables of a case, and a plan with the sharding types that it names."""

    def __init__(self, case: dict[str, Any], planner_file: str) -> None:
        import torch
        from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
        from torchrec.distributed.planner import ParameterConstraints, Topology
        from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
        from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
        from torchrec.optim import Adagrad, RowWiseAdagrad
        from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

        self.case = case
        self.file = _load(planner_file)
        self.sharders = self.file.sharders()
        self.names = [f"table_{number}" for number in range(len(case["tables"]))]
        self.tables = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(name=name, embedding_dim=dim, num_embeddings=rows, feature_names=[name])
                for name, (rows, dim, _) in zip(self.names, case["tables"])  # noqa: B905
            ],
            device=torch.device("meta"),
        )
        optimizer = {"rowwise_adagrad": RowWiseAdagrad, "adagrad": Adagrad}[case["optimizer"]]
        self.constraints = {}
        for name, (_, dim, pooling), way in zip(self.names, case["tables"], case["types"]):  # noqa: B905
            if way != "data_parallel":
                weights = self.tables.embedding_bags[name].weight
                apply_optimizer_in_backward(optimizer, [weights], {"lr": 0.02})
            self.constraints[name] = ParameterConstraints(
                sharding_types=[way],
                pooling_factors=[float(pooling)],
                min_partition=dim // 2 if way == "column_wise" else None,
            )
        ranks = case["ranks"]
        self.topology = Topology(world_size=ranks, compute_device="cpu", local_world_size=ranks)
        self.enumerator = EmbeddingEnumerator(self.topology, case["batch"], self.constraints)
        options = self.enumerator.enumerate(self.tables, self.sharders)
        self.options = GreedyPerfPartitioner().partition(options, self.topology)
        if case["at_random"]:
            self._place_at_random()

    def _place_at_random(self) -> None:
        import random

        rng = random.Random(self.case["seed"])
        for option in sorted(self.options, key=lambda each: each.name):
            if option.sharding_type in ("table_wise", "column_wise"):
                for shard in option.shards:
                    shard.rank = rng.randrange(self.case["ranks"])

    def plan(self) -> Any:
        from torchrec.distributed.planner.planners import to_sharding_plan

        return to_sharding_plan(self.options, self.topology)

    def estimate(self, constants: dict[str, float] | None) -> dict[str, Any]:
        """Return the estimated step in ms and the storage in bytes of each rank, with some constants or TorchRec's."""
        from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
        from torchrec.distributed.planner.perf_models import NoopPerfModel

        if constants is None:
            self.enumerator.populate_estimates(self.options)
            times = [0.0] * self.topology.world_size
            for option in self.options:
                for shard in option.shards:
                    times[shard.rank] += shard.perf.total
            step = NoopPerfModel(self.topology).rate(self.options)
        else:
            hosts = self.file.topology(self.topology.world_size, constants)
            estimators = self.file.estimators(hosts, self.constraints, constants)
            enumerator = EmbeddingEnumerator(hosts, self.case["batch"], self.constraints, estimators)
            enumerator.enumerate(self.tables, self.sharders)  # lets it know the sharders
            enumerator.populate_estimates(self.options)
            model = self.file.MeasuredStep(hosts, constants)
            times, step = model.times(self.options), model.rate(self.options)
        parts = {"fused": [0] * self.topology.world_size, "data_parallel": [0] * self.topology.world_size}
        for option in self.options:
            part = parts["data_parallel" if option.sharding_type == "data_parallel" else "fused"]
            for shard in option.shards:
                part[shard.rank] += shard.storage.ddr
        return {"times_ms": times, "step_ms": step, "storage": parts}


class _Model:
    """A sharded model of a case, with batches."""

    def __init__(self, case: dict[str, Any], planner_file: str, rank: int) -> None:
        import torch
        from torchrec import KeyedJaggedTensor
        from torchrec.distributed import DistributedModelParallel

        planned = _Planned(case, planner_file)
        self._model = DistributedModelParallel(
            planned.tables, device=torch.device("cpu"), plan=planned.plan(), sharders=planned.sharders
        )
        copied = {name for name, way in zip(planned.names, case["types"]) if way == "data_parallel"}  # noqa: B905
        dense = [each for name, each in self._model.named_parameters() if name.split(".")[-2] in copied]
        self._optimizer = torch.optim.Adagrad(dense, lr=0.01) if dense else None
        draw = torch.Generator().manual_seed(1000 * case["seed"] + rank)
        self._batches = []
        for _ in range(BATCHES):
            values, lengths = [], []
            for rows, _, pooling in case["tables"]:
                lengths.append(torch.randint(1, 2 * pooling, (case["batch"],), generator=draw))
                values.append(torch.randint(rows, (int(lengths[-1].sum()),), generator=draw))
            self._batches.append(
                KeyedJaggedTensor.from_lengths_sync(planned.names, torch.cat(values), torch.cat(lengths))
            )
        self._steps = 0

    def step(self) -> tuple[float, float]:
        """Train one batch and return the seconds of its forward and its backward, the update included."""
        import torch

        batch = self._batches[self._steps % len(self._batches)]
        self._steps += 1
        start = time.perf_counter()
        values = self._model(batch).values()
        middle = time.perf_counter()
        if self._optimizer:
            self._optimizer.zero_grad()
        values.backward(torch.ones_like(values))
        if self._optimizer:
            self._optimizer.step()
        return middle - start, time.perf_counter() - middle

    def time(self, budget_s: float, max_steps: int) -> list[tuple[float, float]]:
        """Return the forward and the backward of some steps in ms, each as the slowest rank had it."""
        import torch
        import torch.distributed as dist

        for _ in range(WARM_STEPS):
            self.step()
        dist.barrier()
        last = sum(self.step())
        count = torch.tensor([min(max(5, int(budget_s / last)), max_steps)])
        dist.all_reduce(count, dist.ReduceOp.MIN)  # all ranks train as many steps
        dist.barrier()
        times = 1000 * torch.tensor([self.step() for _ in range(int(count))], dtype=torch.float64)
        everyone = [torch.empty_like(times) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, times)
        of_step = zip(*(each.tolist() for each in everyone))  # noqa: B905
        return [max(((forward, backward) for forward, backward in of_ranks), key=sum) for of_ranks in of_step]

    def touch(self) -> None:
        """Write every row of weights and of optimizer state, without a change."""
        import torch

        with torch.no_grad():
            for parameter in self._model.parameters():
                parameter.mul_(1)
            for state in self._model.fused_optimizer.state_dict()["state"].values():
                for tensor in state.values():
                    for local in _local_tensors(tensor):
                        local.mul_(1)

    def forget_batches(self) -> None:
        self._batches.clear()


def _local_tensors(tensor: Any) -> list[Any]:
    """Return the parts of a sharded tensor that this rank keeps, or the tensor itself."""
    if hasattr(tensor, "local_shards"):
        shards = tensor.local_shards()
        return [getattr(shard, "tensor", shard) for shard in shards]
    return [tensor] if hasattr(tensor, "mul_") else []


def _bandwidths(ranks: int) -> dict[str, float]:
    """Return bandwidths of memory, of look-ups and of collectives in bytes/ms, and the time of a small one in ms."""
    import torch
    import torch.distributed as dist

    source = torch.ones(PROBE_BYTES // 4)
    target = torch.empty_like(source)
    weights, width = torch.ones(PROBE_BYTES // 64, 16), 16
    ids = torch.randint(len(weights), (100_000,))
    offsets = torch.arange(0, len(ids), 10)
    found = {
        "memory": 2 * PROBE_BYTES / _best_ms(lambda: target.copy_(source)),
        "lookup": len(ids) * width * 4
        / _best_ms(lambda: torch.nn.functional.embedding_bag(ids, weights, offsets, mode="sum")),
    }  # fmt: skip
    if ranks > 1:
        piece = torch.empty(len(source) // ranks)
        small = torch.zeros(ranks)
        found |= {
            "all_to_all": PROBE_BYTES / _best_ms(lambda: dist.all_to_all_single(target, source)),
            "reduce_scatter": PROBE_BYTES / _best_ms(lambda: dist.reduce_scatter_tensor(piece, source)),
            "all_reduce": PROBE_BYTES / _best_ms(lambda: dist.all_reduce(target)),
            "latency_ms": _best_ms(lambda: dist.all_to_all_single(torch.empty_like(small), small)),
        }
    return found


def _best_ms(act: Any, repeats: int = 10) -> float:
    import torch.distributed as dist

    times = []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        act()
        times.append(1000 * (time.perf_counter() - start))
    return min(times[1:])


def _load(path: str) -> Any:
    """Return the module of a planner file."""
    if path not in _LOADED:
        spec = importlib.util.spec_from_file_location("planner_file", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _LOADED[path] = module
    return _LOADED[path]


_LOADED: dict[str, Any] = {}


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def _release() -> None:
    """Return free memory to the system, so that it is not counted."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


if __name__ == "__main__":
    main()
