"""Recovery of a session, which replaces replicas that have died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from sizewright.errors import EngineDiedError, EngineError, SizewrightError
from sizewright.formatting import format_bytes
from sizewright.spec import Failure, Resources
from sizewright.training.ps.snapshots import Snapshots
from sizewright.training.ray.actor_pool import ReplicaHandle
from sizewright.training.replicas.account import Account
from sizewright.training.replicas.replica import Health
from sizewright.training.replicas.replica_group import ReplicaGroup

_EVERY_S = 0.25
_ANSWER_S = 10.0
# A PS that ran out of memory would do so again with the same limit. This factor applies if there is no forecast.
OOM_FACTOR = 1.5
_MAX_FAILURES_IN_A_ROW = 12
_MAX_ENGINE_ERRORS_IN_A_ROW = 3
_MAX_CAUSE = 300
# Workers that fail again within so many batches fail because of the job's code, data or memory.
_BATCHES_BETWEEN_FAILURES = 100


class Recovery:
    """Watches replicas and replaces dead ones.

    `failures` records each failure and its cost. Recovery gives up, and sets `gave_up`, if it fails again and again
    without samples trained in between, or if workers fail by their own errors or for memory every few batches.
    """

    def __init__(
        self,
        replica_group: ReplicaGroup,
        snapshots: Snapshots,
        account: Account,
        lock: threading.RLock,
        clock: Callable[[], float],
    ) -> None:
        self.failures: list[Failure] = []
        self.gave_up: SizewrightError | None = None
        self._replica_group = replica_group
        self._snapshots = snapshots
        self._account = account
        self._lock = lock
        self._clock = clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._trained_at_failure = -1
        self._failures_in_a_row = 0
        self._trained_at_worker_failure = -1
        self._worker_failures_in_a_row = 0
        self._faults: dict[ReplicaHandle, str] = {}
        self._cuts: dict[int, tuple[int, float]] = {}
        self.ps_needs_bytes = 0
        """The forecast memory of a PS, or 0."""

    def give_up(self, error: SizewrightError) -> None:
        """Record the error that makes recovery impossible."""
        self.gave_up = self.gave_up or error

    def start(self) -> None:
        """Start watching."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="recovery")
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S) and self.gave_up is None:
            with self._lock:
                if self._stop.is_set():
                    return
                try:
                    self.check()
                except Exception as error:  # without this, recovery would stop and nobody would know
                    self.gave_up = EngineError(
                        f"The recovery of replicas failed: {type(error).__name__}: {error}.",
                        "Resume the last snapshot, and report this as a bug.",
                    )

    def check(self) -> None:
        """Replace dead replicas; the caller must hold the lock."""
        if self._replica_group.routing is None:
            return
        try:
            if dead := self._dead():
                self._recover(dead)
            self._replica_group.workers.remove_pending()
            self._replica_group.rejoin()
        except SizewrightError as error:
            self._try_again(error)

    def _try_again(self, error: SizewrightError) -> None:
        """Leave the error to the next attempt, since another replica may have died; give up after too many."""
        trained = self._trained()
        self._failures_in_a_row = self._failures_in_a_row + 1 if trained == self._trained_at_failure else 0
        self._trained_at_failure = trained
        limit = _MAX_ENGINE_ERRORS_IN_A_ROW if isinstance(error, EngineError) else _MAX_FAILURES_IN_A_ROW
        if self._failures_in_a_row >= limit or isinstance(error, EngineDiedError):
            self.gave_up = error

    def _trained(self) -> int:
        with self._replica_group.lease_server.lock:
            return self._replica_group.lease_server.leases.trained

    def _count_worker_failures(self, causes: Mapping[ReplicaHandle, str]) -> None:
        """Count failures that the next worker may meet again, and give up after too many."""
        own = {worker: cause for worker, cause in causes.items() if worker in self._faults or cause == "oom"}
        if not own:
            return
        trained = self._trained()
        steady = _BATCHES_BETWEEN_FAILURES * self._replica_group.job.training.batch_size
        is_soon = trained - self._trained_at_worker_failure < steady
        self._worker_failures_in_a_row = self._worker_failures_in_a_row + 1 if is_soon else 1
        self._trained_at_worker_failure = trained
        if self._worker_failures_in_a_row >= _MAX_FAILURES_IN_A_ROW:
            worker, cause = next(iter(own.items()))
            remedy = "Give the workers more memory" if cause == "oom" else "Correct the job's code or data"
            self.give_up(
                EngineError(
                    f"Workers failed {self._worker_failures_in_a_row} times, each after fewer than "
                    f"{_BATCHES_BETWEEN_FAILURES} batches; {worker.name} was the last: {cause}.",
                    f"{remedy}, and resume the last snapshot.",
                )
            )

    def _dead(self) -> list[ReplicaHandle]:
        """Return the members whose process has ended or whose training has failed."""
        pool, members = self._replica_group.pool, self._replica_group.membership.members
        calls = {member.actor.health.remote(): member for member in members}
        dead = []
        for ref in pool.answered(list(calls), _ANSWER_S):
            try:
                health = pool.ray.get(ref)
                if health.fault is not None:
                    self._faults[calls[ref]] = health.fault
                    dead.append(calls[ref])
                self._note_cuts(calls[ref], health)
            except pool.ray.exceptions.ActorUnavailableError:
                continue  # its node may soon be declared lost, or answer again
            except pool.ray.exceptions.RayError:
                dead.append(calls[ref])
        return dead

    def _note_cuts(self, worker: ReplicaHandle, health: Health) -> None:
        """Record the connections of a worker that broke and were opened again; its counts restart when it joins."""
        cuts, cut_s = self._cuts.get(worker.joined, (0, 0.0))
        if health.cuts > cuts:
            self._cuts[worker.joined] = health.cuts, health.cut_s
            count = health.cuts - cuts
            links = "The link was" if count == 1 else "The links were"
            action = f"{links} opened again, and what had been on its way was sent again."
            cause = "link cut" if count == 1 else f"{count} links cut"
            lost_s = health.cut_s - cut_s
            at_s = max(0.0, self._clock() - lost_s)
            self.failures.append(
                Failure(at_s=at_s, replica=worker.name, cause=cause, recovered_s=lost_s, action=action)
            )

    def _recover(self, dead: Sequence[ReplicaHandle]) -> None:
        start, at_s = time.monotonic(), self._clock()
        self._replica_group.pool.find_machines()
        servers = [member for member in dead if member.role == "ps"]
        workers = [member for member in dead if member.role == "worker"]
        causes = {member: self._cause(member) for member in dead}
        self._count_worker_failures({worker: causes[worker] for worker in workers})
        self._replica_group.pool.free_slots(dead)  # their successors may need the room
        if servers:
            sizes = [self._replacement_size(member, causes[member]) for member in servers]
            with self._snapshots.lock:
                self._snapshots.refuse(servers)
                lost: Mapping[str, int] = {}
                new_servers: Sequence[ReplicaHandle] = ()
                try:
                    new_servers = self._replica_group.replace_dead_servers(
                        servers, sizes, self._snapshots.fill_from_snapshot
                    )
                    lost = self._account.count_losses()
                finally:  # even if another server, or a new one, has died meanwhile: the loss is counted later then
                    names = [new.name for new in new_servers] or [""] * len(servers)
                    failures = [
                        self._server_failure(member, causes[member], lost.get(name, 0), size)
                        for member, name, size in zip(servers, names, sizes, strict=True)
                        if member not in self._replica_group.membership.servers
                    ]
                    self._note(failures, at_s, start)
        if workers:
            self._replica_group.replace_dead_workers(workers)
            self._note([self._worker_failure(member, causes[member]) for member in workers], at_s, start)

    def _cause(self, member: ReplicaHandle) -> str:
        """Return why a replica ended, or the error that stopped its training, in one line."""
        cause = self._replica_group.pool.cause(member)
        if cause == "killed" and member in self._faults:
            return " ".join(self._faults[member].split())[:_MAX_CAUSE]
        return cause

    def _note(self, failures: Sequence[Failure], at_s: float, start: float) -> None:
        recovered_s = time.monotonic() - start
        self.failures += [f.model_copy(update={"at_s": at_s, "recovered_s": recovered_s}) for f in failures]

    def _replacement_size(self, member: ReplicaHandle, cause: str) -> Resources:
        """Return the size of the replacement, with more memory if the replica ran out of memory.

        Raise EngineError if no machine has that much.
        """
        size = member.resources
        if cause != "oom":
            return size
        forecast = self.ps_needs_bytes if member.role == "ps" else 0
        memory_bytes = forecast if forecast > size.memory_bytes else int(size.memory_bytes * OOM_FACTOR)
        if memory_bytes > max(available.memory_bytes for available in self._replica_group.pool.node_resources):
            raise EngineError(
                f"{member.name} needs more than {format_bytes(size.memory_bytes)}, but no machine has "
                f"{format_bytes(memory_bytes)} of free memory.",
                "Spread the tables over more PS, or resume the last snapshot on a larger machine.",
            )
        return size.model_copy(update={"memory_bytes": memory_bytes})

    def _server_failure(self, member: ReplicaHandle, cause: str, lost: int, size: Resources) -> Failure:
        if self._snapshots.complete:
            action = "Its partitions were restored from the last snapshot."
        elif self._snapshots.on:
            action = "There was no complete snapshot yet: what it had learned is lost."
        else:
            action = "There was no snapshot: its rows start anew, its dense weights come from a worker."
        if cause == "oom":
            action += f" The new one has {format_bytes(size.memory_bytes)}."
        return Failure(at_s=0.0, replica=member.name, cause=cause, updates_lost=lost, action=action)

    def _worker_failure(self, member: ReplicaHandle, cause: str) -> Failure:
        action = "Its unfinished samples were leased again, and a new worker took its place."
        return Failure(at_s=0.0, replica=member.name, cause=cause, action=action)
