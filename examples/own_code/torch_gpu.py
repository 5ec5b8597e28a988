"""A DLRM in plain PyTorch, one rank on each GPU, which reads text lines in processes of its own.

Each rank holds some of the tables and looks up their rows for all ranks; the MLPs are replicated. Without a GPU it
trains on the CPU. With `--loaders 0` it reads nothing: the same few batches are trained again and
again, which shows what the GPU alone can do.
"""

import argparse
import itertools
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as exchange
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from sizewright import log_samples

TABLES, NUMBERS = 26, 13

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4096, help="of each rank")
parser.add_argument("--samples", type=int, default=100_000_000, help="of all ranks")
parser.add_argument("--loaders", type=int, default=2, help="processes that read")
parser.add_argument("--rows", type=int, default=100_000, help="of each of the 26 tables")
parser.add_argument("--dim", type=int, default=16)
args = parser.parse_args()
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
TABLES_OF_RANK = [len(range(each, TABLES, world)) for each in range(world)]


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
        lines = text_lines(np.random.default_rng((rank, info.id if info else 0)))
        endless = itertools.cycle(lines)
        while True:
            parsed = [line.split("\t") for line in itertools.islice(endless, args.batch_size)]
            labels = torch.tensor([float(words[0]) for words in parsed])
            numbers = torch.tensor([[int(word) for word in words[1 : 1 + NUMBERS]] for words in parsed])
            ids = torch.tensor([[int(word, 16) % args.rows for word in words[1 + NUMBERS :]] for words in parsed])
            yield labels, torch.log1p(numbers.float()), ids


class Tables(nn.Module):
    """The embedding tables of this rank in one matrix."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(TABLES_OF_RANK[rank] * args.rows, args.dim, sparse=True)
        self.register_buffer("offsets", torch.arange(TABLES_OF_RANK[rank]) * args.rows)

    def forward(self, ids):
        """Return the vectors of all tables for the samples of this rank."""
        if world == 1:
            return self.rows(ids + self.offsets)
        of_all = ids.new_empty(world * len(ids), TABLES)
        dist.all_gather_into_tensor(of_all, ids.contiguous())
        vectors = self.rows(of_all[:, rank::world] + self.offsets).flatten()
        sizes = [len(ids) * count * args.dim for count in TABLES_OF_RANK]
        received = exchange.all_to_all_single(vectors.new_empty(sum(sizes)), vectors, sizes, [sizes[rank]] * world)
        return torch.cat([part.view(len(ids), -1, args.dim) for part in received.split(sizes)], dim=1)


class Mlps(nn.Module):
    """The pairwise products of the vectors, and two MLPs."""

    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 512), nn.ReLU(), nn.Linear(512, args.dim), nn.ReLU())
        pairs = TABLES * (TABLES + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(args.dim + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
        )
        self.register_buffer("upper", torch.triu_indices(TABLES + 1, TABLES + 1, 1))

    def forward(self, numbers, vectors):
        """Return the logit of a click for each sample."""
        dense = self.bottom(numbers)
        vectors = torch.cat([dense[:, None], vectors], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.upper[0], self.upper[1]]], dim=1)).squeeze(1)


def batches():
    """The batches to train."""
    if args.loaders:
        pinned = torch.cuda.is_available()
        return iter(DataLoader(Lines(), batch_size=None, num_workers=args.loaders, pin_memory=pinned))
    return itertools.cycle(list(itertools.islice(Lines(), 4)))


cuda = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
if world > 1:
    dist.init_process_group("nccl" if cuda else "gloo")
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
with device:
    tables, mlps = Tables(), Mlps()
    mlps = DistributedDataParallel(mlps) if world > 1 else mlps
optimizer = torch.optim.Adagrad([*tables.parameters(), *mlps.parameters()], lr=0.01)
loss_function = nn.BCEWithLogitsLoss()
done, source = 0, batches()
while done < args.samples:
    start = time.perf_counter()
    labels, numbers, ids = next(source)
    read = time.perf_counter()
    labels, numbers, ids = (each.to(device, non_blocking=True) for each in (labels, numbers, ids))
    optimizer.zero_grad()
    loss_function(mlps(numbers, tables(ids)), labels).backward()
    optimizer.step()
    if cuda:
        torch.cuda.synchronize()
    now = time.perf_counter()
    log_samples(args.batch_size, data_s=read - start, compute_s=now - read)
    done += args.batch_size * world
os._exit(0)  # the readers have no end
