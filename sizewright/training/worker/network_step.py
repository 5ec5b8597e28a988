"""The computation of a worker: the gradients of one batch by a PyTorch network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sizewright.datasets.clicks.batch import Batch
from sizewright.spec import Model
from sizewright.training.ps.embedding import make_keys
from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import Floats
from sizewright.training.worker.weights import FlatWeights

Loss = Callable[[Tensor, Tensor], Tensor]


class NetworkStep:
    """Accumulates the gradients of the dense weights, and returns those of the rows.

    `weights` (d,) are the dense weights in the host's memory; after they are written, `put_weights` must follow.
    """

    def __init__(self, model: Model, network: nn.Module, loss: Loss, device: str = "cpu") -> None:
        self._device, self._loss = torch.device(device), loss
        self._network = network.to(self._device)
        self._flat = FlatWeights(self._network)
        self._groups = _group_columns(model)
        self.weights: Floats = self._flat.weights
        self.put_weights, self.take_grads = self._flat.put_weights, self._flat.take_grads

    def keys(self, batch: Batch) -> list[Keys]:
        """Return the keys (n·columns,) of a batch's ids for each width of rows, in the order of its samples."""
        return [make_keys(batch.ids[:, group.columns], group.tables) for group in self._groups]

    def gradients(
        self, batch: Batch, inverses: Sequence[NDArray[np.int64]], rows: Sequence[Floats]
    ) -> tuple[list[Floats], float]:
        """Return the gradients of the distinct rows of a batch, arrays (u, width) for each width, and its loss.

        `rows` are these rows, `inverses` (n·columns,) have the row of each of the `keys`.
        """
        pulled = [torch.from_numpy(array).to(self._device).requires_grad_() for array in rows]
        embedded = tuple(
            self._embed(group, torch.from_numpy(inverse).to(self._device), of_group)
            for group, inverse, of_group in zip(self._groups, inverses, pulled, strict=True)
        )
        dense = torch.from_numpy(batch.dense).to(self._device)
        outputs = self._network(dense, embedded[0] if len(embedded) == 1 else embedded)
        loss = self._loss(outputs, torch.from_numpy(batch.labels).to(self._device))
        loss.backward()  # type: ignore[no-untyped-call]
        return [_gradient(array).cpu().numpy() for array in pulled], float(loss.detach())

    def _embed(self, group: _Group, places: Tensor, rows: Tensor) -> Tensor:
        """Return the rows of each sample's ids (n, tables, width), summed up within each table."""
        samples = len(places) // len(group.tables)
        if group.starts is None:
            return nn.functional.embedding(places, rows).view(samples, len(group.tables), rows.shape[1])
        first = torch.arange(samples).unsqueeze(1) * len(group.tables)
        starts = (first + torch.from_numpy(group.starts)).flatten().to(self._device)
        pooled = nn.functional.embedding_bag(places, rows, starts, mode="sum")
        return pooled.view(samples, len(group.starts), rows.shape[1])


class _Group(NamedTuple):
    """The columns of ids of the tables whose rows are equally wide."""

    columns: slice | NDArray[np.int64]
    """All columns, or their positions."""
    tables: NDArray[np.int64]
    """The table of each of the columns."""
    starts: NDArray[np.int64] | None
    """The first column of each table, counted within the group; None where every table has one."""


def _group_columns(model: Model) -> list[_Group]:
    of_column = np.array(model.tables.id_columns, np.int64)
    groups = []
    for group in model.table_groups:
        columns = np.flatnonzero(np.isin(of_column, group.tables))
        tables = of_column[columns]
        starts = np.flatnonzero(np.diff(tables, prepend=-1))
        one_each = len(starts) == len(tables)
        everything = len(columns) == len(of_column)
        groups.append(_Group(slice(None) if everything else columns, tables, None if one_each else starts))
    return groups


def _gradient(rows: Tensor) -> Tensor:
    assert rows.grad is not None
    return rows.grad
