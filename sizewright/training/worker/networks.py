"""The dense networks: DLRM, Wide&Deep, DCN-v2 and xDeepFM over embedded ids and numeric columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sizewright.spec import Model


def make_mlp(width_in: int, widths: Sequence[int], *, last_relu: bool = True) -> nn.Sequential:
    """Return linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(width_in, width), nn.ReLU()]
        width_in = width
    return nn.Sequential(*(layers if last_relu else layers[:-1]))


Embedded = Tensor | Sequence[Tensor]
"""Embedded tables (n, tables, width); a sequence of them where rows have several widths, narrow rows first."""


def by_width(embedded: Embedded) -> Sequence[Tensor]:
    """Return the embedded tables of each width."""
    return (embedded,) if isinstance(embedded, Tensor) else embedded


class Projection(nn.Module):
    """Brings the tables of a model to its largest dimension, by a matrix per narrower table (Ginart et al. 2019)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        dims = model.tables.dims
        self.dim = max(dims)
        self.matrices = nn.ParameterDict()
        for group in model.table_groups:
            if (dim := dims[group.tables[0]]) < self.dim:
                bound = dim**-0.5
                weights = torch.empty(len(group.tables), dim, self.dim).uniform_(-bound, bound)
                self.matrices[str(dim)] = nn.Parameter(weights)

    def forward(self, embedded: Sequence[Tensor]) -> list[Tensor]:
        """Return tables (n, tables, largest dimension) of tables (n, tables, dimension)."""
        return [self._widened(tables) if tables.shape[2] < self.dim else tables for tables in embedded]

    def _widened(self, tables: Tensor) -> Tensor:
        return torch.einsum("ntd,tde->nte", tables, self.matrices[str(tables.shape[2])])


class Dlrm(nn.Module):
    """Bottom MLP, pairwise dot products, top MLP (Naumov et al. 2019)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.projection = Projection(model)
        dim, fields = self.projection.dim, model.tables.count + 1
        self.bottom = make_mlp(model.dense_features, (*model.bottom_mlp, dim))
        self.top = make_mlp(dim + fields * (fields - 1) // 2, (*model.top_mlp, 1), last_relu=False)
        rows, cols = torch.tril_indices(fields, fields, offset=-1)
        self.register_buffer("pairs", rows * fields + cols, persistent=False)

    def forward(self, dense: Tensor, embedded: Embedded) -> Tensor:
        """Logits (n,) of dense (n, features) and embedded tables."""
        bottom = self.bottom(dense)
        fields = torch.cat([bottom.unsqueeze(1), *self.projection(by_width(embedded))], dim=1)
        dots = torch.bmm(fields, fields.transpose(1, 2)).flatten(1)
        crossed = dots.index_select(1, self.get_buffer("pairs"))
        logits: Tensor = self.top(torch.cat([bottom, crossed], dim=1))
        return logits.squeeze(1)


class WideDeep(nn.Module):
    """A linear model over ids plus an MLP (Cheng et al. 2016); column 0 of a row is its linear weight."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.deep = make_mlp(joined_width(model), (*model.top_mlp, 1), last_relu=False)

    def forward(self, dense: Tensor, embedded: Embedded) -> Tensor:
        """Logits (n,)."""
        wide, fields = split_linear(embedded)
        deep: Tensor = self.deep(join(dense, fields))
        return wide + deep.squeeze(1)


class Dcn(nn.Module):
    """Cross layers x ← x0 ∘ (W·x + b) + x, then an MLP (Wang et al. 2021, DCN-v2, stacked)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = joined_width(model)
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(model.cross_layers))
        self.deep = make_mlp(width, (*model.top_mlp, 1), last_relu=False)

    def forward(self, dense: Tensor, embedded: Embedded) -> Tensor:
        """Logits (n,)."""
        start = crossed = join(dense, by_width(embedded))
        for layer in self.cross:
            crossed = start * layer(crossed) + crossed
        logits: Tensor = self.deep(crossed)
        return logits.squeeze(1)


class XDeepFm(nn.Module):
    """Compressed interaction network, MLP and linear part (Lian et al. 2018); column 0 is the linear weight."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.projection = Projection(model)
        tables = model.tables.count
        self.cin = nn.ModuleList()
        maps = tables
        for width in model.cin:
            self.cin.append(nn.Conv1d(maps * tables, width, 1))
            maps = width
        self.cin_out = nn.Linear(sum(model.cin), 1)
        self.deep = make_mlp(joined_width(model), (*model.top_mlp, 1), last_relu=False)

    def forward(self, dense: Tensor, embedded: Embedded) -> Tensor:
        """Logits (n,)."""
        linear, by_group = split_linear(embedded)
        fields = torch.cat(self.projection(by_group), dim=1)
        state, pooled = fields, []
        for layer in self.cin:
            outer = torch.einsum("bhd,bmd->bhmd", state, fields).flatten(1, 2)
            state = torch.relu(layer(outer))
            pooled.append(state.sum(2))
        interaction: Tensor = self.cin_out(torch.cat(pooled, dim=1))
        deep: Tensor = self.deep(join(dense, by_group))
        return linear + interaction.squeeze(1) + deep.squeeze(1)


def joined_width(model: Model) -> int:
    """Return the width of `join`."""
    return sum(model.tables.dims) + model.dense_features


def join(dense: Tensor, embedded: Sequence[Tensor]) -> Tensor:
    """Return the numeric columns followed by all embedded tables (n, width)."""
    return torch.cat([dense, *(tables.flatten(1) for tables in embedded)], dim=1)


def split_linear(embedded: Embedded) -> tuple[Tensor, list[Tensor]]:
    """Return the sum (n,) of the linear weights in column 0 of rows, and the tables without them."""
    groups = by_width(embedded)
    linear = torch.stack([tables[:, :, 0].sum(1) for tables in groups]).sum(0)
    return linear, [tables[:, :, 1:] for tables in groups]


FAMILIES: dict[str, type[nn.Module]] = {"dlrm": Dlrm, "wide_deep": WideDeep, "dcn": Dcn, "xdeepfm": XDeepFm}


def make_network(model: Model, seed: int = 0) -> nn.Module:
    """Return the network of a job's family, with weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FAMILIES[model.family](model)
