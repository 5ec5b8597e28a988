"""The report of a job: as one page, or as pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from sizewright.api._records import ClusterLike, JobLike, StoreLike, TrialsLike
from sizewright.api.applying import LEDGER_VARIABLE
from sizewright.api.inputs import its_store, load_job
from sizewright.api.sizing import size
from sizewright.datasets.json_lines import JsonLines
from sizewright.datasets.trials import now
from sizewright.datasets.whole_files import file_at, folder_at, whole_file, write_whole
from sizewright.errors import InputError
from sizewright.executors.ledger import Entry, Ledger
from sizewright.executors.metrics_log import MetricsLog
from sizewright.recommender.decisions import Decision, DecisionLog
from sizewright.reporting.contents import Told, figures
from sizewright.reporting.page import page
from sizewright.spec import Job
from sizewright.spec._paths import absolute
from sizewright.spec.units import format_count

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike
    from sizewright.models import BaseThroughputModel

PICTURES = ("png", "svg")
R = TypeVar("R", bound=BaseModel)


def report(
    job: JobLike | None = None,
    *,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    cluster: ClusterLike | None = None,
    extrapolate: bool = False,
    model: str | BaseThroughputModel | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    metrics: str | Path | None = None,
    decisions: str | Path | None = None,
    ledger: str | Path | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
    form: str = "html",
    out: str | Path | None = None,
) -> tuple[list[Path], list[str]]:
    """Write what a job's recommendation rests on and what became of its runs: the files, and why some figures are not
    drawn.

    `html` is one file that needs no network, `out` or `report.html`; `png` and `svg` are a file for each figure in the
    folder `out`, or `report`. The first arguments are those of `recommend`; without a `job`, it is the only one that
    the store holds. `metrics` and `decisions` are files that `run` or `tune` kept of a run; of the `ledger`
    ($SIZEWRIGHT_LEDGER) plans for the job are shown. `data`, `samples`, `objective` and `deadline`, such
    as "4h", take the place of the job's own.

    Raises InputError where the store holds several jobs, for another form, for a file of what it should not be or of
    another job, or for what cannot be written;
    MissingExtraError without the extra `plots`; and what `recommend` raises.
    """
    if form not in ("html", *PICTURES):
        raise InputError(f"A report is not written as {form}.", f"Take one of: html, {', '.join(PICTURES)}.")
    named = Path(out or "").suffix.lower()
    if form == "html" and named in (".json", ".yaml", ".yml", ".csv", ".parquet", ".png", ".svg", ".pdf"):
        raise InputError(
            f"{out} is named as {named}, and a report is HTML.", "Name it .html, or choose another format."
        )
    named_so = "" if out is None else os.fspath(out)
    place = (
        file_at(named_so or "report.html", "report.html")
        if form == "html"
        else folder_at(named_so or "report", "There is a picture for each figure")
    )
    if job is None and trials is not None:
        raise InputError("Trials by themselves do not describe their job.", "Name it: sizewright report JOB.")
    described = load_job(
        its_only_job(store) if job is None else job, data, samples=samples, objective=objective, deadline=deadline
    )
    sized = size(
        described, trials=trials, store=store, cluster=cluster,
        extrapolate=extrapolate, model=model, prior=prior, tracking_uri=tracking_uri,
    )  # fmt: skip
    told = Told(
        sized, looks=_kept(MetricsLog(_there(metrics)), "--metrics") if metrics else (),
        plans=_plans(sized.job, ledger), decisions=_decided(sized.job, decisions) if decisions else (),
    )  # fmt: skip
    path = Path(place).expanduser()
    try:
        return _page(told, path) if form == "html" else _pictures(told, path, form)
    except OSError as error:
        raise InputError(f"Cannot write to {path}: {error.strerror}.", "Name another place for it.") from None


def _page(told: Told, path: Path) -> tuple[list[Path], list[str]]:
    text = page(told, now())
    write_whole(path, text)
    return [path], []


def _pictures(told: Told, folder: Path, form: str) -> tuple[list[Path], list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    drawn = figures(told)
    files = list[Path]()
    for figure in drawn:
        if figure.picture is not None:
            files.append(folder / f"{figure.name}.{form}")
            about = {"Title": figure.title, "Description": figure.picture.alt}
            with whole_file(files[-1]) as file:
                figure.picture.savefig(file, dpi=150, metadata=about)
    return files, [f"{figure.title}: {figure.why_not}" for figure in drawn if figure.picture is None]


def _plans(job: Job, ledger: str | Path | None) -> list[Entry]:
    """What became of each plan at last."""
    path = _there(ledger) if ledger else os.environ.get(LEDGER_VARIABLE)
    log = Ledger(path) if path else None
    read = [] if log is None else _kept(log, "--ledger") if ledger else log.read()
    return list({entry.plan_id: entry for entry in read if entry.job == job.name}.values())


def _decided(job: Job, path: str | Path) -> list[Decision]:
    """Raises InputError for decisions about another job."""
    read = _kept(DecisionLog(_there(path)), "--decisions")
    mine = [decision for decision in read if decision.job_hash in job.hashes]
    if not mine:
        raise InputError(f"{path} holds decisions about another job than {job.name}.", "Name the file of its run.")
    return mine


def _kept(log: JsonLines[R], option: str) -> list[R]:
    """Raises InputError for a file that holds none."""
    read = log.read()
    if not read:
        raise InputError(f"{log.path} holds nothing that `sizewright run {option}` writes.", "Name such a file.")
    return read


def _there(path: str | Path) -> str | Path:
    """Raises InputError for a file that there is not."""
    if not Path(absolute(path)).is_file():
        raise InputError(f"There is no file {path}.", "Name one that a run or an apply wrote.")
    return path


def its_only_job(store: StoreLike | None) -> Job:
    """The job that the store holds trials or runs of. Raises InputError where there are several, or none."""
    with its_store(store, create=False) as opened:
        jobs, name = opened.history.jobs(), opened.name
    if len(jobs) != 1:
        names = ", ".join(sorted({job.name for job in jobs.values()})) or "none that is described"
        raise InputError(
            f"The store {name} holds {format_count(len(jobs), 'job')} ({names}).",
            "Name the one to report on: sizewright report JOB.",
        )
    return next(iter(jobs.values()))
