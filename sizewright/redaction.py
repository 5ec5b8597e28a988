"""What a text loses before anybody sees it: secrets, and characters that would steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "hidden"
"""What stands in place of the value of a variable that may be a secret."""
_MARK = "***"
_USER_INFO = re.compile(
    r"(?<=://)(?P<user>[^/?#\s:@]*):"
    r"(?:[^/?#\s]*@"  # up to the last @ of the authority
    r"|(?!\d*(?:[/?#\s]|$))\S*@)"  # or a password with a slash in it, where no port follows the colon
)
_PARAMETER = re.compile(
    r"(?P<name>[?&;](?:[a-z0-9_.-]*(?:password|passwd|secret|token)|pwd|api_?key|auth|sig|signature)=)[^&;#\s'\"]+",
    re.IGNORECASE,
)

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and line feed, and those that turn the direction of text."""


def shown(text: str) -> str:
    r"""Return the text as it may be printed, logged or put into a page.

    >>> shown("host \x1b[31mred\x1b[0m")
    'host [31mred[0m'
    """
    return redacted(_STEERING.sub("", text))


def steers(text: str) -> bool:
    """Return whether a text holds characters that would steer a terminal."""
    return bool(_STEERING.search(text))


def redacted(text: str) -> str:
    """Return the text with `***` in place of what may be a secret in it.

    That is the password of a URL, the value of a flag, a variable or a quoted key that is named as secrets are, what
    follows `bearer`, and words that begin as the keys of known services do. `$NAME` is no value.

    >>> redacted("http://alice:s3cret@prometheus:9090 refuses")
    'http://alice:***@prometheus:9090 refuses'
    >>> redacted("python train.py --api-key=abc --epochs=3")
    'python train.py --api-key=*** --epochs=3'
    """
    if "://" in text:
        text = _PARAMETER.sub(rf"\g<name>{_MARK}", _USER_INFO.sub(rf"\g<user>:{_MARK}@", text))
    for pattern in (_ASSIGNED, _FLAGGED, _QUOTED):
        text = pattern.sub(_without_value, text)
    return _KNOWN_WORD.sub(_MARK, _BEARER.sub(rf"\g<before>{_MARK}", text))


def hide_in_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command with `***` in place of what may be a secret in them."""
    before = ""
    for word in words:
        yield _MARK if _FLAG.fullmatch(before) and may_be_secret(before, "") and _VALUE.match(word) else redacted(word)
        before = word


def has_hidden(words: Sequence[str]) -> bool:
    """Return whether words were written down without a secret."""
    return any(_MARK in word for word in words)


def _without_value(match: re.Match[str]) -> str:
    if not may_be_secret(match["name"], ""):
        return match[0]
    return match[0][: match.start("value") - match.start()] + _MARK + match[0][match.end("value") - match.start() :]


def may_be_secret(name: str, value: str) -> bool:
    """Return whether a variable may hold a secret, by its name or by the form of its value.

    >>> may_be_secret("GITHUB_PAT", "x"), may_be_secret("HF", "hf_" + 30 * "aB3"), may_be_secret("EPOCHS", "3")
    (True, True, False)
    """
    words = set(_WORD.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))
    joined = "_".join(_WORD.findall(name.lower()))
    named = bool(words & _SECRET_WORDS) or bool(_SECRET_NAME.search(joined))
    return (named and not _ABOUT_SECRETS.search(joined)) or _looks_random(value)


def _looks_random(value: str) -> bool:
    """Whether a value has the form of a key: a known beginning, or one long word of letters and digits, well mixed."""
    if _KNOWN_FORM.search(value):
        return True
    return bool(_ONE_WORD.fullmatch(value)) and len(set(value)) >= _MIXED


_WORD = re.compile(r"[a-z0-9]+")
_SECRET_WORDS = frozenset(
    {
        *("auth", "bearer", "cert", "certificate", "cookie", "cookies", "cred", "creds", "dsn", "jwt", "license"),
        *("oauth", "oauth2", "pass", "passcode", "passphrase", "pat", "pem", "pgpassword", "pin", "psk", "pwd"),
        *("salt", "sas", "session", "signature", "webhook"),
    }
)
_SECRET_NAME = re.compile(
    r"passw|secret|credential|(?:^|_)tokens?(?:_|$)|private"
    r"|(?:api|access|account|admin|auth|aws|azure|client|crypt\w*|deploy|encryption|gcp|hmac|host|kms|license|master|pgp"
    r"|gpg|rsa|server|service|shared|signing|ssh|ssl|storage|tls|wandb|write|read)_?key(?:_|$)"
    r"|conn(?:ection)?_?str(?:ing)?|(?:database|db|redis|mongo|mongodb|amqp|broker|postgres|mysql|sentry|slack)_ur[il]"
)
_ABOUT_SECRETS = re.compile(r"_(?:file|path|dir|folder|limit|length|count|ttl)$|^(?:max|min|num|n)_(?:\w+_)?tokens?$")
_KNOWN_FORM = re.compile(
    r"-----BEGIN |^(?:AKIA|ASIA)[A-Z0-9]{12,}|^gh[pousr]_|^github_pat_|^glpat-|^xox[a-z]-|^sk-|^hf_|^eyJ[\w-]+\.|^AIza"
    r"|\bbearer\s+\S|://[^/@\s]+:[^/@\s]+@",
    re.IGNORECASE,
)
_KNOWN_WORD = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{12,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|xox[a-z]-[\w-]{8,}"
    r"|sk-[\w-]{16,}|hf_\w{16,}|eyJ[\w-]{8,}\.[\w.-]+|AIza[\w-]{16,})"
)
_VALUE = re.compile(r"'[^']+'|\"[^\"]+\"|(?![-$])(?=[^\s'\"]*\w)[^\s'\"]+")
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
_ASSIGNED = re.compile(rf"(?<![\w.$?&;/-])(?P<name>-{{0,2}}[A-Za-z_][\w.-]*)=(?P<value>{_VALUE.pattern})")
_FLAGGED = re.compile(rf"(?<![\w-])(?P<name>{_FLAG.pattern})(?:[ \t]+|['\"], ?)(?P<value>{_VALUE.pattern})")
_QUOTED = re.compile(r"(?P<q>['\"])(?P<name>[\w.-]+)(?P=q)\s*:\s*(?P<w>['\"])(?P<value>[^'\"]+)(?P=w)")
_BEARER = re.compile(
    r"(?P<before>\bauthorization['\"]?\s*[:=]\s*['\"]?(?:\w+\s+)?|\bbearer\s+)[^\s$'\"*]+", re.IGNORECASE
)
_ONE_WORD = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/_=]{24,}|[0-9a-f]{32,}")
_MIXED = 10
