from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sizewright.spec import Allocation, Gpu, Group, Resources
from sizewright.spec.units import GIB
from sizewright.training.replicas.matching import allocation_of, match


def size(cpu: float = 1.0, memory: int = GIB, gpu: Gpu | None = None) -> Resources:
    return Resources(cpu=cpu, memory_bytes=memory, gpu=gpu)


SIZES = st.lists(
    st.builds(size, st.sampled_from([0.5, 1.0]), st.sampled_from([0, GIB, 2 * GIB, 3 * GIB]),
              st.sampled_from([None, None, Gpu(count=1)])),
    max_size=5,
)  # fmt: skip


def allowed(has: Resources, wanted: Resources, role: str) -> bool:
    """A worker can be resized to anything with the same GPU; a PS to no less memory (0 is without a limit)."""
    more = not wanted.memory_bytes or 0 < has.memory_bytes <= wanted.memory_bytes
    return has.gpu == wanted.gpu and (role == "worker" or more or has == wanted)


def most(present: list[Resources], wanted: list[Resources], role: str) -> int:
    """By trying everything."""
    longer, shorter = (present, wanted) if len(present) >= len(wanted) else (wanted, present)
    best = 0
    for chosen in itertools.permutations(range(len(longer)), len(shorter)):
        pairs = [(longer[i], shorter[j]) for j, i in enumerate(chosen)]
        if longer is wanted:
            pairs = [(b, a) for a, b in pairs]
        best = max(best, sum(allowed(has, want, role) for has, want in pairs))
    return best


@example([size(0.5, GIB), size(0.5, 3 * GIB)], [size(1.0, 4 * GIB), size(1.0, 2 * GIB)], "ps")
@settings(max_examples=150, deadline=None)
@given(present=SIZES, wanted=SIZES, role=st.sampled_from(["ps", "worker"]))
def test_as_many_as_possible_stay_and_nothing_is_lost(
    present: list[Resources], wanted: list[Resources], role: str
) -> None:
    named = [(f"r{i}", size) for i, size in enumerate(present)]
    result = match(named, wanted, role)  # type: ignore[arg-type]
    assert sorted([name for name, _ in result.stay] + result.gone) == [name for name, _ in named]
    assert Counter([size for _, size in result.stay] + result.new) == Counter(wanted)
    has = dict(named)
    assert all(allowed(has[name], size, role) for name, size in result.stay)
    assert len(result.stay) == most(present, wanted, role)
    assert [name for name, _ in result.stay] == sorted(name for name, _ in result.stay)
    unchanged = sum(has[name] == size for name, size in result.stay)
    assert unchanged == (Counter(present) & Counter(wanted)).total()


def test_a_ps_never_stays_with_less_memory() -> None:
    old = [("a", size(memory=2 * GIB))]
    for memory, stays in [(GIB, False), (2 * GIB, True), (3 * GIB, True), (0, True)]:
        assert bool(match(old, [size(2.0, memory)], "ps").stay) is stays
        assert match(old, [size(2.0, memory)], "worker").stay == [("a", size(2.0, memory))]


@pytest.mark.parametrize("counts", [(1, 1), (3, 2)])
def test_an_allocation_gathers_equal_sizes(counts: tuple[int, int]) -> None:
    workers, servers = [size(0.5)] * counts[0] + [size(1.0)], [size(2.0)] * counts[1]
    allocation = allocation_of(workers, servers, 64)
    assert allocation == Allocation(
        worker=(Group(replicas=counts[0], cpu=0.5, memory_bytes=GIB), Group(replicas=1, cpu=1.0, memory_bytes=GIB)),
        ps=(Group(replicas=counts[1], cpu=2.0, memory_bytes=GIB),),
        batch_size=64,
    )
    assert list(allocation.each("worker")) == workers
