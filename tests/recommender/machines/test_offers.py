from __future__ import annotations

from typing import Any

import pytest

from sizewright.errors import InputError
from sizewright.recommender.machines.offers import offers_for
from sizewright.spec import Cluster, HostKind, Job
from sizewright.spec.wording import sentence

BIG = HostKind(kind="big", cpu=16, memory="64Gi", price_hour=0.8, spot_price_hour=0.3, interruptions_hour=0.05)
SMALL = HostKind(kind="small", cpu=4, memory="16Gi", price_hour=0.2)
PLAIN = HostKind(kind="plain", cpu=1, memory="1Gi")
SAVED = Job(name="saved", training={"checkpoint": "30m"})
UNSAVED = Job(name="unsaved")


def offered(job: Job, *hosts: HostKind, **asked: Any) -> list[tuple[str, bool, float]]:
    offers = offers_for(job, Cluster(hosts=hosts), **asked).offers
    return [(offer.host.kind, offer.spot, offer.price_hour) for offer in offers]


def test_every_kind_is_offered_on_demand_and_where_it_can_be_as_spot() -> None:
    assert offered(SAVED, BIG, SMALL) == [("big", False, 0.8), ("small", False, 0.2), ("big", True, 0.3)]
    assert offered(SAVED, BIG, SMALL, spot=True) == [("big", True, 0.3)]
    assert offered(SAVED, BIG, SMALL, spot=False) == [("big", False, 0.8), ("small", False, 0.2)]
    assert offered(SAVED, BIG, SMALL, machine="small") == [("small", False, 0.2)]
    assert offered(SAVED, BIG, SMALL.model_copy(update={"count": 0}), spot=False) == [("big", False, 0.8)]


def test_hosts_have_opencosts_price_beside_others_with_a_price_of_their_own() -> None:
    price = 0.0316 + 0.0042
    assert offered(SAVED, SMALL, PLAIN)[1] == ("plain", False, pytest.approx(price))
    assert offered(SAVED, PLAIN) == [], "replicas have a price where no host has one"
    assert offered(SAVED, PLAIN, machine="plain") == [("plain", False, pytest.approx(price))]
    assert offers_for(SAVED, None).offers == ()


def test_only_spot_hosts_are_interrupted() -> None:
    on_demand, _, spot = offers_for(SAVED, Cluster(hosts=(BIG, SMALL))).offers
    assert (on_demand.interruptions_s, spot.interruptions_s) == (0.0, pytest.approx(0.05 / 3600))


def test_spot_hosts_that_are_left_out_are_named() -> None:
    unknown = BIG.model_copy(update={"interruptions_hour": None})
    (unsaved,) = offers_for(UNSAVED, Cluster(hosts=(BIG, SMALL))).notes
    assert sentence(unsaved) == (
        "Spot hosts are not used: unsaved is not checkpointed, so an interruption would lose all work (set "
        "training.checkpoint, such as 30m)."
    )
    (rate,) = offers_for(SAVED, Cluster(hosts=(unknown, SMALL))).notes
    assert "Spot hosts of big are not used, since how often they are taken away is unknown" in sentence(rate)
    assert offers_for(UNSAVED, Cluster(hosts=(SMALL,))).notes == ()
    assert offers_for(SAVED, Cluster(hosts=(BIG, SMALL))).notes == ()


@pytest.mark.parametrize(
    ("job", "hosts", "asked", "message", "remedy"),
    [
        (UNSAVED, (BIG,), {"spot": True}, "is not checkpointed and would lose all work", "Set training.checkpoint"),
        (SAVED, (SMALL, PLAIN), {"spot": True}, "No spot price is known of small, plain", "Set spot_price_hour"),
        (SAVED, (BIG, SMALL), {"spot": True, "machine": "small"}, "No spot price is known of small", "spot_price_hour"),
        (SAVED, (BIG,), {"machine": "huge"}, "cluster has no hosts of kind huge", "Choose one of: big"),
    ],
)
def test_hosts_that_cannot_be_had_are_refused_in_one_sentence(
    job: Job, hosts: tuple[HostKind, ...], asked: dict[str, Any], message: str, remedy: str
) -> None:
    with pytest.raises(InputError) as error:
        offers_for(job, Cluster(hosts=hosts), **asked)
    assert message in error.value.message
    assert remedy in error.value.remedy
    assert error.value.message.count(". ") == 0


def test_unknown_interruptions_and_a_missing_cluster_are_refused() -> None:
    unknown = BIG.model_copy(update={"interruptions_hour": None})
    with pytest.raises(InputError, match="How often spot hosts of big are taken away is unknown"):
        offers_for(SAVED, Cluster(hosts=(unknown,)), spot=True)
    with pytest.raises(InputError, match="A machine type was named, but there is no cluster file"):
        offers_for(SAVED, None, machine="big")
    with pytest.raises(InputError, match="Spot or on-demand hosts were asked for"):
        offers_for(SAVED, None, spot=False)
