"""The fastest single-process loop of the same training: one fused table, distinct ids, one thread, fused optimizer.

As a script it trains for some seconds and prints samples/s.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import torch
from torch import nn

from sizewright.datasets.clicks.source import open_source
from sizewright.spec import Job
from sizewright.training.worker.networks import make_network


def train(job: Job, seconds: float) -> float:
    """Train for `seconds` after a warm-up and return samples/s."""
    torch.set_num_threads(1)
    network = make_network(job.model)
    sizes = np.array(job.model.tables.sizes())
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    table = torch.rand(int(sizes.sum()), job.model.row_widths[0]) - 0.5
    squares = torch.zeros_like(table)
    rate = job.model.optimizer.learning_rate
    dense_optimizer = torch.optim.Adagrad(network.parameters(), lr=rate, fused=True)
    loss_of = nn.BCEWithLogitsLoss()
    steps, start = -10, 0.0
    for batch in open_source(job):
        if steps == 0:
            start = time.perf_counter()
        distinct, inverse = np.unique((batch.ids + offsets).ravel(), return_inverse=True)
        slots = torch.from_numpy(distinct)
        rows = table.index_select(0, slots).requires_grad_()
        embedded = nn.functional.embedding(torch.from_numpy(inverse), rows).view(*batch.ids.shape, -1)
        dense_optimizer.zero_grad(set_to_none=False)
        logits = network(torch.from_numpy(batch.dense), embedded)
        loss_of(logits, torch.from_numpy(batch.labels)).backward()
        dense_optimizer.step()
        with torch.no_grad():
            assert rows.grad is not None
            summed = squares.index_select(0, slots).addcmul_(rows.grad, rows.grad)
            squares.index_copy_(0, slots, summed)
            table.index_copy_(0, slots, rows.detach().addcdiv(rows.grad, summed.sqrt_().add_(1e-8), value=-rate))
        steps += 1
        if steps > 0 and time.perf_counter() - start > seconds:
            break
    return steps * job.training.batch_size / (time.perf_counter() - start)


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(train(Job.load(sys.argv[1]), float(sys.argv[2])))
