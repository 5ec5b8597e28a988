"""What the cluster file says of links, as columns that a throughput model reads."""

from __future__ import annotations

import numpy as np

from sizewright.models.table import Columns
from sizewright.spec import Cluster


def with_links(columns: Columns, cluster: Cluster | None) -> Columns:
    """Columns with the bandwidth of the slowest links declared, and how many workers share one, as far as any is.

    Workers are taken to fill one host before the next, as engines that keep them together do: the worst for a link.
    """
    declared = [(host.network_gbps, -host.cpu) for host in cluster.hosts if host.network_gbps] if cluster else []
    if not declared:
        return columns
    gbps, cpu = min(declared)
    workers = columns["workers"]
    fitting = np.maximum(np.floor(-cpu / columns["worker_cpu"] + 1e-9), 1.0)
    return {
        **columns,
        "network_gbps": np.full(len(workers), gbps),
        "workers_per_host": np.minimum(workers, fitting),
    }
