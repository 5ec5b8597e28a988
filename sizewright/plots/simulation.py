"""Plot a simulation: completion times, queueing and use by load, and the distribution of completion times."""

from __future__ import annotations

from typing import Any

import numpy as np

from sizewright.formatting import format_count, format_percent
from sizewright.plots._base import Picture
from sizewright.spec.simulation import SimulationAnswer

_SHOWN = {"jct_s": "mean completion time (h)", "queueing_s": "mean queueing (h)", "use": "use of the capacity"}
_MARKS = "osD^v<>pP*Xhd8"


def simulation(answer: SimulationAnswer) -> Picture:
    """Plot mean completion time, queueing and use by load with intervals over seeds, and completion times."""
    picture = Picture(12, 8)
    panels = picture.subplots(2, 2)
    for axes, (name, label) in zip(panels.flat, _SHOWN.items(), strict=False):
        _by_load(axes, answer, name, label)
    _completion_times(panels[1, 1], answer)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), frameon=False)
    picture.suptitle(f"{format_count(answer.jobs, 'job')} under {format_count(len(labels), 'policy', 'policies')}")
    picture.numbers = (
        ("policy", "load", *_SHOWN.values()),
        [
            (row.policy, f"{row.load:g}", *(_number(row.figures[name].value, name) for name in _SHOWN))
            for row in answer.rows
        ],
    )
    best = min(answer.rows, key=lambda row: row.figures["jct_s"].value)
    picture.alt = (
        f"{format_count(answer.jobs, 'job')} under {format_count(len(labels), 'policy', 'policies')}; "
        f"the shortest mean completion time is that of {best.policy} at load {best.load:g}: "
        f"{best.figures['jct_s'].value / 3600:.2f} h."
    )
    return picture


def _number(value: float, name: str) -> str:
    return f"{value / 3600:.2f}" if name.endswith("_s") else format_percent(value, 1)


def _policies(simulation: SimulationAnswer) -> list[str]:
    return list(dict.fromkeys(row.policy for row in simulation.rows))


def _by_load(axes: Any, simulation: SimulationAnswer, name: str, label: str) -> None:
    """Draw the points of all policies side by side, with intervals over the seeds; lines join the loads."""
    unit = 3600.0 if name.endswith("_s") else 1.0
    policies = _policies(simulation)
    loads = sorted({row.load for row in simulation.rows})
    for number, policy in enumerate(policies):
        estimates = {row.load: row.figures[name] for row in simulation.rows if row.policy == policy}
        x = np.arange(len(loads)) + (number - (len(policies) - 1) / 2) * 0.6 / max(len(policies), 1)
        middle = np.array([estimates[load].value for load in loads]) / unit
        intervals = np.array([[estimates[load].lower, estimates[load].upper] for load in loads]).T / unit
        axes.errorbar(
            x,
            middle,
            np.abs(intervals - middle),
            label=policy,
            marker=_MARKS[number % len(_MARKS)],
            markersize=5,
            linewidth=0.8,
            capsize=2,
            color=f"C{number % 10}",
        )
    axes.set_xticks(np.arange(len(loads)), [f"load {load:g}" for load in loads])
    axes.set(ylabel=label, ylim=(0, None))
    axes.grid(axis="y", alpha=0.3)


def _completion_times(axes: Any, simulation: SimulationAnswer) -> None:
    """Draw the distribution of completion times of the first seed at the highest load."""
    load = max(row.load for row in simulation.rows)
    seed = min(run.seed for run in simulation.runs)
    for number, policy in enumerate(_policies(simulation)):
        for run in simulation.runs:
            if (run.policy, run.load, run.seed) == (policy, load, seed) and run.completion_s:
                hours = np.maximum(np.array(run.completion_s) / 3600, 1e-3)
                axes.plot(hours, np.linspace(0, 1, len(hours)), color=f"C{number % 10}", linewidth=1.2)
    axes.set(xscale="log", xlabel=f"completion time (h) at load {load:g}", ylabel="share of the jobs", ylim=(0, 1))
    axes.grid(alpha=0.3)
