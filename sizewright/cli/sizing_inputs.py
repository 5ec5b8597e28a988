"""Read the job, trials and options that `recommend`, `predict` and `report` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sizewright.api.sizing_inputs import SizingInputs
    from sizewright.cli.options import ObjectiveName
    from sizewright.datasets.trials.trial import Trials
    from sizewright.recommender.sizing.remedy_commands import Options
    from sizewright.spec import Job


def sizing_inputs(
    job: str,
    *,
    store: str | None,
    trials: str | None,
    map_: list[str] | None,
    cluster: str | None,
    machine: str | None,
    spot: bool | None,
    data: str | None,
    samples: int | None,
    model: str | None,
    prior: str | None,
    tracking_uri: str | None,
    objective: ObjectiveName | None,
    deadline: str | None,
    extrapolate: bool,
) -> SizingInputs:
    """Return the loaded job with its trials; remedies repeat the options that were given."""
    from sizewright import api
    from sizewright.api.sizing_inputs import SizingInputs
    from sizewright.recommender.sizing.remedy_commands import RemedyCommands

    goal = objective and objective.value
    loaded_job = api.load_job(job, data, samples=samples, objective=goal, deadline=deadline or None)
    options = _given_options(
        store=store,
        trials=trials,
        map_=map_,
        cluster=cluster,
        machine=machine,
        spot=spot is True,
        on_demand=spot is False,
        data=data,
        samples=samples,
        objective=goal,
        deadline=deadline,
        extrapolate=extrapolate,
    )
    return SizingInputs(
        job=loaded_job,
        trials=read_rows(trials, map_, loaded_job),
        store=store,
        cluster=cluster,
        machine=machine,
        spot=spot,
        extrapolate=extrapolate,
        model=model,
        prior=prior,
        tracking_uri=tracking_uri,
        commands=RemedyCommands(job, options),
    )


def _given_options(**values: str | int | bool | list[str] | None) -> Options:
    """Return the names and values of the options that were given."""
    options = []
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            if each not in (None, "", False):
                options.append((f"--{name.rstrip('_').replace('_', '-')}", "" if each is True else str(each)))
    return tuple(options)


def read_rows(file: str | None, mapping: list[str] | None, job: Job | None) -> Trials | None:
    """Return the trials of a file and print notes on its columns; None without a file."""
    if not file:
        return None
    from sizewright.cli.output import stderr
    from sizewright.cli.trials import read_trial_file
    from sizewright.datasets.trials.trial import Trials

    table = read_trial_file(file, mapping or [], job)
    if notes := table.describe():
        stderr().print(f"{file}: {notes}", soft_wrap=True)
    return Trials(table.trials)
