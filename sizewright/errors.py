"""The exceptions of the package, for every mistake of a user and every failure of a host::

    SizewrightError                    exit code 1
    ├── InputError                     a file, value or option that cannot be used
    │   ├── JobError                   job or cluster file: missing, malformed, unknown key, impossible bound
    │   │   └── RecordError            a record created in Python with invalid values (also a ValueError)
    │   ├── ForbiddenError             a platform does not allow the request: no login, permission or quota
    │   ├── ClickLogError              click log: missing, empty, too many broken rows
    │   ├── StoreError                 trial store, trial file, bank or prior that cannot be read or written
    │   │   └── NoTrialsError          there is no trial store yet
    │   ├── NotEnoughDataError         too few trials for a curve (exit code 4)
    │   └── UnsupportedError           an executor does not support the operation
    ├── RegistryError                  the MLflow server does not answer, or its contents cannot be trusted
    │   └── UnusableVersionError       a registered prior that was modified or deleted, or is of another version
    ├── MissingExtraError              an optional dependency is not installed
    ├── EngineError                    Ray, the host or the platform failed or did not answer
    │   ├── EngineDiedError            Ray itself has ended: no further trial can run
    │   └── LimitError                 cores or memory of a replica cannot be limited as asked
    └── TrialError                     a trial ended without a measurement
        ├── ReplicaDiedError           a replica's process died (`oom` tells whether memory killed it)
        ├── TrialVoidError             measured, but against the rules (CPU above its quota, drift)
        └── TrialTimeoutError          no step finished in the time given
            └── NoReportsError         a command does not say how many samples it trained

Results that are not failures (`not_enough_data`, `infeasible`) are values of
`Recommendation.status`, not exceptions. Deprecated names warn with
`SizewrightDeprecationWarning`.
"""

from __future__ import annotations

from typing import Literal

from sizewright.redaction import shown

__all__ = [
    "ClickLogError",
    "EngineDiedError",
    "EngineError",
    "ForbiddenError",
    "InputError",
    "JobError",
    "LimitError",
    "MissingExtraError",
    "NoReportsError",
    "NoTrialsError",
    "NotEnoughDataError",
    "RecordError",
    "RegistryError",
    "ReplicaDiedError",
    "SizewrightDeprecationWarning",
    "SizewrightError",
    "StoreError",
    "TrialError",
    "TrialTimeoutError",
    "TrialVoidError",
    "UnsupportedError",
    "UnusableVersionError",
]


class SizewrightError(Exception):
    """Base of all errors; `message` is one sentence, `remedy` says what to do.

    Passwords of URLs and terminal control characters are removed from both.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = shown(message)
        self.remedy = shown(remedy)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all attributes when the error is sent between processes."""
        return _remake, (type(self), self.message, vars(self))


def _remake(kind: type[SizewrightError], message: str, state: dict[str, object]) -> SizewrightError:
    error = kind.__new__(kind, message)
    vars(error).update(state)
    return error


class InputError(SizewrightError):
    """A file, a value or an option that cannot be used."""


class JobError(InputError):
    """A job or cluster file that is missing, malformed or impossible."""


class RecordError(JobError, ValueError):
    """A record that is created in Python with invalid values."""


class ForbiddenError(InputError):
    """A platform does not allow the request: the user is not logged in, or has no permission or quota for it."""


class ClickLogError(InputError):
    """A click log that is missing, empty or broken beyond the allowed share."""


class StoreError(InputError):
    """A trial store or trial file that cannot be read or written."""


class NoTrialsError(StoreError):
    """There is no trial store yet."""


class NotEnoughDataError(InputError):
    """There are too few trials to fit a curve: `missing` more distinct allocations, or items named `of`, are needed."""

    exit_code = 4

    def __init__(self, message: str, missing: int, of: str = "distinct allocation") -> None:
        super().__init__(message, f"Measure {missing} more {of}{'s' * (missing > 1)}.")
        self.missing = missing


class UnsupportedError(InputError):
    """An executor does not support the operation; its `capabilities` say so beforehand."""


class RegistryError(SizewrightError):
    """The model registry does not answer, or its contents cannot be trusted."""


class UnusableVersionError(RegistryError):
    """A registered prior that was modified or deleted, or was written by another version of Sizewright."""


class MissingExtraError(SizewrightError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(f"This needs {module}, which is not installed.", f"Run: pip install 'sizewright[{extra}]'")


class EngineError(SizewrightError):
    """Ray, the host or the platform failed or did not answer."""


class EngineDiedError(EngineError):
    """Ray itself has ended: no further trial can run."""


class LimitError(EngineError):
    """Cores or memory of a replica cannot be limited as asked."""


class TrialError(SizewrightError):
    """A trial ended without a measurement."""


class ReplicaDiedError(TrialError):
    """A replica's process died; `oom_memory` tells which memory ran out, if any: `host` or `device`."""

    def __init__(
        self, message: str, remedy: str = "", *, oom: bool = False, oom_memory: Literal["host", "device"] | None = None
    ) -> None:
        super().__init__(message, remedy)
        self.oom_memory = "host" if oom else oom_memory

    @property
    def oom(self) -> bool:
        """Return whether memory ran out."""
        return self.oom_memory is not None


class TrialVoidError(TrialError):
    """A trial that was measured against the rules and must not be used."""


class TrialTimeoutError(TrialError):
    """No steady step finished in the time given."""


class NoReportsError(TrialTimeoutError):
    """A command does not say how many samples it trained; `recurs` tells whether other allocations cannot help."""

    def __init__(self, message: str, remedy: str = "", *, recurs: bool = False) -> None:
        super().__init__(message, remedy)
        self.recurs = recurs


class SizewrightDeprecationWarning(FutureWarning):
    """A deprecated name, option or field of a file: since when, until when, and its replacement.

    It is shown by default, since Sizewright is mostly used from scripts and notebooks.
    """
