"""A small recommendation model in plain PyTorch: replicated workers that average their gradients with gloo.

It runs under torchrun, or any launcher that sets the same variables. SIGTERM makes it write a checkpoint and end.
"""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

from sizewright import log_samples

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=512)
parser.add_argument("--samples", type=int, default=200_000)
parser.add_argument("--checkpoint", default="")
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
embeddings = nn.EmbeddingBag(20_000, 16, mode="sum")
network = nn.Sequential(nn.Linear(16 + 13, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
model = nn.ModuleDict({"embeddings": embeddings, "network": network})
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
loss_function = nn.BCEWithLogitsLoss()

done = 0
if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    done = saved["samples"]

stop_requested = torch.zeros(1)
signal.signal(signal.SIGTERM, lambda *_: stop_requested.fill_(1))
generator = torch.Generator().manual_seed(rank)
started, resumed_at = time.perf_counter(), done
while done < args.samples:
    start = time.perf_counter()
    dense = torch.randn(args.batch_size, 13, generator=generator)
    ids = torch.randint(0, 20_000, (args.batch_size, 26), generator=generator)
    labels = (torch.rand(args.batch_size, 1, generator=generator) < 0.25).float()
    read = time.perf_counter()
    optimizer.zero_grad()
    loss_function(model["network"](torch.cat([model["embeddings"](ids), dense], dim=1)), labels).backward()
    computed = time.perf_counter()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
    done += args.batch_size * world
    now = time.perf_counter()
    log_samples(args.batch_size, data_s=read - start, compute_s=computed - read, push_s=now - computed)
    stop = stop_requested.clone()
    dist.all_reduce(stop)
    if stop.item():
        break
if rank == 0:
    if args.checkpoint:
        torch.save({"model": model.state_dict(), "samples": done}, args.checkpoint)
    duration_s, trained = time.perf_counter() - started, done - resumed_at
    print(f"trained {trained} samples in {duration_s:.2f} s: {trained / duration_s:.0f} samples/s", flush=True)
dist.destroy_process_group()
os._exit(0)  # gloo's threads abort the interpreter's shutdown in about 5 % of runs
