"""Draw trials, models, recommendations, runs and simulations; each function returns a matplotlib figure::

    import sizewright as sw
    from sizewright import plots
    with sw.open_store("trials.db") as store:
        plots.throughput(job, store.trials(job_hash=job.hash)).savefig("throughput.svg")

Needs the extra `plots`.
"""

from sizewright.plots._base import Picture
from sizewright.plots.decisions import decisions
from sizewright.plots.memory import memory
from sizewright.plots.observed import observed
from sizewright.plots.over_time import over_time
from sizewright.plots.pareto import pareto
from sizewright.plots.phases import phases
from sizewright.plots.predicted import predicted
from sizewright.plots.simulation import simulation
from sizewright.plots.throughput import throughput

__all__ = [
    "Picture",
    "decisions",
    "memory",
    "observed",
    "over_time",
    "pareto",
    "phases",
    "predicted",
    "simulation",
    "throughput",
]
