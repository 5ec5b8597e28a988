"""The learned prior, which predicts the throughput of an unmeasured job from measured jobs."""

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

from sizewright.datasets.files.atomic_write import write_text_atomically
from sizewright.datasets.trial_bank.noise import repeat_noise
from sizewright.datasets.trial_bank.shapes import BankJob
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError, StoreError
from sizewright.formatting import format_count
from sizewright.models.host_state import at_mean_state
from sizewright.models.prior import job_effects, mechanistic
from sizewright.models.prior.curve import JobCurve
from sizewright.models.prior.job_effects import JobEffects
from sizewright.models.prior.outliers import drop_outliers, implausible_cpu_use, unsteady
from sizewright.models.prior.rows import PriorRows, as_rows, fit_rows
from sizewright.models.table import ALLOCATION_AXES, as_columns
from sizewright.spec import Job
from sizewright.spec._json import loads
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import MAX_JSON_MIB, read_file

Floats = NDArray[np.float64]

SHIPPED = Path(__file__).parent / "shipped.json"
VERSION = 3
MIN_BASES, MIN_TRIALS = 3, 30
_MAX_FOLDS, _MAX_ROWS_PER_FOLD = 10, 2000
_DEFAULT_NOISE_SD = 0.05  # where no allocation was measured twice
_COVERAGE, _NORMAL_QUANTILE = 0.9, 1.645
_UNCALIBRATED = 2.0  # factor of standard deviations where no job could be left out
_LEARN = "Learn another with `sizewright bank learn`, or use the shipped one: --prior shipped."


