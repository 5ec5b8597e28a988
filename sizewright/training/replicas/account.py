"""The account of trained and lost samples, from the session's leases and the servers' applied samples.

A sample is trained when all servers have acknowledged its push. Each server reports which samples are settled in each
part of its weights. So a sample that is trained and not settled in a part was lost there, whatever the cause: a server
that died after its last snapshot, a cancelled change, or a late report. It is counted, and then written off: settled.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sizewright.errors import SizewrightError
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.applied import AppliedGroup, AppliedSamples
from sizewright.training.ps.routing import PARTS, Parts
from sizewright.training.ray.actor_pool import ReplicaHandle
from sizewright.training.replicas.replica_group import ReplicaGroup


class Loss(NamedTuple):
    """Samples that were trained, but whose updates are lost in parts (n,) of the weights of `server`."""

    server: str
    parts: Parts
    samples: SampleRanges


class Account:
    """Counts lost updates, each sample of a part once.

    `updates_lost` and `samples_repeated` are the counts of the run that this one resumes.
    """

    def __init__(self, replica_group: ReplicaGroup, *, updates_lost: int = 0, samples_repeated: int = 0) -> None:
        self.losses: list[Loss] = []
        self.updates_lost = updates_lost
        """The number of lost batches, once for each server that lost them."""
        self._replica_group = replica_group
        self._counted = AppliedSamples([AppliedGroup(np.arange(PARTS), SampleRanges())])
        self._earlier = samples_repeated
        self._repeated: dict[str, int] = {}
        replica_group.on_retire = self._count_retired

    @property
    def samples_repeated(self) -> int:
        """The number of samples that a server applied twice."""
        return self._earlier + sum(self._repeated.values())

    def count_losses(self) -> Mapping[str, int]:
        """Count the updates lost since the last call, and return them by server.

        Raise SizewrightError if a server has died.
        """
        replica_group = self._replica_group
        lost = {}
        with replica_group.lease_server.lock:  # first, so that every server has applied or lost what is trained by now
            trained = replica_group.lease_server.leases.trained_valid_ranges()
        servers = list(replica_group.membership.servers)
        accounts = replica_group.pool.get([server.actor.applied.remote() for server in servers])
        for server, (groups, repeated) in zip(servers, accounts, strict=True):
            self._repeated[server.name] = repeated
            missing = [AppliedGroup(parts, trained.minus(samples)) for parts, samples in groups]
            losses = [loss for group in missing if group.samples for loss in self._count(server.name, group)]
            if losses:
                lost[server.name] = max(self._updates(loss.samples) for loss in losses)
                self.losses += losses
                self.updates_lost += lost[server.name]  # now: another server may die amid the next call
            if any(group.samples for group in missing):
                replica_group.pool.get([server.actor.write_off.remote(trained)])
        return lost

    def _count_retired(self, replica: ReplicaHandle) -> None:
        """Keep the repeats of a server that leaves, whose process may serve again and then counts from 0."""
        if replica.role != "ps":
            return
        repeated = self._repeated.pop(replica.name, 0)
        with contextlib.suppress(SizewrightError):  # else it has died
            ((_, repeated),) = self._replica_group.pool.get([replica.actor.applied.remote()])
        self._earlier += repeated

    def _count(self, server: str, missing: AppliedGroup) -> list[Loss]:
        """Return the losses that are not counted yet, since a server may lose the same samples again."""
        losses = []
        for parts, counted in self._counted.keep(missing.parts).groups():
            if new := missing.samples.minus(counted):
                losses.append(Loss(server, parts, new))
                self._counted.put(parts, counted.union(new))
        return losses

    def _updates(self, samples: SampleRanges) -> int:
        size = self._replica_group.job.training.batch_size
        return sum(math.ceil((end - start) / size) for start, end in samples)
