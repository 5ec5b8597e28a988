"""The report of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.api.inputs import JobLike, its_store, load_job
from sizewright.api.sizing import size
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial, now
from sizewright.errors import InputError
from sizewright.recommender.sized import Sized
from sizewright.reporting.contents import figures
from sizewright.reporting.page import page
from sizewright.spec import Cluster, Job

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike

PICTURES = ("png", "svg")


def report(
    job: JobLike | None = None,
    *,
    trials: Sequence[Trial] | None = None,
    store: str | TrialStore | None = None,
    cluster: Cluster | str | Path | None = None,
    extrapolate: bool = False,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
) -> str:
    """One HTML file that shows a job's recommendation with its reasons, its figures, its runs and its trials.

    Arguments are those of `recommend`; without a `job`, it is the only one that the store holds.
    Raises InputError where it holds several, MissingExtraError without the extra `plots`.
    """
    job = its_only_job(store) if job is None else job
    told = size(
        job, trials=trials, store=store, cluster=cluster, extrapolate=extrapolate, prior=prior,
        tracking_uri=tracking_uri,
    )  # fmt: skip
    return page(told, now())


def draw(told: Sized, form: str, folder: str | Path) -> tuple[list[Path], list[str]]:
    """Write each figure of a report into a folder, as `png` or `svg`: the files, and why others were not drawn.

    Raises InputError for another form, or a folder that cannot be written.
    """
    if form not in PICTURES:
        raise InputError(f"Figures are not drawn as {form}.", f"Take one of: {', '.join(PICTURES)}.")
    written, why_not = list[Path](), list[str]()
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for figure in figures(told):
            if figure.picture is None:
                why_not.append(f"{figure.title}: {figure.why_not}")
                continue
            path = Path(folder) / f"{figure.name}.{form}"
            figure.picture.savefig(path, dpi=150, metadata={"Title": figure.title, "Description": figure.picture.alt})
            written.append(path)
    except OSError as error:
        raise InputError(f"Cannot write into {folder}: {error.strerror}.", "Name another folder.") from None
    return written, why_not


def its_only_job(store: str | TrialStore | None) -> Job:
    """The job that the store holds trials or runs of. Raises InputError where there are several, or none."""
    with its_store(store, create=False) as opened:
        jobs = opened.history.jobs()
        name = opened.name
    if len(jobs) != 1:
        names = ", ".join(sorted({job.name for job in jobs.values()})) or "none that is described"
        raise InputError(
            f"The store {name} holds {len(jobs)} jobs ({names}).", "Name the one to report on: sizewright report JOB."
        )
    return load_job(next(iter(jobs.values())))
