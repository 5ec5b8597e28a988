"""A DLRM in plain `torch.distributed` on CPU, whose batches are parsed from text by data loader processes.

It runs under torchrun, or any launcher that sets the same variables. SIGTERM makes all ranks end after the same step.
"""

import argparse
import itertools
import os
import random
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from sizewright import log_samples

TABLES, NUMBERS, ROWS, DIM = 26, 13, 2_000, 16

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=512, help="of each rank")
parser.add_argument("--samples", type=int, default=200_000, help="of all ranks")
parser.add_argument("--loaders", type=int, default=1, help="processes that parse, for each rank; 0: the rank itself")
parser.add_argument("--work", type=int, default=1, help="how often each line is parsed, to make reading dearer")
args = parser.parse_args()


class Clicks(IterableDataset):
    """Batches parsed from click-log lines as in Criteo's, without end: a label, 13 numbers, 26 hashed values."""

    def __iter__(self):
        info = get_worker_info()
        draw = random.Random(1000 * dist.get_rank() + (info.id if info else 0))
        lines = itertools.cycle([self.line(draw) for _ in range(4000)])
        while True:
            batch = list(itertools.islice(lines, args.batch_size))
            for _ in range(args.work):
                words = [line.split("\t") for line in batch]
                labels = torch.tensor([float(each[0]) for each in words])
                numbers = torch.tensor([[float(word) for word in each[1 : 1 + NUMBERS]] for each in words])
                ids = torch.tensor([[int(word, 16) % ROWS for word in each[1 + NUMBERS :]] for each in words])
            yield torch.log1p(numbers), ids, labels

    def line(self, draw):
        """Make up one line."""
        label, numbers = int(draw.random() < 0.25), (draw.randrange(1000) for _ in range(NUMBERS))
        return "\t".join([str(label), *map(str, numbers), *(f"{draw.getrandbits(32):08x}" for _ in range(TABLES))])


class Dlrm(nn.Module):
    """Embedding tables in one matrix, their pairwise products, and two MLPs."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TABLES * ROWS, DIM)
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 128), nn.ReLU(), nn.Linear(128, DIM), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(DIM + TABLES * (TABLES + 1) // 2, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("offsets", torch.arange(TABLES) * ROWS)
        self.register_buffer("pairs", torch.triu_indices(TABLES + 1, TABLES + 1, 1))

    def forward(self, numbers, ids):
        """Return the logit of a click for each sample."""
        dense = self.bottom(numbers)
        vectors = torch.cat([dense[:, None], self.embedding(ids + self.offsets)], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], dim=1)).squeeze(1)


def ignore_sigterm(_):
    """Let a loader go on at SIGTERM, which reaches all processes: the rank still needs it for its last step."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


stop_requested = torch.zeros(1)
signal.signal(signal.SIGTERM, lambda *_: stop_requested.fill_(1))
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(Dlrm())
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
loss_function = nn.BCEWithLogitsLoss()

done = 0
batches = iter(DataLoader(Clicks(), batch_size=None, num_workers=args.loaders, worker_init_fn=ignore_sigterm))
while done < args.samples:
    start = time.perf_counter()
    numbers, ids, labels = next(batches)
    read = time.perf_counter()
    optimizer.zero_grad()
    loss_function(model(numbers, ids), labels).backward()
    optimizer.step()
    done += args.batch_size * world
    log_samples(args.batch_size, data_s=read - start, compute_s=time.perf_counter() - read)
    stop = stop_requested.clone()
    dist.all_reduce(stop)  # all ranks leave after the same step, since none can train alone
    if stop.item():
        break
if rank == 0:
    print(f"trained {done} samples", flush=True)
del batches  # ends the loaders
dist.barrier()
os._exit(0)  # threads of gloo may abort the interpreter's shutdown
