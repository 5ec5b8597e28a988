"""The lower model of a convex function: the greatest of the cutting planes found so far (Kelley 1960), as a linear
programme to which HiGHS adds a row at a time."""

from __future__ import annotations

import highspy
import numpy as np

from sizewright.cluster.problem import Floats

_LARGE = highspy.kHighsInf


class Cuts:
    """Cutting planes over n variables, which are scaled by `scale` (n,)."""

    def __init__(self, scale: Floats) -> None:
        self._scale, self._n = scale, len(scale)
        self._model = highspy.Highs()  # type: ignore[no-untyped-call]
        self._model.setOptionValue("output_flag", False)
        self._model.setOptionValue("threads", 1)
        self._model.setOptionValue("presolve", "off")
        for _ in range(self._n):
            self._model.addVar(0.0, _LARGE)
        self._model.addVar(-_LARGE, _LARGE)
        self._model.changeColCost(self._n, 1.0)
        self._all = np.arange(self._n + 1, dtype=np.int32)

    def add(self, at: Floats, value: float, slope: Floats, unit: float) -> None:
        """The function is at least value + slope · (x − at); `unit` is the size of its values."""
        row = np.append(slope * self._scale, -unit) / unit
        self._model.addRow(-_LARGE, float(slope @ at - value) / unit, self._n + 1, self._all, row)

    def least(self, low: Floats, high: Floats, unit: float) -> tuple[Floats, float] | None:
        """Where in a box the model is least, and how low; None where HiGHS does not tell."""
        self._model.changeColsBounds(self._n, self._all[:-1], low / self._scale, high / self._scale)
        self._model.run()
        if self._model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = np.array(self._model.getSolution().col_value)
        return np.clip(found[:-1] * self._scale, low, high), float(found[-1]) * unit
