"""Remove secrets and terminal control characters from texts before they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "hidden"
"""Replacement for the value of a variable that may be a secret."""
_MARK, _WORD_MARK = "***", f"<{HIDDEN}>"

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and characters that change the direction of text."""


def shown(text: str) -> str:
    r"""Return the text without secrets and control characters, safe to print, log or put into a page.

    >>> shown("host \x1b[31mred\x1b[0m")
    'host [31mred[0m'
    """
    return redacted(_CONTROL_CHARACTERS.sub("", text))


def steers(text: str) -> bool:
    """Return whether a text contains terminal control characters."""
    return bool(_CONTROL_CHARACTERS.search(text))


def redacted(text: str, mark: str = _MARK) -> str:
    """Return the text with everything that may be a secret replaced by a mark.

    Secrets are the password of a URL, the value of a parameter, flag, variable or key whose name suggests a secret, the
    text after `bearer`, private keys, and words with the prefix of a known service's keys. `$NAME` is not a value.

    >>> redacted("http://alice:s3cret@prometheus:9090 refuses")
    'http://alice:***@prometheus:9090 refuses'
    >>> redacted("python train.py --api-key=abc --epochs=3")
    'python train.py --api-key=*** --epochs=3'
    """

    def without_value(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"").rstrip(".,;:!?)")
        is_secret = _is_secret_in_prose if match.groupdict().get("q") == "" else _is_secret
        if not is_secret(match["name"], value):
            return match[0]
        before, _, after = match[0].rpartition(value)
        return before + mark + after

    text = without_passwords(text, mark)
    for pattern in (_PARAMETER, _ASSIGNED, _FLAGGED, _NAMED, _KEYED):
        text = pattern.sub(without_value, text)
    for pattern in (_CURL_USER, _TOKEN_USER, _HOOK):
        text = pattern.sub(rf"\g<before>{mark}", text)
    text = _PRIVATE_KEY.sub(mark, _AUTHORIZED.sub(rf"\g<before>{mark}", text))
    return _KNOWN_WORD.sub(mark, text)


def without_passwords(text: str, mark: str = _MARK) -> str:
    """Return the text with the passwords of its URLs replaced by a mark."""
    return _USER_INFO.sub(rf"\g<user>:{mark}@", text) if "@" in text else text


def hide_in_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command with everything that may be a secret replaced by `<hidden>`."""
    previous, is_curl = "", False
    for word in words:
        is_curl |= word.rpartition("/")[2] == "curl"
        if is_curl and previous in ("-u", "--user") and not word.startswith("$"):
            user, colon, password = word.partition(":")
            word = f"{user}{colon}{_WORD_MARK}" if password else word
        is_value = _FLAG.fullmatch(previous) and _VALUE.match(word) and _is_secret(previous, word)
        yield _WORD_MARK if is_value else redacted(word, _WORD_MARK)
        previous = word


def has_hidden(words: Sequence[str]) -> bool:
    """Return whether a secret was removed from the words of a command."""
    return any(_WORD_MARK in word for word in words)


def may_be_secret(name: str, value: str) -> bool:
    """Return whether a variable may hold a secret, judged by its name and by the form of its value.

    >>> may_be_secret("GITHUB_PAT", "x"), may_be_secret("HF", "hf_" + 30 * "aB3"), may_be_secret("EPOCHS", "3")
    (True, True, False)
    """
    return _is_secret(name, value) or redacted(value) != value or bool(_ONE_WORD.fullmatch(value))


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret, judged by its name.

    Some names are so common that a short number, a yes or a no under them is not a secret; for the most common ones
    neither is a word or the path of a file.
    """
    words = _words_of(name)
    if not words or words[-1] in _ABOUT_SECRETS:
        return False
    if _PATH.fullmatch(value) and not _NO_PATHS & {*words}:
        return False
    if _is_always_secret(words):
        return True
    if _PLAIN.fullmatch(value):
        return False
    return words[-1] in _USUALLY or (("token" in words or words[-1] in _OFTEN) and not _is_word(value))


def _is_always_secret(words: Sequence[str]) -> bool:
    return bool({*words} & _ALWAYS or _ALWAYS_NAME.search("_".join(words)))


def _is_secret_in_prose(name: str, value: str) -> bool:
    """Return whether `name: value` contains a secret, where it may be part of a sentence."""
    words = _words_of(name)
    if _is_secret(name, value):
        return len(words) > 1 or _is_always_secret(words) or (len(value) > 5 and not _is_word(value))
    return False


def _is_word(value: str) -> bool:
    """Return whether a value is a number, or one or several words, such as MIT or user_id."""
    return value.isdecimal() or (len(value) > 2 and bool(_PLAIN_WORD.fullmatch(value)))


def _words_of(name: str) -> list[str]:
    name = name.removeprefix("-D") if name[2:3].islower() else name  # a property of Java
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return [word.rstrip("0123456789") for word in _WORD.findall(parted) if not word.isdigit()]


