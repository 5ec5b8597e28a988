"""How long a job takes on some hosts, with the pauses of its checkpoints and the interruptions of spot hosts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sizewright.recommender.machines.interruptions import Checkpoints, WorkTimes, probability_within, time_quantiles
from sizewright.recommender.machines.offers import Offer
from sizewright.spec import Job
from sizewright.spec.objective import DEADLINE_PROBABILITY, completion_time_s

Floats = NDArray[np.float64]
_INTERVAL = np.array([0.05, 0.95])


class Times:
    """The completion times of a job at some samples/s; of one sample where their number is unknown."""

    def __init__(self, job: Job, offer: Offer | None) -> None:
        checkpoint = job.training.checkpoint
        self._samples = job.samples
        self._factor = checkpoint.time_factor if checkpoint else 1.0
        self._checkpoints = Checkpoints(checkpoint.every, checkpoint.restart) if checkpoint else None
        self._interruptions_s = offer.interruptions_s if offer else 0.0

    @property
    def interrupted(self) -> bool:
        """Return whether hosts may be taken away."""
        return self._interruptions_s > 0

    def work_s(self, throughput: Floats) -> Floats:
        """Return the times (n,) without interruptions."""
        return completion_time_s(self._samples or 1, throughput) * self._factor

    def mean_s(self, throughput: Floats, hosts: Floats) -> Floats:
        """Return the mean times (n,) at some samples/s and numbers of hosts (n,)."""
        work_s = self.work_s(throughput)
        if not self._checkpoints or not self.interrupted:
            return work_s
        rate = self._rate(hosts)
        if self._samples is None:
            return work_s * self._checkpoints.slowdown(rate)
        return self._checkpoints.expected_time_s(work_s, rate)

    def probability_within(
        self, deadline_s: float, throughput: Floats, upper: Floats, slowest: Floats, hosts: Floats
    ) -> Floats:
        """Return the probabilities (n,) of completion by a deadline.

        `upper` is the end of the 90 % interval of samples/s, and `slowest` is exceeded with probability 0.9.
        """
        works = WorkTimes.of(*map(self.work_s, (throughput, upper, slowest)), faster=0.05, slower=DEADLINE_PROBABILITY)
        if not self._checkpoints or not self.interrupted:
            return works.within(np.array([deadline_s]))[:, 0]
        return probability_within(deadline_s, works, self._rate(hosts), self._checkpoints)

    def interval_s(self, throughput: float, lower: float, upper: float, hosts: float) -> tuple[float, float]:
        """Return the 90 % interval of the time, given that of samples/s and the number of hosts."""
        fastest_s, median_s, slowest_s = (self.work_s(np.array([rate])) for rate in (upper, throughput, lower))
        if not self._checkpoints or not self.interrupted:
            return float(fastest_s[0]), float(slowest_s[0])
        works = WorkTimes.of(median_s, fastest_s, slowest_s, faster=0.05, slower=0.95)
        low, high = time_quantiles(_INTERVAL, works, self._interruptions_s * hosts, self._checkpoints)
        mean_s = float(self._checkpoints.expected_time_s(median_s, self._interruptions_s * hosts)[0])
        return min(float(low), mean_s), max(float(high), mean_s)  # a rare long loss may put the mean beyond the end

    def latest_s(self, throughput: Floats, upper: Floats, slowest: Floats, hosts: Floats) -> float:
        """Return the time by which one job completes with probability 0.9; the arguments are those above, (1,) each."""
        if not self._checkpoints or not self.interrupted:
            return float(self.work_s(slowest)[0])
        works = WorkTimes.of(*map(self.work_s, (throughput, upper, slowest)), faster=0.05, slower=DEADLINE_PROBABILITY)
        share, rate = np.array([DEADLINE_PROBABILITY]), self._interruptions_s * float(hosts[0])
        return float(time_quantiles(share, works, rate, self._checkpoints)[0])

    def _rate(self, hosts: Floats) -> Floats:
        """Return the interruptions of the job per second (n,): of any of its hosts."""
        return self._interruptions_s * np.where(np.isfinite(hosts), hosts, 0.0)
