"""The prior: what measured jobs tell of one that was not measured yet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from sizewright.datasets.bank.noise import repeat_noise
from sizewright.datasets.bank.shapes import BankJob
from sizewright.datasets.trials import Trial
from sizewright.datasets.whole_files import write_whole
from sizewright.errors import NotEnoughDataError, StoreError
from sizewright.models.prior import experience, physics
from sizewright.models.prior.curve import JobCurve
from sizewright.models.prior.rows import Rows, as_rows, fitted
from sizewright.models.prior.sound import beyond_quota, sound
from sizewright.models.table import ALLOCATION_AXES, as_columns
from sizewright.spec import Job
from sizewright.spec._json import loads
from sizewright.spec._paths import absolute
from sizewright.spec.units import format_count

Floats = NDArray[np.float64]

SHIPPED = Path(__file__).parent / "shipped.json"
VERSION = 3
LEAST_BASES, LEAST_TRIALS = 3, 30
_MOST_ROWS_A_FOLD, _MOST_FOLDS = 2000, 10
_USUAL_NOISE = 0.05
_COVERAGE, _NORMAL = 0.9, 1.645
_LEARN = "Learn another with `sizewright bank learn`, or use the shipped one: --prior shipped."


@dataclass(frozen=True, eq=False)
class LearnedPrior:
    """Physics that all jobs share, and how far jobs that are alike stray from it alike."""

    parameters: Floats
    """(k,), in the order of `physics.NAMES`."""
    experience: experience.Experience
    """By how much each job was faster than physics foretells."""
    form_sd: float
    """Of the truth about a job's curve, once its level is known: standard deviation of logarithms, as all here."""
    noise_sd: float
    """Of a trial about the truth."""
    widen: float
    """By so much these are too small, as jobs that were left out have shown."""
    ranges: Mapping[str, tuple[float, float]]
    """Least and greatest of each axis that at least two jobs reached."""
    trials: int
    flagged: tuple[str, ...] = ()
    """Trials that were left out, with the reason."""
    source: str = ""
    """Where it was read from."""

    @classmethod
    def fit(cls, trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Self:
        """Learn from trials of jobs, which are told by their hash.

        Jobs are left out base by base to see how wide intervals must be. Trials that contradict the others are left out
        and flagged. Raises NotEnoughDataError where fewer than 30 trials or three base shapes are left, InputError for
        a trial whose numbers are none.
        """
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # for matrices so small, threads wait for one another most of the time
            return cls._fit(trials, jobs)

    @classmethod
    def _fit(cls, trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Self:
        keys = list(jobs)
        names = [bank_job.job.name for bank_job in jobs.values()]
        rows, parameters, flagged = sound(as_rows(trials, {key: each.job for key, each in jobs.items()}), names)
        bases = [jobs[keys[number]].base for number in rows.job]
        if len(rows.job) < LEAST_TRIALS or len(set(bases)) < LEAST_BASES:
            raise NotEnoughDataError(
                f"{format_count(len(rows.job), 'trial')} of "
                f"{format_count(len(set(bases)), 'base shape')} cannot make a prior.",
                max(LEAST_TRIALS - len(rows.job), LEAST_BASES - len(set(bases))),
                "trial" if len(rows.job) < LEAST_TRIALS else "base shape",
            )
        base_of_row = np.array(bases)
        described = {
            number: experience.describe(jobs[keys[number]].job, jobs[keys[number]].table_scale)
            for number in np.unique(rows.job)
        }

        def learn(known: Rows, parameters: Floats) -> experience.Experience:
            numbers, levels, _ = _levels(known, parameters)
            chosen = [jobs[keys[number]] for number in numbers]
            places = np.array([described[number] for number in numbers])
            away = noise / np.sqrt(_sessions(known, trials))
            return experience.learn(chosen, places, levels, away)

        _, _, form_and_noise = _levels(rows, parameters)
        noise = repeat_noise(trials).at_usual_speed
        noise = min(noise if np.isfinite(noise) else _USUAL_NOISE, form_and_noise)
        form = float(np.sqrt(form_and_noise**2 - noise**2))
        far: list[float] = []
        for held in _folds(base_of_row):
            known = _thinned(rows.pick(~held))
            again = fitted(known, parameters)
            told = learn(known, again)
            left = rows.told.log_rates - physics.log_rates(again, rows.at)
            for number in np.unique(rows.job[held]):
                mine = rows.job == number
                bank_job = jobs[keys[number]]
                guess = told.guess(bank_job.job, bank_job.table_scale)
                if guess.distance <= told.limit:
                    far += list(np.abs(left[mine] - guess.level) / np.hypot(guess.sd, form_and_noise))
        widen = max(1.0, float(np.quantile(far, _COVERAGE)) / _NORMAL) if far else 2.0
        return cls(
            parameters, learn(rows, parameters), form, noise, widen, _ranges(trials, rows), len(rows.job),
            (*flagged, *beyond_quota(trials)),
        )  # fmt: skip

    def curve(self, job: Job, table_scale: float = 1.0) -> JobCurve:
        """What it foretells for a job, with the share `table_scale` of its rows.

        Raises NotEnoughDataError for one unlike all that were measured.
        """
        why = _not_told(job)
        if why:
            raise NotEnoughDataError(f"The prior tells nothing of {job.name}: {why}.", 3)
        guess = self.experience.guess(job, table_scale)
        if guess.distance > self.experience.limit:
            raise NotEnoughDataError(
                f"{job.name} is unlike the jobs that the prior has learned from: {guess.distance:.1f} from the "
                f"nearest, {guess.nearest}, most of it in {guess.axis}; up to {self.experience.limit:.1f} it can tell.",
                3,
            )
        return JobCurve(
            job, self.parameters, guess, self.experience.limit,
            self.form_sd, self.noise_sd, self.widen, self.ranges, self.trials, self.source,
        )  # fmt: skip

    def to_json(self) -> str:
        """All of it, as `from_json` reads it."""
        record = {
            "version": VERSION,
            "physics": physics.as_record(self.parameters),
            "experience": self.experience.as_record(),
            **{name: getattr(self, name) for name in ("form_sd", "noise_sd", "widen", "trials")},
            "ranges": {axis: list(ends) for axis, ends in self.ranges.items()},
            "flagged": list(self.flagged),
        }
        return json.dumps(record | {"sha256": _digest(record)}, indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        """Write it as JSON. Raises StoreError where that cannot be."""
        try:
            write_whole(Path(absolute(path)), self.to_json())
        except OSError as error:
            raise StoreError(f"Cannot write the prior to {path}: {error}.", "Check the path and its rights.") from None

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Read it, or the one that is shipped. Raises StoreError when it is missing, damaged or of another version."""
        path = SHIPPED if path is None else Path(absolute(path))
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise StoreError(f"There is no prior at {path}.", _LEARN) from None
        except (OSError, ValueError) as error:
            raise StoreError(f"The prior {path} cannot be read: {error}.", _LEARN) from None
        return cls.from_json(text, "the shipped prior" if path == SHIPPED else str(path))

    @classmethod
    def from_json(cls, text: str, name: str) -> Self:
        """As `to_json` wrote it; `name` is what errors call it. Raises StoreError when it is damaged or of another
        version."""
        try:
            record = loads(text)
        except ValueError as error:
            raise StoreError(f"The prior {name} cannot be read: {error}.", _LEARN) from None
        version = record.get("version") if isinstance(record, dict) else None
        if version != VERSION:
            raise StoreError(f"{name} is no prior of version {VERSION} (it tells {version!r}).", _LEARN)
        if record.pop("sha256", None) != _digest(record):
            raise StoreError(f"The prior {name} is damaged: it is not what was written.", _LEARN)
        try:
            return cls(
                parameters=physics.from_record(record["physics"]),
                experience=experience.from_record(record["experience"]),
                form_sd=_positive(record["form_sd"]),
                noise_sd=_positive(record["noise_sd"]),
                widen=_positive(record["widen"]),
                ranges={str(axis): (_positive(ends[0]), _positive(ends[1])) for axis, ends in record["ranges"].items()},
                trials=int(record["trials"]),
                flagged=tuple(map(str, record["flagged"])),
                source=name,
            )._checked()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise StoreError(f"The prior {name} is damaged: {error!r}.", _LEARN) from None

    def _checked(self) -> Self:
        known = self.experience
        sizes = np.array([*known.scales, known.limit, *known.scale])
        numbers = (self.parameters, known.places, known.centre, known.levels, known.to_itself, known.noise, sizes)
        if not all(np.isfinite(column).all() for column in numbers) or not (sizes > 0).all():
            raise ValueError("a number is not finite, or not above 0")
        if (
            not len(
                {
                    len(c)
                    for c in (
                        known.names,
                        known.bases,
                        known.hashes,
                        known.levels,
                        known.to_itself,
                        known.noise,
                        known.places,
                    )
                }
            )
            == 1
        ):
            raise ValueError("not as many jobs everywhere")
        return self


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _not_told(job: Job) -> str:
    if job.command:
        return "it runs its own code"
    if not job.has_ps:
        return "it has no PS"
    if job.training.device != "cpu" or job.training.embedding_device != "cpu":
        return "it trains on a GPU, and all that was measured on cores"
    return ""


def _levels(rows: Rows, parameters: Floats) -> tuple[NDArray[np.int64], Floats, float]:
    """Which jobs there are, by how much each is faster than physics foretells, and how far trials stray about that."""
    left = rows.told.log_rates - physics.log_rates(parameters, rows.at)
    numbers, place = np.unique(rows.job, return_inverse=True)
    levels = np.bincount(place, left) / np.bincount(place)
    freedom = max(len(left) - len(numbers), 1)
    return numbers, levels, float(np.sqrt(((left - levels[place]) ** 2).sum() / freedom))


def _sessions(rows: Rows, trials: Sequence[Trial]) -> Floats:
    """In how many sessions each job (j,) was measured: trials of one share the host's mood."""
    series = [{trials[i].series or str(i) for i in rows.trial[rows.job == number]} for number in np.unique(rows.job)]
    return np.array([float(len(names)) for names in series])


def _folds(base_of_row: NDArray[np.str_]) -> list[NDArray[np.bool_]]:
    """Rows that are left out together: whole bases, in at most ten folds."""
    bases = list(dict.fromkeys(base_of_row.tolist()))
    return [np.isin(base_of_row, bases[start::_MOST_FOLDS]) for start in range(min(_MOST_FOLDS, len(bases)))]


def _thinned(rows: Rows) -> Rows:
    step = -(-len(rows.job) // _MOST_ROWS_A_FOLD)
    return rows.pick(np.arange(0, len(rows.job), step))


def _ranges(trials: Sequence[Trial], rows: Rows) -> dict[str, tuple[float, float]]:
    """Of each axis, what at least two jobs reached: one alone may be wrong."""
    columns = as_columns([trials[i] for i in rows.trial], ALLOCATION_AXES)
    known = {axis: column for axis, column in columns.items() if np.isfinite(column).any()}
    return {axis: (-_second(-column, rows.job), _second(column, rows.job)) for axis, column in known.items()}


def _second(column: Floats, job: NDArray[np.int64]) -> float:
    """The greatest that a second job reached."""
    most = sorted(
        float(np.nanmax(column[job == number])) for number in np.unique(job) if np.isfinite(column[job == number]).any()
    )
    return most[-2] if len(most) > 1 else most[-1]


def _positive(number: Any) -> float:
    value = float(number)
    if not 0 <= value < np.inf:
        raise ValueError(f"{number!r} is not a finite number from 0 up")
    return value
