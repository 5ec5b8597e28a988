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


class Dlrm(nn.Module):
    """Bottom MLP, pairwise dot products, top MLP (Naumov et al. 2019)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        tables, dim = model.tables.count, model.tables.dim
        fields = tables + 1
        self.bottom = make_mlp(model.dense_features, (*model.bottom_mlp, dim))
        self.top = make_mlp(dim + fields * (fields - 1) // 2, (*model.top_mlp, 1), last_relu=False)
        rows, cols = torch.tril_indices(fields, fields, offset=-1)
        self.register_buffer("pairs", rows * fields + cols, persistent=False)

    def forward(self, dense: Tensor, embedded: Tensor) -> Tensor:
        """Logits (n,) of dense (n, features) and embedded ids (n, tables, dim)."""
        bottom = self.bottom(dense)
        fields = torch.cat([bottom.unsqueeze(1), embedded], dim=1)
        dots = torch.bmm(fields, fields.transpose(1, 2)).flatten(1)
        crossed = dots.index_select(1, self.get_buffer("pairs"))
        logits: Tensor = self.top(torch.cat([bottom, crossed], dim=1))
        return logits.squeeze(1)


class WideDeep(nn.Module):
    """A linear model over ids plus an MLP (Cheng et al. 2016); column 0 of a row is its linear weight."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.tables.count * model.tables.dim + model.dense_features
        self.deep = make_mlp(width, (*model.top_mlp, 1), last_relu=False)

    def forward(self, dense: Tensor, embedded: Tensor) -> Tensor:
        """Logits (n,)."""
        wide = embedded[:, :, 0].sum(1)
        deep: Tensor = self.deep(torch.cat([dense, embedded[:, :, 1:].flatten(1)], dim=1))
        return wide + deep.squeeze(1)


class Dcn(nn.Module):
    """Cross layers x ← x0 ∘ (W·x + b) + x, then an MLP (Wang et al. 2021, DCN-v2, stacked)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.tables.count * model.tables.dim + model.dense_features
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(model.cross_layers))
        self.deep = make_mlp(width, (*model.top_mlp, 1), last_relu=False)

    def forward(self, dense: Tensor, embedded: Tensor) -> Tensor:
        """Logits (n,)."""
        start = crossed = torch.cat([dense, embedded.flatten(1)], dim=1)
        for layer in self.cross:
            crossed = start * layer(crossed) + crossed
        logits: Tensor = self.deep(crossed)
        return logits.squeeze(1)


class XDeepFm(nn.Module):
    """Compressed interaction network, MLP and linear part (Lian et al. 2018); column 0 is the linear weight."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        tables, dim = model.tables.count, model.tables.dim
        self.cin = nn.ModuleList()
        maps = tables
        for width in model.cin:
            self.cin.append(nn.Conv1d(maps * tables, width, 1))
            maps = width
        self.cin_out = nn.Linear(sum(model.cin), 1)
        self.deep = make_mlp(tables * dim + model.dense_features, (*model.top_mlp, 1), last_relu=False)

    def forward(self, dense: Tensor, embedded: Tensor) -> Tensor:
        """Logits (n,)."""
        linear, fields = embedded[:, :, 0].sum(1), embedded[:, :, 1:]
        state, pooled = fields, []
        for layer in self.cin:
            outer = torch.einsum("bhd,bmd->bhmd", state, fields).flatten(1, 2)
            state = torch.relu(layer(outer))
            pooled.append(state.sum(2))
        interaction: Tensor = self.cin_out(torch.cat(pooled, dim=1))
        deep: Tensor = self.deep(torch.cat([dense, fields.flatten(1)], dim=1))
        return linear + interaction.squeeze(1) + deep.squeeze(1)


FAMILIES: dict[str, type[nn.Module]] = {"dlrm": Dlrm, "wide_deep": WideDeep, "dcn": Dcn, "xdeepfm": XDeepFm}


def make_network(model: Model, seed: int = 0) -> nn.Module:
    """Return the network of a job's family, with weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FAMILIES[model.family](model)
