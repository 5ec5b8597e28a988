"""How a command is written down: its variables by their names, and its words without what may be a secret.

A record of a job goes into stores, plans, logs and MLflow. There a plain setting stands as a digest, by which two jobs
can still be told apart, and what may be a secret as `hidden`. Where the command starts, the values come from the
environment of whoever starts it.
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
    """Return what is written down in place of the value of a variable: a digest, and the placeholders in it."""
    if is_withheld(value):
        return value
    if may_be_secret(name, value):
        return HIDDEN
    digest = hashlib.sha256(f"{name}={without_folders(value)}".encode()).hexdigest()[:8]
    return "".join([f"sha256:{digest}", *_PLACEHOLDER.findall(value)])


def written_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command as they are written down: `<hidden>` stands in place of what may be a secret."""
    return tuple(hide_in_words(words))


Words = Annotated[tuple[str, ...], PlainSerializer(written_words, return_type=tuple[str, ...])]
"""Words of a command in a record."""


def is_withheld(value: str) -> bool:
    """Return whether a value was written down, so that it has to come from somewhere else."""
    return value == HIDDEN or f"://{HIDDEN}@" in value or bool(_DIGEST.fullmatch(value))


def check_words(field: str, words: Sequence[str]) -> None:
    """Raise InputError for words that were written down without a secret, so that nothing can start with them."""
    if has_hidden(words):
        raise InputError(
            f"A secret was in the words of {field}, and it is not written down ({' '.join(words)[:200]}).",
            "Start from the job file, or have the code read the secret from a variable of command.env.",
        )


def split(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the plain settings of a command's environment, and what may be a secret."""
    secret = {name: value for name, value in env.items() if not _DIGEST.fullmatch(written_value(name, value))}
    return {name: value for name, value in env.items() if name not in secret}, secret


def with_values(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with all their values, those that are withheld taken from `environ`.

    Raises InputError where it lacks one, or has another value of a plain setting than the one that was written down.
    """
    made = {name: environ[name] if _fits(name, value, environ) else value for name, value in env.items()}
    withheld = [name for name, value in made.items() if is_withheld(value)]
    if missing := [name for name in withheld if name not in environ]:
        raise InputError(
            f"Values of command.env are not written down, and the environment lacks {', '.join(missing)}.",
            f"Set what is missing and repeat the command: export {' '.join(f'{name}=...' for name in missing)}",
        )
    if withheld:
        raise InputError(
            f"{withheld[0]} has another value in the environment than in the job file that this was made of.",
            f"Set {withheld[0]} to that value and repeat the command, or start from the job file.",
        )
    return made


def _fits(name: str, value: str, environ: Mapping[str, str]) -> bool:
    if name not in environ or not is_withheld(value):
        return False
    return not _DIGEST.fullmatch(value) or written_value(name, environ[name]) == value
