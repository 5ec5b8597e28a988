"""Divide the capacity of one cluster among the jobs of the operator: those that run and those that wait for it.

Nothing of this is kept but in the jobs' objects: a new operator divides anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any, NamedTuple

from sizewright.cluster.problem.candidates import GPU, JobTable, with_kind
from sizewright.cluster.shared_cluster import SharedCluster
from sizewright.errors import InputError
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.live_object import LiveObject
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.operator.labels import FAILING_SINCE, WAITS, annotations_of, uid_of
from sizewright.operator.scaling import with_workers
from sizewright.spec import Allocation, Candidate, Cluster, Gpu, Job, Recommendation
from sizewright.spec.recommendation import Prediction

_UNKNOWN_S = 3600.0
"""A job whose number of samples or speed is unknown counts like one that trains for so long."""
_ANY_GPU = Gpu(count=1).kind

Options = Mapping[Allocation, Recommendation]
"""What the object of a job would ask for, and the recommendation by which it would."""


class Offer(NamedTuple):
    """A job that waits: its object when it was sized, its description, its recommendation, and what it could have."""

    job_object: Mapping[str, Any]
    job: Job
    answer: Recommendation
    options: Options
    table: JobTable
    made_s: float

    def is_of(self, job_object: Mapping[str, Any]) -> bool:
        """Return whether the object is as it was when it was sized."""
        return _asked(self.job_object) == _asked(job_object)


class RunningOffer(NamedTuple):
    """What a running job could have; a change of it takes `change_s` seconds."""

    candidates: tuple[Candidate, ...]
    samples_left: float
    change_s: float


class Sharing:
    """The jobs that share a cluster, and their shares of the last round.

    Rounds take place at arrivals and ends, and every `every_s` seconds of `clock`. In a `dry_run` the jobs that would
    be resumed count as if they ran.
    """

    def __init__(self, cluster: Cluster, every_s: float, clock: Callable[[], float], *, dry_run: bool) -> None:
        self._shared = SharedCluster(cluster, every_s=every_s)
        self._every_s, self._clock, self._dry_run = every_s, clock, dry_run
        self._offers: dict[str, Offer] = {}
        self._held: dict[str, Allocation] = {}
        """What the running jobs have, by uid."""
        self._resumed: dict[str, Allocation] = {}
        self._shares: dict[str, Allocation] = {}
        """Shares of the last round that their jobs do not have yet."""
        self._reasons: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        """Why jobs can have nothing of this cluster, whoever else is there."""
        self._is_stale = False
        self.is_blind = False
        """True while some of the jobs cannot be listed: what is free is then unknown."""

    @property
    def waiting(self) -> list[str]:
        """The uids of the jobs that wait, in order of arrival."""
        return sorted(self._offers, key=lambda uid: self._offers[uid].table.arrived_s)

    def counted(self, allocation: Allocation, job: Job) -> Allocation:
        """Return an allocation with the kind of its GPUs: that of the job's bounds, or the only one of the cluster.

        Raises InputError if the cluster has several kinds and the description names none.
        """
        allocation = job.with_gpu_kind(allocation)
        kinds = [name.removeprefix(GPU) for name in self._shared.resources if name.startswith(GPU)]
        if not any(group.gpu and group.gpu.kind == _ANY_GPU for _, group in allocation.groups) or _ANY_GPU in kinds:
            return allocation
        if len(kinds) > 1:
            raise InputError(
                f"The cluster has GPUs of several kinds ({', '.join(kinds)}), and the job's description names none.",
                f"Write the kind into bounds.worker.gpu, such as {kinds[0]}:1.",
            )
        return with_kind(allocation, _ANY_GPU, kinds[0]) if kinds else allocation

    def has_offer(self, job_object: Mapping[str, Any]) -> bool:
        """Return whether a job waits with what it asks for now. What is older than a round is asked for again."""
        offer = self._offers.get(uid_of(job_object))
        return offer is not None and self._clock() - offer.made_s < self._every_s and offer.is_of(job_object)

    def add(self, job_object: Mapping[str, Any], job: Job, answer: Recommendation, options: Options) -> None:
        """Let a sized job wait for its share. `options` are its candidates, among them that of the `answer`."""
        uid = uid_of(job_object)
        candidates = tuple(
            Candidate(allocation=allocation, throughput=_speed(option)) for allocation, option in options.items()
        )
        known = job.samples if answer.target is not None else None
        samples = float(known or _UNKNOWN_S * _speed(answer))
        arrived_s = seconds_of(job_object["metadata"].get("creationTimestamp")) or 0.0
        table = JobTable(uid, candidates, samples, samples, arrived_s=arrived_s)
        self._is_stale |= uid in self._offers and self._offers[uid].table != table
        self._offers[uid] = Offer(job_object, job, answer, options, table, self._clock())

    def remove(self, uid: str) -> None:
        """Forget a job that could not be sized; if it comes back, its share is another."""
        self._is_stale |= self._offers.pop(uid, None) is not None

    def update(self, running: Iterable[JobTable], suspended: Set[str]) -> None:
        """Take in the jobs that run and the uids of those that are suspended, and divide if that is due."""
        self._offers = {uid: offer for uid, offer in self._offers.items() if uid in suspended}
        self._resumed = {uid: each for uid, each in self._resumed.items() if self._dry_run and uid in suspended}
        tables = [*running, *(running_table(uid, each, None) for uid, each in self._resumed.items())]
        self._held = {table.name: table.current for table in tables if table.current is not None}
        tables += [self._offers[uid].table for uid in self.waiting]
        if tables and (self._is_stale or self._shared.is_due(self._clock(), [table.name for table in tables])):
            self._divide(tables)

    def _divide(self, tables: list[JobTable]) -> None:
        division = self._shared.divide(tables, self._clock())
        self._is_stale = False
        shares = division.allocations()
        self._shares = {
            uid: share for uid, share in shares.items() if share is not None and share != self._held.get(uid)
        }
        self._reasons = {name: division.why(number) for number, name in enumerate(division.tables.problem.jobs)}
        self._refused = {each.job: each.why for each in division.tables.left_out if each.job not in shares}

    def may_start(self, uid: str) -> bool:
        """Return whether the share of a job that waits is free, or the cluster has nothing that it can use."""
        return uid in self._refused or self._free_share(uid) is not None

    def share(self, uid: str) -> Allocation | None:
        """Return the share of a job that waits, if it has one and that is free.

        Raises InputError if the cluster has nothing that the job can use.
        """
        if why := self._refused.get(uid):
            raise InputError(f"It can get no share of the cluster: {why}.", "Correct its bounds, or the cluster file.")
        return self._free_share(uid)

    def offer_at(self, uid: str, share: Allocation) -> tuple[Job, Recommendation]:
        """Return the description of a job that waits, and its recommendation at its share, which says why."""
        offer = self._offers[uid]
        option, alone = offer.options[share], offer.answer.target
        if alone is None or option is offer.answer:
            return offer.job, option
        why = f"This is its share of the cluster; {alone.describe()} is recommended for it alone."
        return offer.job, option.model_copy(update={"reasons": (why, self._reasons[uid])})

    def asks_for(self, uid: str, job_object: Mapping[str, Any]) -> bool:
        """Return whether a job that waits still is what was sized."""
        return uid in self._offers and self._offers[uid].is_of(job_object)

    def reason(self, uid: str) -> str:
        """Return why a job waits."""
        if share := self._shares.get(uid):
            return f"It waits until its share of the cluster is free: {share.describe()}."
        return f"It waits for capacity of the cluster. {self._reasons.get(uid, '')}".rstrip()

    def granted(self, uid: str, workers: int) -> int:
        """Return the number of workers that a running job is to have now, of which it has `workers`.

        It gives back at once, and gets more when that is free.
        """
        share = self._shares.get(uid)
        if share is None or uid not in self._held:
            return workers
        count = share.replicas("worker")
        return count if count < workers or self._has_room(uid, share) else workers

    def has_changed(self, uid: str, workers: int) -> None:
        """Note that a running job has another number of workers; what others make of it is not undone then."""
        self._shares.pop(uid, None)
        if uid in self._held:
            self._held[uid] = with_workers(self._held[uid], workers)

    def has_resumed(self, uid: str, share: Allocation) -> None:
        """Note that a job that waited runs, or would run if this were no dry run."""
        self._offers.pop(uid, None)
        self._shares.pop(uid, None)
        self._held[uid] = self._resumed[uid] = share

    def _free_share(self, uid: str) -> Allocation | None:
        share = self._shares.get(uid)
        return share if share and self._has_room(uid, share) else None

    def _has_room(self, uid: str, share: Allocation) -> bool:
        others = [each for other, each in self._held.items() if other != uid]
        return not self.is_blind and self._shared.has_room([*others, share])


def alternatives(answer: Recommendation) -> list[Recommendation]:
    """Return the recommendation at each allocation that the job could have: its alternatives, with their throughput."""
    if answer.target is None or not answer.alternatives:
        return [answer]
    others = [
        answer.model_copy(
            update={
                "target": each.allocation,
                "lower": None,
                "upper": None,
                "predicted": Prediction(throughput=each.throughput),
            }
        )
        for each in answer.alternatives
        if each.allocation != answer.target
    ]
    return [answer, *others]


def allocation_of(
    executor: ClusterExecutor, job_object: Mapping[str, Any], target: Allocation | None = None
) -> Allocation:
    """Return what the object of a job asks for, its pods' resizes included; with the batch size of a `target`.

    Raises InputError if its sizes cannot be read.
    """
    document = dict(job_object)
    sizes = LiveObject(executor.sized_object(document), executor, document).sizes
    rest = {"batch_size": target.batch_size, "loaders": target.loaders} if target else {"batch_size": 1}
    return Allocation.model_validate({"worker": (), **sizes, **rest})


def running_table(uid: str, held: Allocation, offered: RunningOffer | None) -> JobTable:
    """Return the candidates of a running job; one that offers nothing keeps what it has."""
    kept = JobTable(uid, (), 1.0, 1.0, current=held, may_wait=False, kept_because="It keeps what it has.")
    if offered is None or len(held.worker) != 1:
        return kept
    candidates = tuple(
        Candidate(allocation=with_workers(held, each.allocation.replicas("worker")), throughput=each.throughput)
        for each in offered.candidates
    )
    left = max(offered.samples_left, 1.0)
    return replace(
        kept, candidates=candidates, samples_left=left, samples=left, restart_s=offered.change_s, kept_because=""
    )


def _speed(answer: Recommendation) -> float:
    """Return the samples/s that are expected; 1 where they are unknown, as of a job with one candidate only."""
    return answer.predicted.throughput.value if answer.predicted else 1.0


def _asked(job_object: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a job's sizes depend on: all of its object that its user writes."""
    ours = (WAITS, FAILING_SINCE)
    annotations = {name: value for name, value in annotations_of(job_object).items() if name not in ours}
    return job_object["spec"], annotations, job_object["metadata"].get("labels")
