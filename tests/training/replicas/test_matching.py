from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sizewright.formatting import GIB
from sizewright.spec import Allocation, Gpu, Group, Resources
from sizewright.training.replicas.matching import allocation_of, match


def size(cpu: float = 1.0, memory: int = GIB, gpu: Gpu | None = None) -> Resources:
    return Resources(cpu=cpu, memory_bytes=memory, gpu=gpu)


SIZES = st.lists(
    st.builds(size, st.sampled_from([0.5, 1.0]), st.sampled_from([0, GIB, 2 * GIB, 3 * GIB]),
              st.sampled_from([None, None, Gpu(count=1)])),
    max_size=5,
)  # fmt: skip


def allowed(has: Resources, requested: Resources, role: str) -> bool:
    """A worker can be resized to anything with the same GPU; a PS to no less memory (0 is without a limit)."""
    more = not requested.memory_bytes or 0 < has.memory_bytes <= requested.memory_bytes
    return has.gpu == requested.gpu and (role == "worker" or more or has == requested)


def largest_match(present: list[Resources], requested: list[Resources], role: str) -> int:
    """Return the best match by exhaustive search."""
    longer, shorter = (present, requested) if len(present) >= len(requested) else (requested, present)
    best = 0
    for chosen in itertools.permutations(range(len(longer)), len(shorter)):
        pairs = [(longer[i], shorter[j]) for j, i in enumerate(chosen)]
        if longer is requested:
            pairs = [(b, a) for a, b in pairs]
        best = max(best, sum(allowed(has, want, role) for has, want in pairs))
    return best


@example([size(0.5, GIB), size(0.5, 3 * GIB)], [size(1.0, 4 * GIB), size(1.0, 2 * GIB)], "ps")
@settings(max_examples=150, deadline=None)
@given(present=SIZES, requested=SIZES, role=st.sampled_from(["ps", "worker"]))
def test_matching_keeps_as_many_replicas_as_possible(
    present: list[Resources], requested: list[Resources], role: str
) -> None:
    named = [(f"r{i}", size) for i, size in enumerate(present)]
    result = match(named, requested, role)  # type: ignore[arg-type]
    assert sorted([name for name, _ in result.stay] + result.gone) == [name for name, _ in named]
    assert Counter([size for _, size in result.stay] + result.new) == Counter(requested)
    has = dict(named)
    assert all(allowed(has[name], size, role) for name, size in result.stay)
    assert len(result.stay) == largest_match(present, requested, role)
    assert [name for name, _ in result.stay] == sorted(name for name, _ in result.stay)
    unchanged = sum(has[name] == size for name, size in result.stay)
    assert unchanged == (Counter(present) & Counter(requested)).total()


def test_ps_is_never_kept_with_less_memory() -> None:
    old = [("a", size(memory=2 * GIB))]
    for memory, stays in [(GIB, False), (2 * GIB, True), (3 * GIB, True), (0, True)]:
        assert bool(match(old, [size(2.0, memory)], "ps").stay) is stays
        assert match(old, [size(2.0, memory)], "worker").stay == [("a", size(2.0, memory))]


@pytest.mark.parametrize("counts", [(1, 1), (3, 2)])
def test_allocation_groups_equal_sizes(counts: tuple[int, int]) -> None:
    workers, servers = [size(0.5)] * counts[0] + [size(1.0)], [size(2.0)] * counts[1]
    allocation = allocation_of(workers, servers, 64)
    assert allocation == Allocation(
        worker=(Group(replicas=counts[0], cpu=0.5, memory_bytes=GIB), Group(replicas=1, cpu=1.0, memory_bytes=GIB)),
        ps=(Group(replicas=counts[1], cpu=2.0, memory_bytes=GIB),),
        batch_size=64,
    )
    assert list(allocation.each("worker")) == workers
