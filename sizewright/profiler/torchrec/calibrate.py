"""Calibrate TorchRec's planner: draw plans, measure them, fit on one half, and compare on the other."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sizewright.profiler.torchrec.cases import Case, draw_cases
from sizewright.profiler.torchrec.fit import COSTS, Floats, constants_of, fit_costs, fit_storage, prior_costs
from sizewright.profiler.torchrec.ranks import PLANNER_FILE, check_torchrec, run_task
from sizewright.spec import CalibrationPlan, TorchrecCalibration

MAX_ROUNDS = 6
STEP_S = 0.3
MAX_STEPS = 30
_START_S, _CASE_S = 120.0, 20.0
_UNIT_POINT = 1e-7
"""Costs at which the planner is evaluated, in ms/byte: its estimate is linear in them, so any would do."""


class _Measured(NamedTuple):
    """What was measured of one case: forward and backward in ms, and the peak of each rank in bytes."""

    forward_ms: float
    backward_ms: float
    peaks: tuple[int, ...]

    @property
    def step_ms(self) -> float:
        return self.forward_ms + self.backward_ms


def calibrate(python: str, *, ranks: int, plans: int, seed: int = 0) -> TorchrecCalibration:
    """Return constants of TorchRec's planner for this host, with its estimates before and after, beside the steps.

    The `seed` chooses the tables. Raises InputError if the Python has no TorchRec, and EngineError if a rank fails or
    does not end.
    """
    versions = check_torchrec(python)
    cases = draw_cases(plans, ranks, seed=seed)
    probes, measured = _measure(python, cases)
    training = [not case.held_out for case in cases]
    ratios = [each.backward_ms / each.forward_ms for each, case in zip(measured, cases, strict=True) if case.ranks == 1]
    multiplier = float(np.median(ratios)) if ratios else 2.0
    by_cost, counted = _times_by_cost(python, cases, multiplier)
    steps = np.array([each.step_ms for each in measured])
    costs = fit_costs(_where(by_cost, training), steps[training], prior_costs(probes))
    storage = _fit_storage(_where(counted, training), _where(measured, training))
    constants = {
        **constants_of(costs, multiplier, probes["memory"]),
        "fused_storage": float(storage[0]),
        "data_parallel_storage": float(storage[1]),
    }
    rounded = {name: float(f"{value:.6g}") for name, value in constants.items()}
    default, calibrated = _estimates(python, cases, [None, rounded])
    return _compare(versions, ranks, rounded, cases, measured, default, calibrated)


def planner_module(calibration: TorchrecCalibration) -> str:
    """Return the source of a Python module with the calibrated planner."""
    lines = "".join(f'    "{name}": {value!r},\n' for name, value in calibration.constants.items())
    written = f"CONSTANTS: Constants = {{\n{lines}}}\n"
    source = PLANNER_FILE.read_text(encoding="utf-8")
    pattern = r"(?<=# CONSTANTS BEGIN\n).*?(?=# CONSTANTS END)"
    return re.sub(pattern, lambda _: written, source, flags=re.DOTALL)


def _measure(python: str, cases: Sequence[Case]) -> tuple[dict[str, float], list[_Measured]]:
    """Return the bandwidths of this host, with those of collectives, and what was measured of each case."""
    probes: dict[str, float] = {}
    found: dict[int, _Measured] = {}
    for ranks in sorted({case.ranks for case in cases}):
        group = [case for case in cases if case.ranks == ranks]
        tasks = [case.to_task() for case in group]
        noted = f"steps with {ranks} rank{'s' * (ranks > 1)}"
        timed = run_task(
            python, "time", tasks, ranks=ranks, timeout_s=_START_S + _CASE_S * len(tasks),
            count=MAX_ROUNDS * len(tasks), label=noted, max_rounds=MAX_ROUNDS, step_s=STEP_S, max_steps=MAX_STEPS,
        )  # fmt: skip
        memory = run_task(
            python, "memory", tasks, ranks=ranks, timeout_s=_START_S + _CASE_S * len(tasks), count=len(tasks),
            label=noted.replace("steps", "memory"),
        )  # fmt: skip
        probes |= timed[0]["probes"]
        for i, case in enumerate(group):
            peaks = tuple(int(each["memory"][i]["peak"]) for each in memory)
            forward_ms, backward_ms = timed[0]["times_ms"][i]
            found[case.number] = _Measured(forward_ms, backward_ms, peaks)
    return probes, [found[case.number] for case in cases]


def _times_by_cost(python: str, cases: Sequence[Case], multiplier: float) -> tuple[list[Floats], list[Floats]]:
    """Return the time of each rank for one unit of each cost (ranks, k), and the counted bytes of each rank (ranks, 2).

    The planner itself says them: its estimate is linear in the costs, so the difference that one cost makes is enough.
    """
    start = np.full(len(COSTS), _UNIT_POINT)
    points = [start, *(start + _UNIT_POINT * unit for unit in np.eye(len(COSTS)))]
    plain = {"fused_storage": 1.0, "data_parallel_storage": 1.0}
    constants = [{**constants_of(point, multiplier, 1.0), **plain} for point in points]
    by_cost: list[Floats] = []
    counted: list[Floats] = []
    for estimates in _run_estimates(python, cases, constants):
        first, *others = (np.array(each["times_ms"]) for each in estimates)
        by_cost.append(np.stack([(other - first) / _UNIT_POINT for other in others], axis=1))
        storage = estimates[0]["storage"]
        counted.append(np.array([storage["fused"], storage["data_parallel"]], dtype=float).T)
    return by_cost, counted


def _fit_storage(counted: Sequence[Floats], measured: Sequence[_Measured]) -> Floats:
    peaks = np.concatenate([np.array(each.peaks, dtype=float) for each in measured])
    return fit_storage(np.concatenate(counted), np.maximum(peaks, 1.0))


def _estimates(
    python: str, cases: Sequence[Case], constants: Sequence[Mapping[str, float] | None]
) -> list[list[dict[str, Any]]]:
    """Return for each set of constants the planner's estimate of each case."""
    by_case = _run_estimates(python, cases, constants)
    return [list(each) for each in zip(*by_case, strict=True)]


