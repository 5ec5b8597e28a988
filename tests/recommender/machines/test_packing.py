from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.formatting import GIB
from sizewright.recommender.machines.packing import Packing, Replicas, pack
from sizewright.spec import Command, Gpu, HostKind, Job, Side
from sizewright.spec.bounds import Bounds, GpuBounds, RoleBounds


def replicas(number: float, cpu: float, gib: float = 0.0, gpu: float = 0.0) -> Replicas:
    return Replicas(*(np.array([value]) for value in (float(number), float(cpu), gib * GIB, float(gpu))))


def hosts_of(host: HostKind, workers: Replicas, ps: Replicas, job: Job | None = None) -> float:
    return float(pack(job or Job(), [host], workers, ps, any_number=True).hosts[0])


def test_hosts_are_counted_by_the_scarcest_resource() -> None:
    host = HostKind(kind="a", cpu=8, memory="32Gi")
    none = replicas(0, 1)
    assert hosts_of(host, replicas(8, 2), none) == 2  # four by cores
    assert hosts_of(host, replicas(8, 2, 16), none) == 4  # two by memory
    assert hosts_of(host, replicas(9, 2, 16), none) == 5
    assert hosts_of(host, replicas(1, 9), none) == np.inf


def test_hosts_are_counted_by_their_gpus() -> None:
    gpus = HostKind(kind="g", cpu=64, memory="256Gi", gpu=Gpu(kind="a100", count=4))
    assert hosts_of(gpus, replicas(6, 2, 1, gpu=1), replicas(0, 1)) == 2
    other = Job(command=Command(run=("x",)), bounds=Bounds(worker=RoleBounds(gpu=GpuBounds(kind="h100", count=(1, 1)))))
    assert hosts_of(gpus, replicas(6, 2, 1, gpu=1), replicas(0, 1), other) == np.inf


def test_ps_fill_what_workers_leave_free() -> None:
    host = HostKind(kind="a", cpu=8, memory="32Gi")
    assert hosts_of(host, replicas(2, 6), replicas(4, 1)) == 2
    assert hosts_of(host, replicas(2, 6), replicas(5, 1)) == 3
    assert hosts_of(host, replicas(4, 1), replicas(2, 6)) == 2  # the larger role may come first


def test_chief_and_evaluator_need_room_too() -> None:
    side = Side(cpu=4, memory="1Gi")
    command = Command(run=("x",), rendezvous="tf_config", chief=side, evaluator=side)
    job = Job(command=command, bounds=Bounds(ps=RoleBounds(replicas=0)))
    host = HostKind(kind="a", cpu=8, memory="32Gi")
    assert hosts_of(host, replicas(1, 8), replicas(0, 1), job) == 2
    assert hosts_of(host, replicas(1, 8), replicas(0, 1)) == 1


@settings(max_examples=40)
@given(
    st.integers(1, 12), st.sampled_from([0.5, 1, 1.5, 2, 3]), st.sampled_from([1, 2, 4]),
    st.integers(0, 6), st.sampled_from([0.25, 0.5, 2]), st.sampled_from([1, 3, 8]),
)  # fmt: skip
def test_number_of_hosts_is_enough_and_one_fewer_is_not(
    workers: int, cpu: float, gib: float, ps: int, ps_cpu: float, ps_gib: float
) -> None:
    both = replicas(workers, cpu, gib), replicas(ps, ps_cpu, ps_gib)
    hosts = int(hosts_of(HostKind(kind="a", cpu=4, memory="8Gi"), *both))
    at_least = max((workers * cpu + ps * ps_cpu) / 4, (workers * gib + ps * ps_gib) / 8)
    assert at_least <= hosts + 1e-9

    def on(count: int) -> Packing:
        return pack(Job(), [HostKind(kind="a", count=count, cpu=4, memory="8Gi")], *both)

    assert (bool(on(hosts).fits[0]), float(on(hosts).hosts[0])) == (True, hosts)
    assert not on(hosts - 1).fits[0]
