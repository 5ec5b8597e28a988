"""The prior over the parameters of the default model, learned from measured tables.

Each table has its own parameters, drawn from one normal distribution per parameter. Its mean and standard deviation are
found by expectation maximisation: the posterior of every table under the present prior, then the mean and variance of
all posteriors (empirical Bayes for a normal hierarchy; Gelman et al., Bayesian Data Analysis, 2013, chapter 5). The
priors of `curve.PARAMETERS`, which were set by hand, count as four tables more, so that a parameter that no table
determines keeps its prior. Tables of one family count at most as eight, so that no family outvotes the others.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.datasets.files.atomic_write import write_text_atomically
from sizewright.errors import InputError, NotEnoughDataError, StoreError
from sizewright.models.default import curve
from sizewright.models.table import Table
from sizewright.spec._json import loads
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import MAX_JSON_MIB, read_file
from sizewright.task_progress import steps

Floats = NDArray[np.float64]
Normals = Mapping[str, tuple[float, float]]

_VERSION = 1
_ROUNDS = 6
_TABLES_OF_HAND_SET_PRIOR, _MAX_TABLES_OF_FAMILY = 4.0, 8.0
MIN_TABLES = 3
_REMEDY = "Learn another with `sizewright models learn`."


class NamedTable(NamedTuple):
    """A trial table of one job."""

    name: str
    family: str
    """Where it comes from; tables of one family share hosts and programs."""
    trials: Table


class ParameterPrior(NamedTuple):
    """Means and standard deviations of the parameters, on the scale of `curve.PARAMETERS`, and their origin."""

    normals: Normals
    tables: tuple[str, ...] = ()
    """The names of the tables that they were learned from."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a prior that `save` wrote. Raises StoreError where it is missing or damaged.

        A prior may lack parameters; these keep the priors that were set by hand.
        """
        path = Path(absolute(path))
        try:
            record = loads(read_file(path, MAX_JSON_MIB).decode())
            if record.get("version") != _VERSION:
                raise ValueError(f"its version is {record.get('version')!r}, not {_VERSION}")
            if record.pop("sha256", None) != _digest(record):
                raise ValueError("its checksum does not match")
            normals = {str(name): (float(mean), float(sd)) for name, (mean, sd) in record["parameters"].items()}
            prior = cls(normals, tuple(map(str, record["tables"])))
            curve.prior_of(prior.normals)
        except FileNotFoundError:
            raise StoreError(f"There is no prior of parameters at {path}.", _REMEDY) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError) as error:
            raise StoreError(f"Cannot read the prior of parameters {path}: {error}.", _REMEDY) from None
        return prior

    def save(self, path: str | Path) -> None:
        """Write the prior as JSON. Raises StoreError where the file cannot be written."""
        record = {
            "version": _VERSION,
            "parameters": {name: [round(number, 4) for number in pair] for name, pair in self.normals.items()},
            "tables": list(self.tables),
        }
        try:
            text = json.dumps(record | {"sha256": _digest(record)}, indent=1)
            write_text_atomically(Path(absolute(path)), text + "\n")
        except OSError as error:
            raise StoreError(
                f"Cannot write the prior of parameters to {path}: {error}.", "Check the path and its permissions."
            ) from None


def learn_parameters(
    tables: Sequence[NamedTable],
    posterior: Callable[[Table, Normals], Floats],
    map_: Callable[..., Any] = map,
) -> ParameterPrior:
    """Learn a prior from tables.

    `posterior` returns draws (d, k) of the parameters of one table under a prior: `predictor.posterior_draws`. `map_`
    may run it for several tables at a time. Raises NotEnoughDataError for fewer than three tables.
    """
    if len(tables) < MIN_TABLES:
        raise NotEnoughDataError(
            f"{len(tables)} tables are too few to learn a prior of parameters from.", MIN_TABLES - len(tables), "table"
        )
    families = Counter(table.family for table in tables)
    weights = np.array([min(1.0, _MAX_TABLES_OF_FAMILY / families[table.family]) for table in tables])
    hand_means, hand_sds = curve.prior_of()
    normals: Normals = {}
    for _ in steps("rounds", range(_ROUNDS)):
        draws = list(map_(posterior, [table.trials for table in tables], [normals] * len(tables)))
        means = np.array([each.mean(axis=0) for each in draws])
        variances = np.array([each.var(axis=0) for each in draws])
        total = weights.sum() + _TABLES_OF_HAND_SET_PRIOR
        mean = (weights @ means + _TABLES_OF_HAND_SET_PRIOR * hand_means) / total
        spread = weights @ (variances + (means - mean) ** 2)
        hand_spread = _TABLES_OF_HAND_SET_PRIOR * (hand_sds**2 + (hand_means - mean) ** 2)
        sd = np.sqrt((spread + hand_spread) / total)
        normals = {name: (float(mean[i]), float(sd[i])) for i, name in enumerate(curve.NAMES)}
    return ParameterPrior(normals, tuple(table.name for table in tables))


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
