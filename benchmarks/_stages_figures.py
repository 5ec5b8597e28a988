"""Figures of the three-stage proof, computed from its runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from benchmarks._stages_cases import Runs
from benchmarks._stages_watch import WITHIN_STEPS

TARGETS = {
    "healthy_lost": "≤ 0.02",
    "healthy_jct_upper": "≤ 1.05",
    "over_asked_cost": "≤ 0.6",
    "over_asked_jct": "≤ 1.1",
    "under_asked": "≤ 0.6",
    "slow_worker": "≤ 0.35",
    "slow_worker_vs_queue": "≤ 0.92",
    "slow_ps": "≤ 0.45",
    "hot_ps": "≤ 0.70",
    "xdeepfm_slow_ps": "≤ 0.60",
    "oom_completed": "1",
    "killed": "≤ 0.7",
    "adjustments": "≤ 3",
    "false_alarms_per_10k": "≤ 1",
    "slowdown_found": "≥ 0.95",
    "decision_p99_s": "≤ 0.05",
    "refit_s": "≤ 1",
    "mix_jct_gain": "≥ 0.31",
    "mix_alone_jct_gain": "each job sized alone, for comparison",
    "mix_completion_points": "≥ 6",
    "mix_cpu_points": "≥ 15",
    "mix_memory_points": "≥ 20",
    "simulation_gap": "≤ 0.08",
    "healthy_30s_jct": "≤ 1.02",
    "healthy_90s_jct": "≤ 1.02",
    "slow_ps_30s": "< 1, or left alone",
    "slow_ps_90s": "< 1, or left alone",
    "hot_ps_30s": "< 1, or left alone",
    "hot_ps_90s": "< 1, or left alone",
}


def figures_of(runs: Runs) -> tuple[dict[str, float], dict[str, Any]]:
    """Return ratios of auto to static, as geometric means over pairs, and details. Cases without runs are NaN."""
    healthy = _ratios(runs, "healthy")
    figures = {
        "healthy_lost": _mean([run["lost"] for run in runs if run["case"] == "healthy" and run["how"] == "auto"]),
        "healthy_jct_upper": _upper(healthy),
        "over_asked_cost": _gmean(_ratios(runs, "over_asked", "cost")),
        "over_asked_jct": _gmean(_ratios(runs, "over_asked")),
        "under_asked": _gmean(_ratios(runs, "under_asked")),
        "slow_worker": _gmean(_ratios(runs, "slow_worker")),
        "slow_worker_vs_queue": _gmean(_ratios(runs, "slow_worker", than="queue")),
        "slow_ps": _gmean(_ratios(runs, "slow_ps")),
        "hot_ps": _gmean(_ratios(runs, "hot_ps")),
        "xdeepfm_slow_ps": _gmean(_ratios(runs, "xdeepfm_slow_ps")),
        "oom_completed": _completed(runs),
        "killed": _gmean(_ratios(runs, "killed")),
        "adjustments": _mean([len(run["changes"]) for run in runs if _is(run, "under_asked", "auto")]),
    }
    alarms = np.array([run["alarms"] for run in runs if run.get("alarms")]).reshape(-1, 2).sum(axis=0)
    figures["false_alarms_per_10k"] = 1e4 * alarms[0] / alarms[1] if alarms[1] else math.nan
    steps_to_detection = [steps for run in runs for steps in run.get("found_after", ())]
    figures["slowdown_found"] = _mean(
        [float(steps is not None and steps <= WITHIN_STEPS) for steps in steps_to_detection]
    )
    figures["simulation_gap"] = _mean([run["mean_gap"] for run in runs if run["case"] == "validation"])
    figures["decision_p99_s"] = _mean([run["p99_s"] for run in runs if run["case"] == "decisions"])
    figures["refit_s"] = _mean([run["refit_s"] for run in runs if run["case"] == "decisions"])
    mixed: dict[str, Any] = next((run for run in runs if run["case"] == "mix"), {"figures": {}, "details": None})
    figures |= {name: mixed["figures"].get(name, math.nan) for name in TARGETS if name.startswith("mix_")}
    for case in ("healthy", "slow_ps", "hot_ps"):
        for seconds in ("30s", "90s"):
            name = f"{case}_{seconds}"
            if case == "healthy":
                figures[f"{name}_jct"] = _gmean(_ratios(runs, name))
            else:
                figures[name] = _gmean(_ratios(runs, name, static=case))
    details: dict[str, Any] = {
        "calibration": [run for run in runs if run["case"].startswith("calibration")],
        "seconds": {case: _seconds(runs, case) for case in dict.fromkeys(run["case"] for run in runs)},
        "healthy_jct": _gmean(healthy),
        "healthy_pairs": len(healthy),
        "healthy_decisions": int(alarms[1]),
        "steps_until_found": steps_to_detection,
        "mix": mixed["details"],
        "validation": next((run for run in runs if run["case"] == "validation"), None),
        "minutes_with_published_ratios": _with_published_ratios(runs),
    }
    return figures, details


def _is(run: dict[str, Any], case: str, how: str) -> bool:
    return bool(run["case"] == case and run["how"] == how)


def _ratios(runs: Runs, case: str, of: str = "jct_s", than: str = "static", static: str = "") -> list[float]:
    """Return the ratio of each pair. `static` names another case whose static runs are used."""
    by_pair: dict[int, dict[str, float]] = {}
    for run in runs:
        if run["case"] == (static or case if run["how"] == "static" else case):
            by_pair.setdefault(run["pair"], {})[run["how"]] = run[of]
    return [values["auto"] / values[than] for values in by_pair.values() if "auto" in values and than in values]


def _gmean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else math.nan


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _upper(ratios: list[float]) -> float:
    """Return the upper end of the two-sided 95 % interval of the paired ratio, computed in logarithms."""
    if len(ratios) < 2:
        return _gmean(ratios)
    logs = np.log(ratios)
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    return float(np.exp(logs.mean() + half))


def _completed(runs: Runs) -> float:
    """Return the share of auto runs that finished without a kill, among the pairs whose static run was killed."""
    static = {run["pair"]: run["status"] for run in runs if _is(run, "memory", "static")}
    auto = [run for run in runs if _is(run, "memory", "auto") and static.get(run["pair"]) == "failed"]
    return _mean([float(run["status"] == "finished" and run["kills"] == 0) for run in auto])


def _seconds(runs: Runs, case: str) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for run in runs:
        if run["case"] == case and "jct_s" in run:
            seconds.setdefault(run["how"], []).append(round(run["jct_s"], 1))
    return seconds


# DLRover-RM's published minutes, auto and static, from its figures on stragglers.
_PAPER = {
    "healthy": (28, 27), "slow_worker": (31, 46), "slow_ps": (33, 72), "hot_ps": (21, 33),
    "xdeepfm_healthy": (109, 104), "xdeepfm_slow_worker": (114, 240), "xdeepfm_slow_ps": (122, 203),
}  # fmt: skip


def _with_published_ratios(runs: Runs) -> dict[str, dict[str, float]]:
    ours = {case: _gmean(_ratios(runs, case)) for case in _PAPER}
    return {
        case: {"paper": round(auto / static, 3), "here": round(ours[case], 3)}
        for case, (auto, static) in _PAPER.items()
        if math.isfinite(ours[case])
    }
