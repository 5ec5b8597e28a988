"""The account of lost and repeated samples, with stand-ins for the servers."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from sizewright.errors import ReplicaDiedError
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.ps.routing import PARTS
from sizewright.training.replicas.account import Account


class StandInServer:
    """A server that has applied nothing but some samples twice."""

    role = "ps"

    def __init__(self, name: str, repeated: int) -> None:
        self.name = name
        self.repeated = repeated
        self.is_dead = False
        self.actor = SimpleNamespace(applied=SimpleNamespace(remote=self._applied))

    def _applied(self) -> tuple[list[AppliedGroup], int]:
        if self.is_dead:
            raise ReplicaDiedError("It has died.")
        return [AppliedGroup(np.arange(PARTS), SampleRanges())], self.repeated


def account_of(servers: list[StandInServer]) -> Account:
    leases = SimpleNamespace(trained_valid_ranges=SampleRanges)
    group = SimpleNamespace(
        lease_server=SimpleNamespace(lock=threading.Lock(), leases=leases),
        membership=SimpleNamespace(servers=servers),
        pool=SimpleNamespace(get=list),
    )
    return Account(cast(Any, group))


def test_repeats_of_a_server_that_leaves_stay_counted() -> None:
    server = StandInServer("ps-0", 3)
    account = account_of([server])
    account.count_losses()
    server.repeated = 5  # two more since
    account._replica_group.on_retire(cast(Any, server))
    assert account.samples_repeated == 5
    server.repeated = 1  # its process serves again, and counts from 0
    account.count_losses()
    assert account.samples_repeated == 6


def test_repeats_of_a_server_that_died_while_it_left_stay_counted_as_far_as_known() -> None:
    server = StandInServer("ps-0", 3)
    account = account_of([server])
    account.count_losses()
    server.is_dead = True
    account._replica_group.on_retire(cast(Any, server))
    assert account.samples_repeated == 3
