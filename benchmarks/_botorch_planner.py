"""BoTorch's logarithmic expected improvement as a planner: the state of the art of Bayesian optimization."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._baselines import Baseline

Floats = NDArray[np.float64]
FIRST_TRIALS = 4


class BotorchPlanner(Baseline):
    """A `SingleTaskGP` over the logarithms of the axes, scaled to the unit cube, and `LogExpectedImprovement`.

    The process describes the loss of the objective at the measured candidates. The first four trials are random. The
    choice is the measured candidate with the best posterior mean. Failed candidates are left out.
    """

    def next(self) -> int:
        untried = np.setdiff1d(np.arange(len(self.candidates)), self.measured)
        works = self._working()
        if len(self.measured) < FIRST_TRIALS or len(works) < 2:
            return int(self.rng.choice(untried))
        import torch
        from botorch.acquisition.analytic import LogExpectedImprovement

        process, losses = self._process(works)
        improvement = LogExpectedImprovement(process, best_f=(-losses).max())
        points = torch.as_tensor(self.candidates.scaled_coordinates()[untried])
        with torch.no_grad():
            return int(untried[int(improvement(points[:, None, :]).argmax())])

    def predict(self) -> Floats:
        """Return the measured samples/s, with those of the measured candidate of the best mean highest in rank."""
        rates = super().predict()
        works = self._working()
        if len(works) < 2:
            return rates
        import torch

        process, _ = self._process(works)
        measured = np.unique([self.measured[i] for i in works])
        with torch.no_grad():
            mean = process.posterior(torch.as_tensor(self.candidates.scaled_coordinates()[measured])).mean
        best = int(measured[int(mean.argmax())])
        return np.where(np.arange(len(rates)) == best, rates, 0.0)

    def _working(self) -> list[int]:
        """Return the numbers of the trials that did not fail."""
        return [i for i, rate in enumerate(self.rates) if rate > 0]

    def _process(self, works: list[int]) -> tuple[Any, Any]:
        """Return the process, fitted to the negative losses of these trials, and the losses (n,)."""
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Standardize
        from gpytorch.mlls import ExactMarginalLogLikelihood

        torch.manual_seed(self.seed)
        places = torch.as_tensor(self.candidates.scaled_coordinates()[[self.measured[i] for i in works]])
        losses = torch.as_tensor(self._losses(works))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            process = SingleTaskGP(places, -losses[:, None], outcome_transform=Standardize(m=1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(process.likelihood, process))
        return process, losses

    def _losses(self, works: list[int]) -> Floats:
        """Return the loss (n,) of each of these trials."""
        rates = np.full(len(self.candidates), -50.0)
        best = max(self.rates)
        goal = self.goal._replace(needed=0.8 * best) if self.goal.objective == "deadline" else self.goal
        losses = []
        for i in works:
            rates[self.measured[i]] = np.log(self.rates[i])
            losses.append(float(goal.losses(rates)[self.measured[i]]))
        return np.array(losses)
