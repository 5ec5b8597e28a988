"""Write the report of a job as one page or as pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from sizewright.api._records import ClusterLike, JobLike, StoreLike, TrialsLike
from sizewright.api.inputs import load_job, opened_store
from sizewright.api.sizing import size
from sizewright.api.sizing_inputs import SizingInputs
from sizewright.datasets.files.atomic_write import atomic_file, result_file, result_folder, write_text_atomically
from sizewright.datasets.files.json_lines import JsonLines
from sizewright.datasets.trials.trial import now
from sizewright.errors import InputError
from sizewright.formatting import format_count
from sizewright.recommender.control.decisions import Decision, DecisionLog
from sizewright.reporting.contents import ReportData, figures
from sizewright.reporting.page import page
from sizewright.runtime.audit_log import AuditLog, Entry
from sizewright.runtime.metrics_log import MetricsLog
from sizewright.settings import EnvironmentSettings
from sizewright.spec import Job
from sizewright.spec._paths import absolute

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
    machine: str | None = None,
    spot: bool | None = None,
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
    """Write a report on a job: its recommendation, the evidence for it, and the outcome of its runs.

    Return the files that were written, and a sentence for each figure that could not be drawn. `html` is one file that
    needs no network, `out` or `report.html`; `png` and `svg` are one file per figure in the folder `out`, or `report`.

    The first arguments are those of `recommend`. Without a `job`, the store must hold exactly one. `metrics` and
    `decisions` are files that `run` or `tune` wrote. From `ledger` ($SIZEWRIGHT_LEDGER) the plans of the job are shown.
    `data`, `samples`, `objective` and `deadline`, such as "4h", override those of the job.

    Raises InputError when the store holds several jobs, for another form, for a file with unexpected content or of
    another job, and for a file that cannot be written; MissingExtraError without the extra `plots`; and what
    `recommend` raises.
    """
    if form not in ("html", *PICTURES):
        raise InputError(f"A report cannot be written as {form}.", f"Use one of: html, {', '.join(PICTURES)}.")
    suffix = Path(out or "").suffix.lower()
    if form == "html" and suffix in (".json", ".yaml", ".yml", ".csv", ".parquet", ".png", ".svg", ".pdf"):
        raise InputError(f"{out} ends in {suffix}, but a report is HTML.", "Name it .html, or choose another format.")
    name = "" if out is None else os.fspath(out)
    if form == "html":
        place = result_file(name or "report.html", "report.html")
    else:
        place = result_folder(name or "report", "There is a picture for each figure")
    if job is None and trials is not None:
        raise InputError("Trials alone do not describe their job.", "Name it: sizewright report JOB.")
    described = only_job_in(store) if job is None else job
    loaded_job = load_job(described, data, samples=samples, objective=objective, deadline=deadline)
    inputs = SizingInputs(
        job=loaded_job,
        trials=trials,
        store=store,
        cluster=cluster,
        machine=machine,
        spot=spot,
        extrapolate=extrapolate,
        model=model,
        prior=prior,
        tracking_uri=tracking_uri,
    )
    sized = size(inputs)
    contents = ReportData(
        sized,
        windows=_read_log(MetricsLog(_existing_file(metrics)), "--metrics") if metrics else (),
        plans=_plans(sized.job, ledger),
        decisions=_decisions(sized.job, decisions) if decisions else (),
    )
    path = Path(place).expanduser()
    try:
        if form != "html":
            return _write_figures(contents, path, form)
        text = page(contents, now())
        write_text_atomically(path, text)
        return [path], []
    except OSError as error:
        raise InputError(f"Cannot write to {path}: {error.strerror}.", "Choose another path.") from None


def _write_figures(contents: ReportData, folder: Path, form: str) -> tuple[list[Path], list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    files = list[Path]()
    not_drawn = list[str]()
    for figure in figures(contents):
        if figure.picture is None:
            not_drawn.append(f"{figure.title}: {figure.why_not}")
            continue
        files.append(folder / f"{figure.name}.{form}")
        metadata = {"Title": figure.title, "Description": figure.picture.alt}
        with atomic_file(files[-1]) as file:
            figure.picture.savefig(file, dpi=150, metadata=metadata)
    return files, not_drawn


def _plans(job: Job, ledger: str | Path | None) -> list[Entry]:
    """Return the last entry of the audit log for each plan of the job."""
    if ledger:
        entries = _read_log(AuditLog(_existing_file(ledger)), "--ledger")
    else:
        path = EnvironmentSettings.from_environment().ledger
        entries = AuditLog(path).read() if path else []
    return list({entry.plan_id: entry for entry in entries if entry.job == job.name}.values())


def _decisions(job: Job, path: str | Path) -> list[Decision]:
    """Return the decisions of a file about the job. Raises InputError when there are none."""
    decisions = _read_log(DecisionLog(_existing_file(path)), "--decisions")
    own = [decision for decision in decisions if decision.job_hash in job.hashes]
    if not own:
        raise InputError(f"{path} holds decisions about another job than {job.name}.", "Name the file of its run.")
    return own


def _read_log(log: JsonLines[R], option: str) -> list[R]:
    """Return the records of a log. Raises InputError when it holds none."""
    records = log.read()
    if not records:
        raise InputError(
            f"{log.path} holds no records of `sizewright run {option}`.",
            f"Name a file that `sizewright run {option}` wrote.",
        )
    return records


def _existing_file(path: str | Path) -> str | Path:
    """Return the path. Raises InputError when there is no file."""
    if not Path(absolute(path)).is_file():
        raise InputError(f"There is no file {path}.", "Name a file that `sizewright run` or `sizewright apply` wrote.")
    return path


def only_job_in(store: StoreLike | None) -> Job:
    """Return the only job in the store. Raises InputError when it describes several jobs, or none."""
    with opened_store(store, create=False) as opened:
        jobs, name = opened.history.jobs(), opened.name
    if len(jobs) != 1:
        names = ", ".join(sorted({job.name for job in jobs.values()})) or "none with a description"
        raise InputError(
            f"The store {name} holds {format_count(len(jobs), 'job')} ({names}).",
            "Name the one to report on: sizewright report JOB.",
        )
    return next(iter(jobs.values()))
