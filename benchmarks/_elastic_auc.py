"""AUC on held-out samples, after a run with changes and a kill and after a run without, over the same samples."""

from __future__ import annotations

import os
import signal
import tempfile

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import nn

from benchmarks._report import choose
from sizewright.datasets.clicks.batch import Batch
from sizewright.spec import Allocation, Data, Job, Model, Optimizer, Outcome, Tables, Training
from sizewright.training.program import BuiltIn
from sizewright.training.ps.embedding import make_keys
from sizewright.training.ps.snapshot_files import snapshots
from sizewright.training.session import Session
from sizewright.training.worker.weights import FlatWeights

SAMPLES, HELD_OUT = choose((400_000, 60_000), (400_000, 60_000), (15_000, 2_000))
BATCH = 256
JOB = Job(
    name="auc",
    model=Model(
        tables=Tables(count=26, rows=2000, dim=8),
        bottom_mlp=(64,),
        top_mlp=(64,),
        optimizer=Optimizer(name="adagrad", learning_rate=0.02),
    ),
    data=Data(zipf=1.05),
    training=Training(batch_size=BATCH),
)
SHAPES = ((3, 1), (2, 2), (1, 1), (3, 2), (2, 1), (1, 2), (2, 2))


def auc(seed: int, *, elastic: bool) -> tuple[float, Outcome]:
    """Train once and return the AUC and the outcome of the session."""
    program = BuiltIn(seed)
    options = {"recover": True, "snapshot_s": 1.0, "reserve": {"worker": 1, "ps": 1}} if elastic else {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(JOB, samples=SAMPLES, program=program, **options) as session,  # type: ignore[arg-type]
    ):
        session.scale(_at(2, 1))
        if elastic:
            _disturb(session)
        session.wait()
        session.checkpoint(folder)
        return _evaluate(folder, program), session.outcome()


def _disturb(session: Session) -> None:
    """Make seven changes and one kill, spread over the first three quarters of the samples."""
    for i, shape in enumerate(SHAPES):
        while session.observe().samples_trained < SAMPLES * 0.75 * (i + 1) / (len(SHAPES) + 1):
            if session.wait(0.05):
                return
        session.scale(_at(*shape))
        if i == 3:
            name, pid = next((name, pid) for name, pid in session.pids().items() if name.startswith("ps"))
            os.kill(pid, signal.SIGKILL)
            print(f"  killed {name}")


def _at(workers: int, ps: int) -> Allocation:
    return Allocation.of(workers, ps, 0.2, 0.1, BATCH)


def _evaluate(folder: str, program: BuiltIn) -> float:
    path = snapshots(folder)[-1]
    keys, weights, dense = (np.load(path / f"{name}.npy") for name in ("keys", "weights", "dense"))
    order = np.argsort(keys)
    keys, weights = keys[order], weights[order]
    network = program.network(JOB)
    FlatWeights(network).weights[:] = dense.ravel()
    batch = program.samples(JOB, 1.0).read(SAMPLES, HELD_OUT)
    return float(roc_auc_score(batch.labels, _predict(network, keys, weights, batch)))


def _predict(
    network: nn.Module, keys: NDArray[np.int64], weights: NDArray[np.float32], batch: Batch
) -> NDArray[np.float32]:
    batch_keys = make_keys(batch.ids)
    at = np.minimum(np.searchsorted(keys, batch_keys), len(keys) - 1)
    rows = np.where(
        (keys[at] == batch_keys)[:, None], weights[at], np.float32(0)
    )  # an id that was never trained contributes nothing
    with torch.no_grad():
        embedded = torch.from_numpy(rows.astype(np.float32)).view(*batch.ids.shape, -1)
        outputs: NDArray[np.float32] = network(torch.from_numpy(batch.dense), embedded).numpy()
    return outputs
