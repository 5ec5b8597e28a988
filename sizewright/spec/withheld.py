"""Withhold secrets and the values of variables when a command is written into records.

Records of jobs are written into stores, plans, logs and MLflow. There a plain setting is replaced by a digest, which
still distinguishes two jobs, and a possible secret by `hidden`. When the command starts, the values are taken from the
environment of the user who starts it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import PlainSerializer

from sizewright.errors import InputError
from sizewright.redaction import HIDDEN, has_hidden, hide_in_words, may_be_secret
from sizewright.spec._paths import without_folders

_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
_DIGEST = re.compile(rf"sha256:[0-9a-f]{{8}}(?:{_PLACEHOLDER.pattern})*")


def written_value(name: str, value: str) -> str:
    """Return the replacement for the value of a variable: a digest, followed by its placeholders, or `hidden`."""
    if is_withheld(value):
        return value
    if may_be_secret(name, value):
        return HIDDEN
    digest = hashlib.sha256(f"{name}={without_folders(value)}".encode()).hexdigest()[:8]
    return "".join([f"sha256:{digest}", *_PLACEHOLDER.findall(value)])


def written_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with `<hidden>` in place of what may be a secret."""
    return tuple(hide_in_words(words))


Words = Annotated[tuple[str, ...], PlainSerializer(written_words, return_type=tuple[str, ...])]
"""The words of a command in a record."""


def is_withheld(value: str) -> bool:
    """Return whether a value was withheld when it was written, so that it has to come from the environment."""
    return value == HIDDEN or f"://{HIDDEN}@" in value or bool(_DIGEST.fullmatch(value))


def check_words(field: str, words: Sequence[str]) -> None:
    """Raise InputError for words from which a secret was removed, since no command can start with them."""
    if has_hidden(words):
        raise InputError(
            f"The words of {field} contained a secret, which was not stored ({' '.join(words)[:200]}).",
            "Start from the job file, or have the code read the secret from a variable of command.env.",
        )


def split(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the plain settings of a command's environment, and the possible secrets."""
    secret = {name: value for name, value in env.items() if not _DIGEST.fullmatch(written_value(name, value))}
    return {name: value for name, value in env.items() if name not in secret}, secret


def with_values(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with their values; withheld ones are taken from `environ`.

    Raises InputError when a value is missing there, or when a plain setting does not match its digest.
    """
    values = {name: environ[name] if _fits(name, value, environ) else value for name, value in env.items()}
    withheld = [name for name, value in values.items() if is_withheld(value)]
    if missing := [name for name in withheld if name not in environ]:
        raise InputError(
            f"Values of command.env are not stored, and the environment does not set {', '.join(missing)}.",
            f"Set them and repeat the command: export {' '.join(f'{name}=...' for name in missing)}",
        )
    if withheld:
        raise InputError(
            f"{withheld[0]} has another value in the environment than in the original job file.",
            f"Set {withheld[0]} to that value and repeat the command, or start from the job file.",
        )
    return values


def _fits(name: str, value: str, environ: Mapping[str, str]) -> bool:
    if name not in environ or not is_withheld(value):
        return False
    return not _DIGEST.fullmatch(value) or written_value(name, environ[name]) == value
