"""DLRover's own optimizer behind lines of JSON; it runs with the Python of an environment that has `dlrover`.

A line {"limits": {"cpu", "memory"}} begins a job, a line {"stats": {...}} reports one observation of it, and a line
{"stage": "..."} asks for a plan, which is answered by one line. Memory is in MiB.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any


def main() -> None:
    from dlrover.python.common.constants import NodeType
    from dlrover.python.common.node import Node, NodeResource
    from dlrover.python.master.resource.local_optimizer import PSLocalOptimizer
    from dlrover.python.master.stats.reporter import JobMeta, LocalStatsReporter
    from dlrover.python.master.stats.training_metrics import RuntimeMetric
    from dlrover.python.scheduler.job import ResourceLimits

    logging.disable(logging.CRITICAL)
    job = "job"
    optimizer: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        if "limits" in message:
            optimizer = PSLocalOptimizer(job, ResourceLimits(**message["limits"]))
            LocalStatsReporter.singleton_instance(JobMeta(job))._runtime_stats = []
        elif "stats" in message:
            stats, nodes = message["stats"], []
            for kind, role in ((NodeType.PS, "ps"), (NodeType.WORKER, "worker")):
                of_role = stats[role]
                for index in range(of_role["count"]):
                    node = Node(kind, index, NodeResource(of_role["cpu"], of_role["memory"]), name=f"{role}-{index}")
                    node.used_resource = NodeResource(of_role["used_cpu"], of_role["used_memory"])
                    nodes.append(node)
            metric = RuntimeMetric(nodes, speed=stats["speed"], timestamp=stats["at_s"], global_step=stats["step"])
            LocalStatsReporter.singleton_instance(JobMeta(job)).report_runtime_stats(metric)
        else:
            plan = optimizer.generate_opt_plan(message["stage"])
            groups = {
                kind: {"count": group.count, "cpu": group.node_resource.cpu, "memory": group.node_resource.memory}
                for kind, group in plan.node_group_resources.items()
            }
            sizes = {name: {"cpu": node.cpu, "memory": node.memory} for name, node in plan.node_resources.items()}
            print(json.dumps({"groups": groups, "nodes": sizes}), flush=True)


if __name__ == "__main__":
    main()
