"""Every picture shows the measured values, and has them as words and numbers too."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizewright import plots
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.models import ThroughputModel
from sizewright.plots import Picture
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import Allocation, Evidence, Job, Recommendation
from tests.helpers.finished_runs import decisions_of, observations_of, run_of
from tests.helpers.formula_trials import formula_trials

PHASES = {"phase_data_s": 0.001, "phase_pull_s": 0.003, "phase_compute_s": 0.01, "phase_push_s": 0.002}


@pytest.fixture
def job(example: Path) -> Job:
    return Job.load(example)


@pytest.fixture
def trials(job: Job) -> list[Trial]:
    return [trial.model_copy(update=PHASES) for trial in formula_trials(job)]


Draw = Callable[[Job, list[Trial]], Picture]
ALL: dict[str, Draw] = {
    "decided": lambda job, trials: plots.decisions(decisions_of(job)),
    "throughput": plots.throughput,
    "pareto": lambda job, trials: plots.pareto(recommend(SizingRequest(job, trials))),
    "memory": lambda job, trials: plots.memory(recommend(SizingRequest(job, trials)), trials, [run_of(job)]),
    "phases": lambda job, trials: plots.phases(trials),
    "predicted": lambda job, trials: plots.predicted(job, trials, [run_of(job)]),
    "observed": lambda job, trials: plots.observed(observations_of(job)),
    "over_time": lambda job, trials: plots.over_time(run_of(job)),
}


@pytest.mark.parametrize("name", ALL)
def test_picture_has_a_text_alternative_and_numbers(name: str, job: Job, trials: list[Trial]) -> None:
    picture = ALL[name](job, trials)
    columns, rows = picture.numbers
    assert picture.alt.endswith(".")
    assert rows
    assert {len(row) for row in rows} == {len(columns)}
    file = io.BytesIO()
    picture.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    for gid, texts in picture.labels.items():
        (artist,) = picture.findobj(lambda each, gid=gid: each.get_gid() == gid)
        assert len(artist.get_offsets()) == len(texts), "each point has its label"


def offsets(picture: Picture, number: int) -> np.ndarray:
    (artist,) = picture.findobj(lambda each: each.get_gid() == f"points-{number}")
    return np.asarray(artist.get_offsets())


def test_points_off_the_curve_are_rescaled_to_it(job: Job, trials: list[Trial]) -> None:
    model, first = ThroughputModel().fit(trials), trials[0]
    allocation = Allocation.of(first.workers, first.ps, first.worker_cpu or 1, first.ps_cpu or 1, first.batch_size or 1)
    picture = plots.throughput(job, trials, model=model, at=allocation)
    on_it, brought, expected = (offsets(picture, number) for number in (1, 2, 3))
    assert on_it.tolist() == [[first.workers, pytest.approx(first.throughput)]]
    assert expected[0, 0] == first.workers
    other_trials = trials[1:]
    rates = np.array([trial.throughput for trial in other_trials], float)
    curve = brought[:, 1] * model.predict(other_trials) / rates
    for count in {trial.workers for trial in other_trials}:
        mine = curve[brought[:, 0] == count]
        assert mine == pytest.approx(mine[0]), "measured over predicted is what is left of a trial"
    assert not np.allclose(brought[:, 1], rates)


def of_label(picture: Picture, label: str) -> list[Any]:
    """Return the artists with this label, those of the first panel first."""
    return [each for axes in picture.axes for each in axes.get_children() if each.get_label() == label]


def test_predictions_are_not_drawn_as_measured(job: Job, trials: list[Trial]) -> None:
    answer = recommend(SizingRequest(job, trials))
    allocation = answer.target
    assert allocation is not None
    assert all(
        trial.workers != allocation.replicas("worker") or trial.worker_cpu != allocation.worker[0].cpu
        for trial in trials
    )
    picture = plots.throughput(job, trials, at=allocation)
    assert not of_label(picture, "measured")
    assert not of_label(picture, "fitted to measured points")
    assert of_label(picture, "measured at other sizes, rescaled")
    fastest = max(trial.throughput or 0.0 for trial in trials)
    assert of_label(picture, f"fastest trial: {fastest:,.0f} samples/s")
    for line in of_label(picture, "predicted"):
        assert line.is_dashed()
    for points in of_label(plots.pareto(answer), "predicted"):
        assert len(points.get_facecolors()) == 0


def test_curve_is_solid_between_trials_of_its_own_sizes_only(job: Job, trials: list[Trial]) -> None:
    first = next(trial for trial in trials if trial.table_scale in (None, 1.0))
    mine = [first.model_copy(update={"workers": n, "throughput": (first.throughput or 1) * n**0.9}) for n in (2, 4)]
    smaller = mine[1].model_copy(update={"workers": 5, "embedding_bytes": (first.embedding_bytes or 0) // 4})
    allocation = Allocation.of(2, first.ps, first.worker_cpu or 1, first.ps_cpu or 1, first.batch_size or 1)
    other_trials = [trial for trial in trials if trial.ps != first.ps]
    picture = plots.throughput(job, [*other_trials, *mine, smaller], at=allocation)
    solid, *_ = of_label(picture, "fitted to measured points")
    assert (min(solid.get_xdata()), max(solid.get_xdata())) == (2, 4)
    measured, *_ = of_label(picture, "measured")
    assert sorted(measured.get_offsets()[:, 0]) == [2, 4]


def test_predicted_picture_states_the_error(job: Job, trials: list[Trial]) -> None:
    picture = plots.predicted(job, [], [run_of(job, actual=20_000)])
    ((kind, name, actual, expected, _, off),) = picture.numbers[1]
    assert (kind, name, actual, expected, off) == (
        "run, predicted before it began",
        "nightly",
        "20,000",
        "19,000",
        "-5.0 %",
    )
    assert "the median error is 5.0 %" in picture.alt


def test_chosen_alternative_is_marked_once(job: Job, trials: list[Trial]) -> None:
    answer = recommend(SizingRequest(job, trials))
    picture = plots.pareto(answer)
    marked = [row for row in picture.numbers[1] if row[-1] == "chosen"]
    assert [row[0] for row in marked] == [answer.target.describe()]  # type: ignore[union-attr]
    assert len(picture.numbers[1]) == len(answer.alternatives)


def test_equal_decisions_share_a_row(job: Job) -> None:
    turns = decisions_of(job)
    picture = plots.decisions([turns[0].model_copy(update={"run": "another"}), *turns])
    rows = picture.numbers[1]
    assert [(row[0], row[1], row[2], row[5]) for row in rows] == [
        ("0.0 s", "5", "keep", ""), ("50.0 s", "1", "adjust", "applied"), ("1.0 min", "3", "keep", ""),
        ("1.5 min", "1", "adjust", "It cools down."), ("1.7 min", "1", "skipped", ""),
    ]  # fmt: skip
    assert picture.alt.startswith("11 turns in 1.7 min; proposed changes: 2, applied: 1; skipped turns: 1.")
    assert [text for texts in picture.labels.values() for text in texts] == [
        f"{turns[5].target.describe()}: Four workers save 300 s.",  # type: ignore[union-attr]
        f"{turns[9].target.describe()}: Two would cost less.",  # type: ignore[union-attr]
    ]


def test_phases_of_many_allocations_are_thinned() -> None:
    trials = [Trial(workers=n, ps=1, throughput=n, **{k: v * n for k, v in PHASES.items()}) for n in range(1, 61)]
    picture = plots.phases(trials)
    names = [row[0] for row in picture.numbers[1]]
    assert len(names) == 20
    assert (names[0], names[-1]) == ("60, 1", "1, 1")


@pytest.mark.parametrize(
    "draw",
    [
        lambda job, empty: plots.throughput(job, []),
        lambda job, empty: plots.predicted(job, []),
        lambda job, empty: plots.phases([]),
        lambda job, empty: plots.pareto(empty),
        lambda job, empty: plots.memory(empty),
        lambda job, empty: plots.decisions([]),
        lambda job, empty: plots.observed(observations_of(job)[:1]),
        lambda job, empty: plots.over_time(run_of(job).model_copy(update={"stretches": ()})),
    ],
)
def test_nothing_to_draw_raises_input_error(draw: Callable[[Job, Recommendation], Picture], job: Job) -> None:
    empty = Recommendation(status="not_enough_data", job=job.name, evidence=Evidence(trials=0))
    with pytest.raises(InputError) as caught:
        draw(job, empty)
    assert caught.value.remedy


def test_observed_picture_shows_the_measured_rate(job: Job) -> None:
    picture = plots.observed(observations_of(job, rate=2000.0))
    assert {row[1] for row in picture.numbers[1]} == {"2,000"}
    assert "2,000 samples/s on average" in picture.alt