@dataclass(frozen=True, eq=False)
class LearnedPrior:
    """A mechanistic model that all jobs share, and how similar jobs deviate from it alike.

    Standard deviations are those of log samples/s.
    """

    parameters: Floats
    """(k,), in the order of `mechanistic.NAMES`."""
    job_effects: JobEffects
    """The offset of each measured job from the mechanistic model."""
    shape_sd: float
    """Error of the shape of a job's curve, once its log offset is known."""
    noise_sd: float
    """Noise of a trial about the true throughput."""
    corrected_noise_sd: float
    """The part of it that remains once a trial is corrected for the state of its host (`models/host_state.py`)."""
    calibration_factor: float
    """Factor of these standard deviations, calibrated on jobs that were left out."""
    ranges: Mapping[str, tuple[float, float]]
    """Smallest and largest value of each axis that at least two jobs reached."""
    trials: int
    """Number of trials that it was learned from."""
    flagged: tuple[str, ...] = ()
    """Trials that were left out, with the reason."""
    source: str = ""
    """Where it was read from."""

    @classmethod
    def fit(cls, trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Self:
        """Learn from trials of jobs; `jobs` maps the hash of a job to its description.

        Jobs are left out base by base to calibrate the width of intervals. Trials that contradict the others are left
        out and flagged. Raises NotEnoughDataError where fewer than 30 trials or three base shapes remain, InputError
        for a trial whose numbers cannot be used.
        """
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # with matrices this small, threads mostly wait for each other
            return cls._fit(trials, jobs)

    @classmethod
    def _fit(cls, trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Self:
        bank_jobs = list(jobs.values())
        repeat_sd = repeat_noise(trials).at_usual_speed
        trials = at_mean_state(trials)
        corrected_sd = repeat_noise(trials).at_usual_speed
        rows, parameters, flagged = drop_outliers(
            as_rows(trials, {key: bank_job.job for key, bank_job in jobs.items()}),
            [bank_job.job.name for bank_job in bank_jobs],
        )
        base_of_row = np.array([bank_jobs[number].base for number in rows.job])
        _check_enough(len(rows.job), len(set(base_of_row.tolist())))

        _, _, residual_sd = _job_offsets(rows, parameters)
        noise_sd = repeat_sd if np.isfinite(repeat_sd) else _DEFAULT_NOISE_SD
        corrected_noise_sd = min(corrected_sd if np.isfinite(corrected_sd) else noise_sd, noise_sd, residual_sd)
        shape_sd = float(np.sqrt(residual_sd**2 - corrected_noise_sd**2))

        described = {
            number: job_effects.describe(bank_jobs[number].job, bank_jobs[number].table_scale)
            for number in np.unique(rows.job)
        }

        def learn_effects(rows: PriorRows, parameters: Floats) -> JobEffects:
            numbers, offsets, _ = _job_offsets(rows, parameters)
            # What remains of the noise is shared by the trials of a series.
            offset_sd = corrected_noise_sd / np.sqrt(_series_per_job(rows, trials))
            descriptions = np.array([described[number] for number in numbers])
            return job_effects.learn([bank_jobs[number] for number in numbers], descriptions, offsets, offset_sd)

        # Standardized errors of the jobs of each base shape, predicted from the other base shapes.
        errors: list[float] = []
        for left_out in _folds(base_of_row):
            training = _thinned(rows.pick(~left_out))
            fold_parameters = fit_rows(training, parameters)
            effects = learn_effects(training, fold_parameters)
            residuals = rows.observations.log_rates - mechanistic.log_rates(fold_parameters, rows.configs)
            for number in np.unique(rows.job[left_out]):
                bank_job = bank_jobs[number]
                effect = effects.predict(bank_job.job, bank_job.table_scale)
                if effect.distance <= effects.max_distance:
                    job_errors = np.abs(residuals[rows.job == number] - effect.log_offset)
                    errors += list(job_errors / np.hypot(effect.sd, residual_sd))
        calibration_factor = (
            max(1.0, float(np.quantile(errors, _COVERAGE)) / _NORMAL_QUANTILE) if errors else _UNCALIBRATED
        )

        return cls(
            parameters=parameters,
            job_effects=learn_effects(rows, parameters),
            shape_sd=shape_sd,
            noise_sd=noise_sd,
            corrected_noise_sd=corrected_noise_sd,
            calibration_factor=calibration_factor,
            ranges=_ranges(trials, rows),
            trials=len(rows.job),
            flagged=(*flagged, *unsteady(trials), *implausible_cpu_use(trials)),
        )

    def curve(self, job: Job, table_scale: float = 1.0) -> JobCurve:
        """Return the predicted curve of a job, with the share `table_scale` of its rows.

        Raises NotEnoughDataError for a job that is unlike all measured jobs.
        """
        reason = _unsupported(job)
        if reason:
            raise NotEnoughDataError(f"The prior cannot predict {job.name}: {reason}.", 3)
        effect = self.job_effects.predict(job, table_scale)
        if effect.distance > self.job_effects.max_distance:
            raise NotEnoughDataError(
                f"{job.name} is unlike the jobs that the prior was learned from: its distance to the most similar "
                f"one, {effect.nearest}, is {effect.distance:.1f}, mostly in {effect.axis}; "
                f"up to {self.job_effects.max_distance:.1f} is supported.",
                3,
            )
        return JobCurve(
            job=job,
            parameters=self.parameters,
            effect=effect,
            max_distance=self.job_effects.max_distance,
            shape_sd=self.shape_sd,
            noise_sd=self.noise_sd,
            corrected_noise_sd=self.corrected_noise_sd,
            calibration_factor=self.calibration_factor,
            ranges=self.ranges,
            trials=self.trials,
            source=self.source,
        )

    def to_json(self) -> str:
        """Return the prior as JSON that `from_json` reads."""
        record = {
            "version": VERSION,
            "physics": mechanistic.as_record(self.parameters),
            "experience": self.job_effects.as_record(),
            "form_sd": self.shape_sd,
            "noise_sd": self.noise_sd,
            "corrected_noise_sd": self.corrected_noise_sd,
            "widen": self.calibration_factor,
            "trials": self.trials,
            "ranges": {axis: list(ends) for axis, ends in self.ranges.items()},
            "flagged": list(self.flagged),
        }
        return json.dumps(record | {"sha256": _digest(record)}, indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the prior as JSON. Raises StoreError where the file cannot be written."""
        try:
            write_text_atomically(Path(absolute(path)), self.to_json())
        except OSError as error:
            raise StoreError(
                f"Cannot write the prior to {path}: {error}.", "Check the path and its permissions."
            ) from None

    @classmethod
    def load(cls, path: str | Path | None = None) -> Self:
        """Read a prior, by default the shipped one.

        Raises StoreError when the file is missing, damaged or of another version.
        """
        path = SHIPPED if path is None else Path(absolute(path))
        try:
            text = read_file(path, MAX_JSON_MIB).decode()
        except FileNotFoundError:
            raise StoreError(f"There is no prior at {path}.", _LEARN) from None
        except (OSError, ValueError) as error:
            raise StoreError(f"Cannot read the prior {path}: {error}.", _LEARN) from None
        return cls.from_json(text, "the shipped prior" if path == SHIPPED else str(path))

    @classmethod
    def from_json(cls, text: str, name: str) -> Self:
        """Read what `to_json` wrote; errors call it `name`.

        Raises StoreError when it is damaged or of another version.
        """
        try:
            record = loads(text)
        except ValueError as error:
            raise StoreError(f"Cannot read the prior {name}: {error}.", _LEARN) from None
        version = record.get("version") if isinstance(record, dict) else None
        if version != VERSION:
            raise StoreError(f"{name} is not a prior of version {VERSION}: its version is {version!r}.", _LEARN)
        if record.pop("sha256", None) != _digest(record):
            raise StoreError(f"The prior {name} is damaged: its checksum does not match.", _LEARN)
        try:
            prior = cls(
                parameters=mechanistic.from_record(record["physics"]),
                job_effects=job_effects.from_record(record["experience"]),
                shape_sd=_finite(record["form_sd"]),
                noise_sd=_finite(record["noise_sd"]),
                corrected_noise_sd=_finite(record.get("corrected_noise_sd", record["noise_sd"])),
                calibration_factor=_finite(record["widen"]),
                ranges={str(axis): (_finite(ends[0]), _finite(ends[1])) for axis, ends in record["ranges"].items()},
                trials=int(record["trials"]),
                flagged=tuple(map(str, record["flagged"])),
                source=name,
            )
            prior._check()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise StoreError(f"The prior {name} is damaged: {error!r}.", _LEARN) from None
        return prior

    def _check(self) -> None:
        """Raise ValueError for numbers that are not finite or not positive, or columns of different lengths."""
        effects = self.job_effects
        positive = np.array([*effects.hyperparameters, effects.max_distance, *effects.scale])
        of_jobs = (effects.features, effects.log_offsets, effects.job_sd, effects.noise)
        numbers = (self.parameters, effects.centre, positive, *of_jobs)
        if not all(np.isfinite(column).all() for column in numbers) or not (positive > 0).all():
            raise ValueError("a number is not finite, or not above 0")
        if len({len(column) for column in (effects.names, effects.bases, effects.hashes, *of_jobs)}) != 1:
            raise ValueError("columns of jobs differ in length")


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _check_enough(trials: int, bases: int) -> None:
    if trials >= MIN_TRIALS and bases >= MIN_BASES:
        return
    raise NotEnoughDataError(
        f"{format_count(trials, 'trial')} of {format_count(bases, 'base shape')} cannot make a prior.",
        max(MIN_TRIALS - trials, MIN_BASES - bases),
        "trial" if trials < MIN_TRIALS else "base shape",
    )


def _unsupported(job: Job) -> str:
    """Return why no prior can predict a job; empty for one that may be predicted."""
    if job.command:
        return "it runs its own code"
    if not job.has_ps:
        return "it has no PS"
    if beyond := job.model.beyond_engine:
        return f"it has {beyond}, and all measured jobs train float32 tables with model.optimizer"
    if job.training.device != "cpu" or job.training.embedding_device != "cpu":
        return "it trains on a GPU, and all measured jobs train on CPUs"
    return ""


def _job_offsets(rows: PriorRows, parameters: Floats) -> tuple[NDArray[np.int64], Floats, float]:
    """Return the job numbers (j,), the log offset of each from the model (j,), and the sd of trials about these."""
    residuals = rows.observations.log_rates - mechanistic.log_rates(parameters, rows.configs)
    numbers, group = np.unique(rows.job, return_inverse=True)
    offsets = np.bincount(group, residuals) / np.bincount(group)
    freedom = max(len(residuals) - len(numbers), 1)
    return numbers, offsets, float(np.sqrt(((residuals - offsets[group]) ** 2).sum() / freedom))


def _series_per_job(rows: PriorRows, trials: Sequence[Trial]) -> Floats:
    """Return in how many series each job (j,) was measured."""
    series = [{trials[i].series or str(i) for i in rows.trial[rows.job == number]} for number in np.unique(rows.job)]
    return np.array([float(len(names)) for names in series])


def _folds(base_of_row: NDArray[np.str_]) -> list[NDArray[np.bool_]]:
    """Return the rows that are left out together: all rows of some base shapes, in at most ten folds."""
    bases = list(dict.fromkeys(base_of_row.tolist()))
    return [np.isin(base_of_row, bases[start::_MAX_FOLDS]) for start in range(min(_MAX_FOLDS, len(bases)))]


def _thinned(rows: PriorRows) -> PriorRows:
    step = -(-len(rows.job) // _MAX_ROWS_PER_FOLD)
    return rows.pick(np.arange(0, len(rows.job), step))


def _ranges(trials: Sequence[Trial], rows: PriorRows) -> dict[str, tuple[float, float]]:
    """Return the range of each axis that at least two jobs reached, since a single job may be wrong."""
    columns = as_columns([trials[i] for i in rows.trial], ALLOCATION_AXES)
    known = {axis: column for axis, column in columns.items() if np.isfinite(column).any()}
    return {
        axis: (-_second_largest(-column, rows.job), _second_largest(column, rows.job)) for axis, column in known.items()
    }


def _second_largest(column: Floats, job: NDArray[np.int64]) -> float:
    """Return the second largest of the maxima of the jobs, or the only one."""
    by_job = [column[job == number] for number in np.unique(job)]
    maxima = sorted(float(np.nanmax(values)) for values in by_job if np.isfinite(values).any())
    return maxima[-2] if len(maxima) > 1 else maxima[-1]


def _finite(number: Any) -> float:
    value = float(number)
    if not 0 <= value < np.inf:
        raise ValueError(f"{number!r} is not a finite number from 0 up")
    return value
