"""One account of what was trained: what the session leased, what the servers have applied, and what is lost of it.

A sample is trained when all servers have acknowledged its push. Each server tells which samples are in each part of its
weights. So what is trained and not in a part is lost there, whatever the cause: a server that died since its last
snapshot, a change that was called off, a report that came late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sizewright.training.crew import Crew
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.applied import AppliedGroup, AppliedSamples
from sizewright.training.routing import PARTS, Parts


class Loss(NamedTuple):
    """Samples that were trained and are no more in parts (n,) of the weights, which `server` holds."""

    server: str
    parts: Parts
    samples: SampleRanges


class Account:
    """Counts what is lost, each sample of a part once. `updates_lost` and `samples_repeated` are of an earlier run that
    this one goes on from."""

    def __init__(self, crew: Crew, *, updates_lost: int = 0, samples_repeated: int = 0) -> None:
        self.losses: list[Loss] = []
        self.updates_lost = updates_lost
        """Batches that were lost, as often as a server lost them."""
        self._crew = crew
        self._counted = AppliedSamples([AppliedGroup(np.arange(PARTS), SampleRanges())])
        self._earlier = samples_repeated
        self._repeated: dict[str, int] = {}

    @property
    def samples_repeated(self) -> int:
        """Samples that a server applied twice."""
        return self._earlier + sum(self._repeated.values())

    def settle(self) -> Mapping[str, int]:
        """Count what is lost since the last call, and let nobody count it again; returns the updates by server.

        Raises when a server has died.
        """
        crew, lost = self._crew, {}
        with crew.leases.lock:  # first: whatever is trained by now, every server has applied or lost
            trained = crew.leases.book.applied_ranges()
        servers = list(crew.roster.servers)
        accounts = crew.fleet.get([server.actor.applied.remote() for server in servers])
        for server, (groups, repeated) in zip(servers, accounts, strict=True):
            self._repeated[server.name] = repeated
            missing = [AppliedGroup(parts, trained.minus(samples)) for parts, samples in groups]
            losses = [loss for group in missing if group.samples for loss in self._count(server.name, group)]
            if losses:
                lost[server.name] = max(self._updates(loss.samples) for loss in losses)
                self.losses += losses
                self.updates_lost += lost[server.name]  # now: another server may die amid the next call
            if any(group.samples for group in missing):
                crew.fleet.get([server.actor.write_off.remote(trained)])
        return lost

    def _count(self, server: str, missing: AppliedGroup) -> list[Loss]:
        """What is lost and not counted yet: a server that was restored once more may lack the same again."""
        losses = []
        for parts, counted in self._counted.keep(missing.parts).groups():
            if new := missing.samples.minus(counted):
                losses.append(Loss(server, parts, new))
                self._counted.put(parts, counted.union(new))
        return losses

    def _updates(self, samples: SampleRanges) -> int:
        size = self._crew.job.training.batch_size
        return sum(math.ceil((end - start) / size) for start, end in samples)
