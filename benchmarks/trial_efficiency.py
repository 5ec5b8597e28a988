"""The regret of a planner's pick after 8 trials, compared with simpler planners, and when the planner stops.

The benchmark replays measured tables: `benchmarks/tables`, those of others if they are available, or the named CSV
files. Each answer is one of the measurements of the allocation. Picks are scored on the smoothed table; the details
have the regret on the raw table.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._baselines import Asker, MakePlanner, baseline_planners, default_planner
from benchmarks._measured import HELD_OUT, SEEDS, all_tables, named_tables, on_all_cores
from benchmarks._optuna_planner import OptunaPlanner
from benchmarks._regret import SCORINGS
from benchmarks._replays import paired, score_planner
from benchmarks._report import finish
from sizewright.profiler import TrialPlanner
from sizewright.profiler.planner.measured_table import MeasuredTable, without_noise

TRIALS = 8
MANY = 16
KEYS = ["table", "seed"]
NOISELESS = ("sizewright", "gp-ei", "lhs")
TARGETS = {
    **{f"{s}_regret": "≤ 0.03 (0.02 is wanted)" for s in SCORINGS},
    **{f"{s}_regret_p90": "≤ 0.08 (0.05 is wanted)" for s in SCORINGS},
    "reach80_short": "≤ 0.15 (0.10 is wanted)",
    "reach80_excess": "≤ 0.09 (0.08 is wanted)",
    "stopped_within_10": "≥ 0.80",
    "regret_at_stop": "≤ 0.05",
    "ask_s": "≤ 0.3",
    **{f"{s}_gain_lower": "> 0: paired 95 % interval over the best baseline" for s in SCORINGS},
}


def until_it_stops(candidates: pd.DataFrame, objective: str, trials: int, seed: int) -> Asker:
    return TrialPlanner(candidates, objective, seed=seed, max_trials=MANY)


def planners() -> dict[str, MakePlanner]:
    return {
        "sizewright": default_planner,
        "until-it-stops": until_it_stops,
        **baseline_planners(),
        "optuna-gp": OptunaPlanner,
    }


def replay(name: str, table: MeasuredTable, seed: int) -> list[dict[str, Any]]:
    rows = score_planner(planners()[name], table, [seed], TRIALS)
    return [row | {"planner": name} for row in rows]


def replay_without_noise(name: str, table: MeasuredTable, seed: int) -> list[dict[str, Any]]:
    """Replay without noise in the answers, which leaves the loss from the choice of trials and from the model."""
    rows = score_planner(planners()[name], without_noise(table), [seed], TRIALS)
    return [{"planner": name, "scoring": row["scoring"], "regret": row["regret_raw"]} for row in rows]


def slowest_ask_s() -> float:
    """Return the seconds of an `ask` over 2,000 candidates, the median of five."""
    axes = itertools.product(range(1, 21), range(1, 11), (1.0, 2.0, 4.0, 8.0, 16.0), (1.0, 4.0))
    frame = pd.DataFrame(axes, columns=["workers", "ps", "worker_cpu", "ps_cpu"])
    assert len(frame) == 2000
    planner, seconds = TrialPlanner(frame), []
    for _ in range(9):
        began = time.perf_counter()
        allocation = planner.ask()
        seconds.append(time.perf_counter() - began)
        if allocation is None:
            break
        w, p = allocation["workers"], allocation["ps"]
        planner.tell(allocation, w / (0.1 / allocation["worker_cpu"] + 0.01 * w / p / allocation["ps_cpu"]))
    return float(np.median(sorted(seconds)[-5:]))


def summary(rows: pd.DataFrame) -> dict[str, float]:
    """Return the figures of all replays, or of those of one table."""
    ours, stopped = rows[rows.planner == "sizewright"], rows[rows.planner == "until-it-stops"]
    figures: dict[str, float] = {}
    for scoring in SCORINGS:
        regrets = ours[ours.scoring == scoring].regret
        figures[f"{scoring}_regret"] = float(regrets.mean())
        figures[f"{scoring}_regret_p90"] = float(regrets.quantile(0.9))
        figures[f"best_baseline_{scoring}_regret"] = float(_of_others(rows, scoring).mean().min())
    reach80 = ours[ours.scoring == "reach80"]
    figures["reach80_short"] = float(reach80.short.astype(float).mean())
    figures["reach80_excess"] = float(reach80.excess.astype(float).mean())
    figures["stopped_within_10"] = float((stopped.trials <= 10).mean())
    figures["trials_at_stop"] = float(stopped.trials.mean())
    figures["regret_at_stop"] = float(stopped.regret.mean())
    if stopped.seconds.notna().any():
        figures["seconds_at_stop"] = float(stopped.seconds.mean())
    return figures


def gains(rows: pd.DataFrame) -> dict[str, float]:
    """Return the additional regret of the best baseline over the same replays, with the lower end of its interval."""
    figures: dict[str, float] = {}
    for scoring in SCORINGS:
        others = _of_others(rows, scoring)
        ours = rows[(rows.scoring == scoring) & (rows.planner == "sizewright")].set_index(KEYS).regret
        best = others[others.mean().idxmin()]
        tables = [table for table, _ in best.index]
        mean, lower, _ = paired(best.to_numpy(), ours.loc[best.index].to_numpy(), tables)
        figures |= {f"{scoring}_gain": mean, f"{scoring}_gain_lower": lower}
    return figures


def _of_others(rows: pd.DataFrame, scoring: str) -> pd.DataFrame:
    """Return the regret of each baseline (columns) in the replays (rows)."""
    others = rows[(rows.scoring == scoring) & ~rows.planner.isin(["sizewright", "until-it-stops"])]
    return others.set_index([*KEYS, "planner"]).regret.unstack()


def main() -> None:
    tables = all_tables()
    work = [(name, table, seed) for name in planners() for table in tables for seed in SEEDS]
    rows = pd.DataFrame(itertools.chain(*on_all_cores(replay, *zip(*work, strict=True))))
    shown = rows.pivot_table(index="planner", columns="scoring", values="regret", aggfunc="mean")
    print(shown.sort_values("balanced").round(3).to_string())
    noiseless_work = [(name, table, seed) for name in NOISELESS for table in tables for seed in SEEDS]
    noiseless = pd.DataFrame(itertools.chain(*on_all_cores(replay_without_noise, *zip(*noiseless_work, strict=True))))
    figures = summary(rows) | gains(rows) | {"ask_s": slowest_ask_s()}
    raw = rows.pivot_table(index="planner", columns="scoring", values="regret_raw", aggfunc="mean")
    p90 = rows.pivot_table(index="planner", columns="scoring", values="regret", aggfunc=lambda r: r.quantile(0.9))
    details = {
        "seeds": len(SEEDS),
        "replays": len(rows),
        "mean_regret": shown.round(4).to_dict("index"),
        "p90_regret": p90.round(4).to_dict("index"),
        "mean_regret_raw": raw.round(4).to_dict("index"),
        "held_out": summary(rows[rows.table == HELD_OUT]) if HELD_OUT in set(rows.table) else None,
        "mean_regret_quiet": noiseless.pivot_table(index="planner", columns="scoring", values="regret")
        .round(4)
        .to_dict("index"),
        "noise": {table.name: round(table.smoothed[1], 4) for table in tables},
    }
    per_table = {str(name): summary(of) for name, of in rows.groupby("table")}
    finish("trial_efficiency", figures, TARGETS, details, tables=per_table, keep=not named_tables())


if __name__ == "__main__":
    main()
