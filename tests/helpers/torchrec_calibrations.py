"""A calibration of TorchRec's planner as a measurement would return it, without one."""

from __future__ import annotations

import numpy as np

from sizewright.profiler.torchrec.fit import constants_of, prior_costs
from sizewright.spec import CalibrationPlan, TorchrecCalibration

PROBES = {
    "lookup": 4e6, "memory": 1e7, "all_to_all": 1e6, "reduce_scatter": 5e5, "all_reduce": 5e5, "latency_ms": 0.2,
}  # fmt: skip


def calibration() -> TorchrecCalibration:
    costs = np.maximum(prior_costs(PROBES).expected, 1e-9)
    plans = tuple(
        CalibrationPlan(
            plan=number, kind="table_wise", table_set=number // 3, tables=4, batch_size=512, ranks=2,
            held_out=number >= 6, default_ms=0.5, calibrated_ms=11.0 + number, measured_ms=10.0 + number,
            default_storage_bytes=10 << 20, calibrated_storage_bytes=12 << 20, measured_peak_bytes=13 << 20,
        )
        for number in range(12)
    )  # fmt: skip
    constants = {**constants_of(costs, 3.0, PROBES["memory"]), "fused_storage": 1.1, "data_parallel_storage": 2.5}
    return TorchrecCalibration(
        versions={"torch": "2.13.0", "torchrec": "1.8.0"}, ranks=2, constants=constants, default_error=0.98,
        rescaled_error=0.5, calibrated_error=0.11, default_storage_error=0.2, calibrated_storage_error=0.1,
        default_order=0.5, calibrated_order=0.9, plans=plans,
    )  # fmt: skip
