"""Elastic-Tiresias (EDL, arXiv 1909.11985): two queues by attained service, compaction when many wait, then growth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sizewright.cluster.allocators._base import Allocator, by_arrival, facts_of
from sizewright.cluster.allocators._ladder import climb, frontier, steps_by
from sizewright.cluster.allocators._queue import served
from sizewright.cluster.allocators._wanted import wanted_of
from sizewright.cluster.allotment import Allotment, chosen
from sizewright.cluster.facts import Facts
from sizewright.cluster.problem import Bools, Ints, Problem

COMPACTION = 10
"""Waiting jobs beyond which running ones of lower queues shrink to their least."""
QUEUE_LIMIT = 3600.0
"""Attained service (units of the first resource × seconds) that the top queue ends at: an hour of one; ours."""


class ElasticTiresias(Allocator):
    """Jobs of little attained service first, then by first start; each gets its request if it fits."""

    name = "elastic-tiresias"
    origin = "EDL, arXiv 1909.11985"

    def choose(self, problem: Problem, until: float) -> Allotment:
        """See `Allocator`."""
        facts = facts_of(problem, self.name)
        top = facts.attained < QUEUE_LIMIT
        wanted, order = wanted_of(problem), _order(facts, top, problem)
        choice = served(problem, order, wanted, strict=False)
        if int(((choice == 0) & (problem.least > 0)).sum()) > COMPACTION:
            shrunk = np.where(top, wanted, problem.least)
            choice = served(problem, order, shrunk, strict=False)
        return chosen(problem, self.name, _grown(problem, facts, choice))


def _order(facts: Facts, top: Bools, problem: Problem) -> Ints:
    first = np.where(np.isfinite(facts.started_s), facts.started_s, np.inf)
    arrived = np.empty(len(first), dtype=np.intp)
    arrived[by_arrival(problem)] = np.arange(len(first))
    return np.lexsort((arrived, first, ~top))


def _grown(problem: Problem, facts: Facts, choice: Ints) -> Ints:
    """What is left goes to the greatest gain of relative speed for its size, from where each job stands."""
    rows = np.arange(len(choice))
    least = np.maximum(facts.speed[rows, problem.least], 1e-300)
    offered = problem.offered & (problem.share >= problem.share[rows, choice][:, None])
    offered[rows, choice] = True
    offered[:, 0] = choice == 0
    started = replace(problem, values=facts.speed / least[:, None], offered=offered, current=choice, fallback=choice)
    ladder = frontier(started, problem.share)
    return climb(started, ladder, *steps_by(started, ladder, problem.share))
