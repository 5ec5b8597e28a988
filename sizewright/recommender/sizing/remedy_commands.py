"""The commands that remedies name, with the job file and the options of whoever asked."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from sizewright.redaction import redacted

Options = tuple[tuple[str, str], ...]
"""Names of options with their values; a flag has an empty value, and an option may be repeated."""

_PROFILE_OPTIONS = ("--store", "--data")
_IMPORT_OPTIONS = ("--store", "--map")
_EXPORT_OPTIONS = ("--store",)
_RECOMMEND_OPTIONS = (
    "--store", "--trials", "--map", "--cluster", "--machine", "--spot", "--on-demand", "--data", "--samples",
    "--objective", "--deadline", "--extrapolate",
)  # fmt: skip


class RemedyCommands(NamedTuple):
    """The job file and the options that a command of a remedy repeats, so that it acts on the same job and store."""

    job: str = "JOB"
    options: Options = ()

    def profile(self, trials: int) -> str:
        """Return the command that measures trials."""
        return self._command(f"profile {shlex.quote(self.job)}", _PROFILE_OPTIONS, f"--trials {trials}")

    def recommend(self, prior: str) -> str:
        """Return the command that recommends with a prior."""
        return self._command(f"recommend {shlex.quote(self.job)}", _RECOMMEND_OPTIONS, f"--prior {shlex.quote(prior)}")

    def import_trials(self, file: str = "FILE") -> str:
        """Return the command that imports trials of the job from a file."""
        return self._command(f"trials import {file} --job {shlex.quote(self.job)}", _IMPORT_OPTIONS)

    def export_trials(self, file: str, job: str) -> str:
        """Return the command that exports trials of another job to a file."""
        return self._command(f"trials export {file} --job {job}", _EXPORT_OPTIONS)

    def _command(self, verb: str, names: tuple[str, ...], last: str = "") -> str:
        repeated = [
            f"{name} {shlex.quote(redacted(value))}" if value else name for name, value in self.options if name in names
        ]
        return " ".join(filter(None, ("sizewright", verb, *repeated, last)))


DEFAULT_COMMANDS = RemedyCommands()
