"""The hosts that a job may be put on: each priced kind of the cluster, on demand or spot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sizewright.errors import InputError
from sizewright.spec import Cluster, HostKind, Job
from sizewright.spec.objective import host_price
from sizewright.spec.reason import Reason

_NO_CHECKPOINTS = "Set training.checkpoint in the job file, such as `checkpoint: 30m`"


@dataclass(frozen=True)
class Offer:
    """Whole hosts of one kind at one price, on demand or spot."""

    host: HostKind
    spot: bool
    price_hour: float

    @property
    def interruptions_s(self) -> float:
        """How often one of the hosts is taken away in a second."""
        return (self.host.interruptions_hour or 0.0) / 3600 if self.spot else 0.0


class Offers(NamedTuple):
    """The hosts that a job may be put on, those on demand first, and why others are left out."""

    offers: tuple[Offer, ...] = ()
    notes: tuple[Reason, ...] = ()


def offers_for(job: Job, cluster: Cluster | None, *, machine: str | None = None, spot: bool | None = None) -> Offers:
    """Return the hosts that a job may be put on; none where the cluster states no price, and none was asked for.

    `machine` names the only kind to use. With `spot` only spot hosts are used, without (False) none, and by default
    both. Raises InputError for a kind that the cluster does not have, and for spot hosts of which the price or the
    interruptions are unknown, or that are of no use since the job is not checkpointed.
    """
    if cluster is None:
        if machine is not None or spot is not None:
            what = "A machine type was named" if machine is not None else "Spot or on-demand hosts were asked for"
            raise InputError(
                f"{what}, but there is no cluster file.", "Give one with hosts and prices: --cluster FILE."
            )
        return Offers()
    kinds = _kinds(cluster, machine)
    if machine is None and spot is None and all(h.price_hour is None and h.spot_price_hour is None for h in kinds):
        return Offers()
    on_demand = tuple(Offer(host, spot=False, price_hour=host_price(host)) for host in kinds)
    if spot is False:
        return Offers(on_demand)
    if spot:
        _check_spot(job, kinds)
    usable = [host for host in kinds if job.training.checkpoint and host.interruptions_hour is not None]
    spots = tuple(
        Offer(host, spot=True, price_hour=host.spot_price_hour) for host in usable if host.spot_price_hour is not None
    )
    return Offers(spots if spot else (*on_demand, *spots), tuple(_left_out(job, kinds)))


def _kinds(cluster: Cluster, machine: str | None) -> list[HostKind]:
    """Return the kinds of hosts that may be used."""
    known = [host for host in cluster.hosts if host.count]
    kinds = [host for host in known if machine in (None, host.kind)]
    if not kinds and machine is not None:
        names = ", ".join(dict.fromkeys(host.kind for host in known))
        remedy = f"Choose one of: {names}." if names else "Give its hosts a count above 0."
        raise InputError(f"{cluster.name} has no hosts of kind {machine}.", remedy)
    return kinds


def _check_spot(job: Job, kinds: Sequence[HostKind]) -> None:
    """Raise InputError where spot hosts were asked for, and none can be used."""
    if job.training.checkpoint is None:
        raise InputError(
            f"Spot hosts are refused for {job.name}, since it is not checkpointed and would lose all work.",
            f"{_NO_CHECKPOINTS}, or leave out --spot.",
        )
    names = ", ".join(host.kind for host in kinds)
    priced = [host for host in kinds if host.spot_price_hour is not None]
    if not priced:
        raise InputError(f"No spot price is known of {names}.", "Set spot_price_hour of the hosts in the cluster file.")
    if all(host.interruptions_hour is None for host in priced):
        names = ", ".join(host.kind for host in priced)
        raise InputError(
            f"How often spot hosts of {names} are taken away is unknown.",
            "Set interruptions_hour of the hosts in the cluster file.",
        )


def _left_out(job: Job, kinds: Sequence[HostKind]) -> list[Reason]:
    """Return why spot hosts that have a price are not used."""
    priced = [host for host in kinds if host.spot_price_hour is not None]
    unknown = ", ".join(host.kind for host in priced if host.interruptions_hour is None)
    if priced and job.training.checkpoint is None:
        return [Reason.of("spot_without_checkpoints", job=job.name)]
    return [Reason.of("spot_interruptions_unknown", kinds=unknown)] if unknown else []
