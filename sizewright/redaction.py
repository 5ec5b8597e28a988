"""What a text loses before anybody sees it: passwords in URLs, and characters that would steer a terminal."""

from __future__ import annotations

import re

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
    """Return the text with every password of its URLs replaced by `***`.

    >>> redacted("http://alice:s3cret@prometheus:9090 refuses")
    'http://alice:***@prometheus:9090 refuses'
    """
    return _PARAMETER.sub(r"\g<name>***", _USER_INFO.sub(r"\g<user>:***@", text)) if "://" in text else text


def may_be_secret(name: str, value: str) -> bool:
    """Return whether a variable may hold a secret, by its name or by the form of its value.

    >>> may_be_secret("GITHUB_PAT", "x"), may_be_secret("HF", "hf_" + 30 * "aB3"), may_be_secret("EPOCHS", "3")
    (True, True, False)
    """
    words = set(_WORD.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))
    joined = "_".join(_WORD.findall(name.lower()))
    return bool(words & _SECRET_WORDS) or bool(_SECRET_NAME.search(joined)) or _looks_random(value)


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
_KNOWN_FORM = re.compile(
    r"-----BEGIN |^(?:AKIA|ASIA)[A-Z0-9]{12,}|^gh[pousr]_|^github_pat_|^glpat-|^xox[a-z]-|^sk-|^hf_|^eyJ[\w-]+\.|^AIza"
    r"|\bbearer\s+\S|://[^/@\s]+:[^/@\s]+@",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/_=]{24,}|[0-9a-f]{32,}")
_MIXED = 10
