"""Watches the replicas of a session and puts new ones in the places of those that have died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from sizewright.errors import EngineDiedError, EngineError, SizewrightError
from sizewright.spec import Failure, Resources
from sizewright.spec.units import format_bytes
from sizewright.training.account import Account
from sizewright.training.crew import Crew
from sizewright.training.fleet import Member
from sizewright.training.replica import Health
from sizewright.training.snapshots import Snapshots

_EVERY_S = 0.25
_ANSWER_S = 10.0
# A PS that was ended for its memory would be ended again with as much. This is where nobody forecasts what it needs.
OOM_FACTOR = 1.5
_MOST_IN_A_ROW, _MOST_REFUSALS = 12, 3


class Recovery:
    """`failures` say what each loss has cost. Gives up, with `gave_up`, when nothing is trained between failures."""

    def __init__(
        self, crew: Crew, snapshots: Snapshots, account: Account, lock: threading.RLock, clock: Callable[[], float]
    ) -> None:
        self.failures: list[Failure] = []
        self.gave_up: SizewrightError | None = None
        self._crew, self._snapshots, self._account, self._lock, self._clock = crew, snapshots, account, lock, clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples, self._in_a_row = -1, 0
        self._cuts: dict[int, tuple[int, float]] = {}
        self.ps_needs_bytes = 0
        """What a PS is forecast to need, if anybody said so."""

    def give_up(self, error: SizewrightError) -> None:
        """Nothing can be replaced any more."""
        self.gave_up = self.gave_up or error

    def start(self) -> None:
        """Watch from now on."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="recovery")
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S) and self.gave_up is None:
            with self._lock:
                if not self._stop.is_set():
                    self._watch()

    def _watch(self) -> None:
        try:
            self.look()
        except Exception as error:  # else nobody would ever be told that nobody watches
            self.gave_up = EngineError(
                f"Watching over the replicas failed: {type(error).__name__}: {error}.",
                "Resume the last snapshot, and report this.",
            )

    def look(self) -> None:
        """Replace what has died; for callers that hold the lock."""
        if self._crew.routing is None:
            return
        try:
            if dead := self._dead():
                self._recover(dead)
            self._crew.workers.release_gone()
            self._crew.rejoin()
        except SizewrightError as error:
            self._try_again(error)

    def _try_again(self, error: SizewrightError) -> None:
        """Another may have died meanwhile; the next look sees to it, unless that leads nowhere."""
        trained = self._crew.leases.book.trained
        self._in_a_row = self._in_a_row + 1 if trained == self._samples else 0
        self._samples = trained
        most = _MOST_REFUSALS if isinstance(error, EngineError) else _MOST_IN_A_ROW
        if self._in_a_row >= most or isinstance(error, EngineDiedError):
            self.gave_up = error

    def _dead(self) -> list[Member]:
        """Members whose process has ended, or whose training has failed."""
        fleet, members = self._crew.fleet, self._crew.roster.members
        asked = {member.actor.health.remote(): member for member in members}
        dead = []
        for ref in fleet.answered(list(asked), _ANSWER_S):
            try:
                health = fleet.ray.get(ref)
                if health.fault is not None:
                    dead.append(asked[ref])
                self._note_cuts(asked[ref], health)
            except fleet.ray.exceptions.ActorUnavailableError:
                continue  # its node may be about to be declared lost, or to answer again
            except fleet.ray.exceptions.RayError:
                dead.append(asked[ref])
        return dead

    def _note_cuts(self, worker: Member, health: Health) -> None:
        """Connections of a worker that broke and were opened again; it counts anew each time that it joins."""
        cuts, cut_s = self._cuts.get(worker.joined, (0, 0.0))
        if health.cuts > cuts:
            self._cuts[worker.joined] = health.cuts, health.cut_s
            count = health.cuts - cuts
            action = "It was opened again, and what had been on its way was sent again."
            cause = "link cut" if count == 1 else f"{count} links cut"
            lost_s = health.cut_s - cut_s
            at_s = max(0.0, self._clock() - lost_s)
            self.failures.append(
                Failure(at_s=at_s, replica=worker.name, cause=cause, recovered_s=lost_s, action=action)
            )

    def _recover(self, dead: Sequence[Member]) -> None:
        start, at_s = time.monotonic(), self._clock()
        self._crew.fleet.find_machines()
        servers = [member for member in dead if member.role == "ps"]
        workers = [member for member in dead if member.role == "worker"]
        causes = {member: self._crew.fleet.cause(member) for member in dead}
        self._crew.fleet.release(dead)  # their successors may need the room
        if servers:
            sizes = [self._enough(member, causes[member]) for member in servers]
            with self._snapshots.lock:
                self._snapshots.refuse(servers)
                lost: Mapping[str, int] = {}
                heirs: Sequence[Member] = ()
                try:
                    heirs = self._crew.restore(servers, sizes, self._snapshots.restore)
                    lost = self._account.settle()
                finally:  # told also where another one, or an heir, has died meanwhile: the loss is counted then
                    names = [heir.name for heir in heirs] or [""] * len(servers)
                    told = [
                        self._server_failure(member, causes[member], lost.get(name, 0), size)
                        for member, name, size in zip(servers, names, sizes, strict=True)
                        if member not in self._crew.roster.servers
                    ]
                    self._note(told, at_s, start)
        if workers:
            self._crew.put_in_place(workers)
            self._note([self._worker_failure(member, causes[member]) for member in workers], at_s, start)

    def _note(self, failures: Sequence[Failure], at_s: float, start: float) -> None:
        took = time.monotonic() - start
        self.failures += [f.model_copy(update={"at_s": at_s, "recovered_s": took}) for f in failures]

    def _enough(self, member: Member, cause: str) -> Resources:
        """The size of the replacement: more memory where that was the cause, if a machine has it."""
        size = member.resources
        if cause != "oom":
            return size
        known = self.ps_needs_bytes if member.role == "ps" else 0
        wanted = known if known > size.memory_bytes else int(size.memory_bytes * OOM_FACTOR)
        if wanted > max(offer.memory_bytes for offer in self._crew.fleet.offers):
            raise EngineError(
                f"{member.name} needs more than {format_bytes(size.memory_bytes)} and no machine has "
                f"{format_bytes(wanted)} left.",
                "Spread the tables over more PS, or resume the last snapshot on a larger machine.",
            )
        return size.model_copy(update={"memory_bytes": wanted})

    def _server_failure(self, member: Member, cause: str, lost: int, size: Resources) -> Failure:
        source = "the last snapshot" if self._snapshots.on else "nothing, so that they begin anew"
        action = f"Its partitions were restored from {source}."
        if cause == "oom":
            action += f" The new one has {format_bytes(size.memory_bytes)}."
        return Failure(at_s=0.0, replica=member.name, cause=cause, updates_lost=lost, action=action)

    def _worker_failure(self, member: Member, cause: str) -> Failure:
        action = "Its unfinished samples were leased again, and a new worker took its place."
        return Failure(at_s=0.0, replica=member.name, cause=cause, action=action)