def _run_estimates(
    python: str, cases: Sequence[Case], constants: Sequence[Mapping[str, float] | None]
) -> list[list[dict[str, Any]]]:
    (answer,) = run_task(
        python, "estimate", [case.to_task() for case in cases], ranks=1, count=len(cases), label="estimates",
        timeout_s=_START_S + _CASE_S * len(cases), constants=list(constants),
    )  # fmt: skip
    estimates: list[list[dict[str, Any]]] = answer["estimates"]
    return estimates


def _compare(
    versions: dict[str, str],
    ranks: int,
    constants: dict[str, float],
    cases: Sequence[Case],
    measured: Sequence[_Measured],
    default: Sequence[Mapping[str, Any]],
    calibrated: Sequence[Mapping[str, Any]],
) -> TorchrecCalibration:
    plans = tuple(
        CalibrationPlan(
            plan=case.number,
            kind=case.kind,
            table_set=case.table_set,
            tables=len(case.tables),
            batch_size=case.batch,
            ranks=case.ranks,
            held_out=case.held_out,
            default_ms=before["step_ms"],
            calibrated_ms=after["step_ms"],
            measured_ms=found.step_ms,
            default_storage_bytes=_fullest(before),
            calibrated_storage_bytes=_fullest(after),
            measured_peak_bytes=max(found.peaks),
        )
        for case, found, before, after in zip(cases, measured, default, calibrated, strict=True)
    )
    held_out = [plan for plan in plans if plan.held_out]
    factor = float(np.median([plan.measured_ms / plan.default_ms for plan in plans if not plan.held_out]))
    return TorchrecCalibration(
        versions=versions,
        ranks=ranks,
        constants=constants,
        default_error=_error([(plan.default_ms, plan.measured_ms) for plan in held_out]),
        rescaled_error=_error([(factor * plan.default_ms, plan.measured_ms) for plan in held_out]),
        calibrated_error=_error([(plan.calibrated_ms, plan.measured_ms) for plan in held_out]),
        default_storage_error=_error([(p.default_storage_bytes, p.measured_peak_bytes) for p in held_out]),
        calibrated_storage_error=_error([(p.calibrated_storage_bytes, p.measured_peak_bytes) for p in held_out]),
        default_order=_order([(plan.table_set, plan.default_ms, plan.measured_ms) for plan in held_out]),
        calibrated_order=_order([(plan.table_set, plan.calibrated_ms, plan.measured_ms) for plan in held_out]),
        plans=plans,
    )


def _fullest(estimate: Mapping[str, Any]) -> int:
    return max(int(a + b) for a, b in zip(*estimate["storage"].values(), strict=True))


def _error(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of |estimate / measured − 1|."""
    return float(np.median([abs(estimate / measured - 1) for estimate, measured in pairs]))


def _order(plans: Sequence[tuple[int, float, float]]) -> float:
    """Return the share of pairs of plans of the same tables whose estimates are in the order of the measurements."""
    pairs = [(a, b) for a, b in itertools.combinations(plans, 2) if a[0] == b[0]]
    return float(np.mean([(a[1] < b[1]) == (a[2] < b[2]) for a, b in pairs])) if pairs else 1.0


def _where(items: Sequence[Any], chosen: Sequence[bool]) -> list[Any]:
    return [item for item, is_chosen in zip(items, chosen, strict=True) if is_chosen]
