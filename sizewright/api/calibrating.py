"""Calibrate the planners of other tools on this host."""

from __future__ import annotations

import sys
from pathlib import Path

from sizewright.datasets.files.atomic_write import atomic_file
from sizewright.errors import InputError
from sizewright.profiler.torchrec.calibrate import calibrate, planner_module
from sizewright.spec import TorchrecCalibration
from sizewright.spec._paths import absolute

_MIN_PLANS = 12


def calibrate_torchrec(
    *, python: str | Path | None = None, ranks: int = 2, plans: int = 48, write: str | Path | None = None
) -> TorchrecCalibration:
    """Return constants of TorchRec's planner, fitted to steps that are measured on this host.

    `plans` sharding plans of generated tables are measured over gloo on CPU, with `ranks` ranks and with one. Half of
    them enter the fit; the others show what the planner estimates of them before and after. `python` is a Python that
    has TorchRec, by default the running one. With `write` a Python module with the calibrated planner is written.

    Raises InputError if that Python has no TorchRec, and EngineError if a rank fails or does not end.
    """
    if not 1 <= ranks <= 64:
        raise InputError(f"ranks must lie between 1 and 64, got {ranks}.", "Pass the number of ranks of this host.")
    if plans < _MIN_PLANS:
        raise InputError(f"plans must be at least {_MIN_PLANS}, got {plans}.", "Measure more sharding plans.")
    path = None if write is None else Path(absolute(write))
    if path is not None and not path.parent.is_dir():  # noticed before minutes of measurement
        raise InputError(f"Cannot write {write}: the folder {path.parent} does not exist.", "Name another file.")
    calibration = calibrate(str(python or sys.executable), ranks=ranks, plans=plans)
    if path is not None:
        try:
            with atomic_file(path) as file:
                file.write_text(planner_module(calibration), encoding="utf-8")
        except OSError as error:
            raise InputError(f"Cannot write {write}: {error.strerror}.", "Name another file.") from None
    return calibration
