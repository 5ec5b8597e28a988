"""A DLRM in plain PyTorch on one GPU, which reads text lines in processes of its own.

Without a GPU it trains on the CPU. With `--loaders 0` it reads nothing: the same few batches are trained again and
again, which shows what the GPU alone can do.
"""

import argparse
import itertools
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from sizewright import log_samples

TABLES, NUMBERS = 26, 13

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4096)
parser.add_argument("--samples", type=int, default=100_000_000)
parser.add_argument("--loaders", type=int, default=2, help="processes that read")
parser.add_argument("--rows", type=int, default=100_000, help="of each of the 26 tables")
parser.add_argument("--dim", type=int, default=16)
args = parser.parse_args()


def text_lines(rng: np.random.Generator, count: int = 4000) -> list[str]:
    """Click-log lines as in Criteo's: a label, 13 numbers and 26 hashed values, separated by tabs."""
    return [
        "\t".join(
            [
                str(int(rng.random() < 0.25)),
                *map(str, rng.integers(0, 1000, NUMBERS)),
                *(f"{value:08x}" for value in rng.integers(0, 2**32, TABLES)),
            ]
        )
        for _ in range(count)
    ]


class Lines(IterableDataset):
    """Batches parsed from text, without end."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        lines = text_lines(np.random.default_rng(info.id if info else 0))
        endless = itertools.cycle(lines)
        while True:
            parsed = [line.split("\t") for line in itertools.islice(endless, args.batch_size)]
            labels = torch.tensor([float(words[0]) for words in parsed])
            numbers = torch.tensor([[int(word) for word in words[1 : 1 + NUMBERS]] for words in parsed])
            ids = torch.tensor([[int(word, 16) % args.rows for word in words[1 + NUMBERS :]] for words in parsed])
            yield labels, torch.log1p(numbers.float()), ids


class Dlrm(nn.Module):
    """Embedding tables in one matrix, their pairwise products, and two MLPs."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TABLES * args.rows, args.dim, sparse=True)
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 512), nn.ReLU(), nn.Linear(512, args.dim), nn.ReLU())
        pairs = TABLES * (TABLES + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(args.dim + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
        )
        self.register_buffer("offsets", torch.arange(TABLES) * args.rows)
        self.register_buffer("upper", torch.triu_indices(TABLES + 1, TABLES + 1, 1))

    def forward(self, numbers, ids):
        """Return the logit of a click for each sample."""
        dense = self.bottom(numbers)
        vectors = torch.cat([dense[:, None], self.embedding(ids + self.offsets)], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.upper[0], self.upper[1]]], dim=1)).squeeze(1)


def batches():
    """The batches to train."""
    if args.loaders:
        pinned = torch.cuda.is_available()
        return iter(DataLoader(Lines(), batch_size=None, num_workers=args.loaders, pin_memory=pinned))
    return itertools.cycle(list(itertools.islice(Lines(), 4)))


cuda = torch.cuda.is_available()
device = torch.device("cuda" if cuda else "cpu")
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
with device:
    model = Dlrm()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
loss_function = nn.BCEWithLogitsLoss()
done, source = 0, batches()
while done < args.samples:
    start = time.perf_counter()
    labels, numbers, ids = next(source)
    read = time.perf_counter()
    labels, numbers, ids = (each.to(device, non_blocking=True) for each in (labels, numbers, ids))
    optimizer.zero_grad()
    loss_function(model(numbers, ids), labels).backward()
    optimizer.step()
    if cuda:
        torch.cuda.synchronize()
    now = time.perf_counter()
    log_samples(args.batch_size, data_s=read - start, compute_s=now - read)
    done += args.batch_size
os._exit(0)  # the readers have no end
