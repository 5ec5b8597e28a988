"""A DLRM of TorchRec on CPU: tables sharded by `DistributedModelParallel` over gloo, with rowwise Adagrad.

It runs under torchrun, or any launcher that sets the same variables. SIGTERM makes all ranks end after the same step.
"""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.optimizers import in_backward_optimizer_filter

from sizewright import log_samples

TABLES = {"user": (200_000, 32, 1), "item": (50_000, 32, 1), "history": (50_000, 16, 20), "tags": (1_000, 8, 5)}
"""Rows, dimension, and mean number of ids a sample (pooling)."""
NUMBERS, WIDTH = 13, 32

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=512, help="of each rank")
parser.add_argument("--samples", type=int, default=200_000, help="of all ranks")
parser.add_argument("--loaders", type=int, default=0, help="processes that read, for each rank; 0: the rank itself")
args = parser.parse_args()


class Dlrm(nn.Module):
    """Pairwise products of the pooled vectors, brought to one width, between two MLPs."""

    def __init__(self):
        super().__init__()
        self.tables = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(name=name, embedding_dim=dim, num_embeddings=rows, feature_names=[name])
                for name, (rows, dim, _) in TABLES.items()
            ],
            device=torch.device("meta"),  # each rank allocates only the shards that it keeps
        )
        self.widen = nn.ModuleDict({name: nn.Linear(dim, WIDTH) for name, (_, dim, _) in TABLES.items()})
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 128), nn.ReLU(), nn.Linear(128, WIDTH), nn.ReLU())
        vectors = len(TABLES) + 1
        self.register_buffer("pairs", torch.triu_indices(vectors, vectors, 1), persistent=False)
        pairs = vectors * (vectors - 1) // 2
        self.top = nn.Sequential(nn.Linear(WIDTH + pairs, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, numbers, ids):
        """Return the logit of a click for each sample."""
        pooled, dense = self.tables(ids).to_dict(), self.bottom(numbers)
        vectors = torch.stack([dense, *(self.widen[name](pooled[name]) for name in TABLES)], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], dim=1)).squeeze(1)


class Batches(IterableDataset):
    """Random batches without end: numbers, ids (as many as the pooling in the mean, at least one) and labels."""

    def __iter__(self):
        info = get_worker_info()
        generator = torch.Generator().manual_seed(1000 * dist.get_rank() + (info.id if info else 0))
        while True:
            values, lengths = [], []
            for rows, _, pooling in TABLES.values():
                lengths.append(torch.randint(1, 2 * pooling, (args.batch_size,), generator=generator))
                values.append(torch.randint(rows, (int(lengths[-1].sum()),), generator=generator))
            labels = (torch.rand(args.batch_size, generator=generator) < 0.25).float()
            numbers = torch.randn(args.batch_size, NUMBERS, generator=generator)
            yield numbers, torch.cat(values), torch.cat(lengths), labels


def ignore_sigterm(_):
    """Let a loader go on at SIGTERM, which reaches all processes: the rank still needs it for its last step."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


stop_requested = torch.zeros(1)
signal.signal(signal.SIGTERM, lambda *_: stop_requested.fill_(1))
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = Dlrm()
apply_optimizer_in_backward(RowWiseAdagrad, model.tables.parameters(), {"lr": 0.02})
model = DistributedModelParallel(model, device=torch.device("cpu"))
dense_parameters = dict(in_backward_optimizer_filter(model.named_parameters()))
optimizer = torch.optim.Adagrad(dense_parameters.values(), lr=0.01)
loss_function = nn.BCEWithLogitsLoss()

done = 0
batches = iter(DataLoader(Batches(), batch_size=None, num_workers=args.loaders, worker_init_fn=ignore_sigterm))
while done < args.samples:
    start = time.perf_counter()
    numbers, values, lengths, labels = next(batches)
    ids = KeyedJaggedTensor.from_lengths_sync(list(TABLES), values, lengths)
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