_WORD = re.compile(r"[a-z0-9]+")
_ALWAYS = frozenset((
    "bearer", "cred", "creds", "dsn", "jwt", "oauth", "passcode", "passphrase", "pem", "pgpass", "pgpassword", "psk",
    "pw", "pwd", "sas", "webhook",
))  # fmt: skip
_ALWAYS_NAME = re.compile(
    r"passw|secret|credential|priv(?:ate)?_?key"
    r"|(?:api|access|account|admin|auth|aws|azure|client|crypt\w*|deploy|encryption|gcp|hmac|kms|license|master|pgp"
    r"|gpg|rsa|server|service|shared|signing|ssh|ssl|storage|tls|wandb)_?key(?:_|$)"
    r"|conn(?:ection)?_?str(?:ing)?|(?:database|db|redis|mongo|mongodb|amqp|broker|postgres|mysql|sentry|slack)_ur[il]"
)
_USUALLY = frozenset(("cookie", "cookies", "otp", "pass", "pat", "sig", "signature", "token"))
_OFTEN = frozenset(("auth", "cert", "certificate", "key", "license", "pin", "salt", "session", "tokens"))
"""Last words of the names of secrets, and of many other variables."""
_NO_PATHS = frozenset(("password", "passwd", "passphrase", "passcode", "pw", "secret", "token"))
"""Words of names whose values are never paths."""
_ABOUT_SECRETS = frozenset(("file", "path", "dir", "folder", "limit", "length", "count", "ttl", "name"))
"""Last words of names that give a place or an amount."""
_PLAIN = re.compile(r"[-+]?\d{1,3}(?:\.\d*)?|true|false|yes|no|on|off|none|null|auto", re.IGNORECASE)
_PLAIN_WORD = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[_.-](?:[A-Z]?[a-z]+|[A-Z]+))*")
_PATH = re.compile(r"[~.]{0,2}/[\w./-]*")
_ONE_WORD = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/_=]{24,}|[0-9a-f]{32,}")
"""A long word with mixed letters and digits."""

_QUOTED = r"'[^']+'|\"[^\"]+\""
_BARE = r"(?=[^\s'\"]*\w)[^\s'\"]*[^\s'\".,;:!?)\]}]"
_VALUE = re.compile(rf"{_QUOTED}|(?![-$]){_BARE}")
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
_USER_INFO = re.compile(
    r"(?:(?<=://)|(?<=:\\/\\/))(?P<user>[^/?#\s:@]*):"
    r"(?!PASSWORD@)"  # a placeholder in a message
    r"(?:[^/?#\s]*@"  # up to the last @ of the authority
    r"|(?!\d*(?:[/?#\s]|$))\S*@)"  # or a password with a slash in it, where no port follows the colon
)
_PARAMETER = re.compile(r"(?<=[?&;])(?P<name>[\w.-]+)=(?P<value>[^&;#\s'\"]+)")
_ASSIGNED = re.compile(
    rf"(?<![\w.$?&;/-])(?:--?[A-Za-z][\w-]*=)?(?P<name>-{{0,2}}[A-Za-z_][\w.-]*)(?:=| = )"
    rf"(?P<value>{_QUOTED}|(?!\$){_BARE})"
)
_FLAGGED = re.compile(rf"(?<![\w-])(?P<name>{_FLAG.pattern})(?:[ \t]+|['\"], ?)(?P<value>{_VALUE.pattern})")
_KEYED = re.compile(
    rf"(?<![\w.-])(?P<q>['\"]?)(?P<name>[A-Za-z][\w.-]*)(?P=q)\s*:\s*(?P<value>{_QUOTED}|(?=\S*\w)[^\s'\",}}]+)"
)
_NAMED = re.compile(  # an environment variable in a pod
    rf"\bname['\"]?\s*:\s*['\"]?(?P<name>[A-Za-z][\w.-]*)['\"]?,?\s*['\"]?value['\"]?\s*:\s*"
    rf"(?P<value>{_QUOTED}|(?=\S*\w)[^\s'\",}}]+)"
)
_TOKEN_USER = re.compile(r"(?P<before>\bhttps?:(?://|\\/\\/))(?=[^@/?#\s]*\d)[\w.~%+-]{8,}(?=@)")
_HOOK = re.compile(r"(?P<before>\b(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)[^\s'\"]+")
_AUTHORIZED = re.compile(
    r"(?P<before>\bauthorization['\"]?\s*[:=]\s*['\"]?(?:\w+\s+)?|\bbearer\s+(?=\S*\d|\S{16}))[^\s$'\"*<]+",
    re.IGNORECASE,
)
_CURL_USER = re.compile(r"(?P<before>\bcurl\b[^|;&\n]*?\s(?:-u|--user)[ =]?['\"]?[^\s:$'\"]+:)[^\s$'\"]+")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\w+/=\s\\]*(?:-----END [A-Z ]*PRIVATE KEY-----)?)")
_KNOWN_WORD = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-(?=[\w-]*\d)[\w-]{12,}"
    r"|xox[a-z]-[\w-]{8,}|sk-(?:proj-|ant-\w+-)?(?=\w*\d)\w{16,}|(?:sk|rk)_live_\w{8,}|hf_[A-Za-z0-9]{20,}"
    r"|npm_[A-Za-z0-9]{20,}|dckr_pat_[\w-]{8,}|pypi-[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]+|dapi[0-9a-f]{16,}"
    r"|ya29\.[\w-]{8,}|eyJ[\w-]{8,}\.[\w.-]+|AIza[\w-]{16,})"
)
