"""Remove secrets and terminal control characters from texts before they are shown."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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


def shortened(value: Any) -> str:
    """Return a short representation of a value for a message, from which secrets were removed before it was shortened.

    >>> shortened("http://alice:s3cret@prometheus:9090/a/long/path")
    "'http://alice...0/a/long/path'"
    """
    return _Shortening().repr(value)


def beginning(text: str, length: int) -> str:
    """Return at most `length` characters of a text, from which secrets were removed before; "…" stands for the rest.

    >>> beginning("postgresql://alice:s3cret@db/trials", 24)
    'postgresql://***@db/tria…'
    """
    whole = redacted(text)
    return whole if len(whole) <= length else f"{whole[:length]}…"


class _Shortening(reprlib.Repr):
    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(next(hide_in_words([x], _MARK)), level)


def redacted(text: str, mark: str = _MARK) -> str:
    """Return the text with everything that may be a secret replaced by a mark.

    Secrets are the password of a URL, the value of a parameter, flag, variable or key whose name suggests a secret, the
    text after `bearer`, private keys, and words with the prefix of a known service's keys. `$NAME` is not a value.

    >>> redacted("http://alice:s3cret@prometheus:9090 refuses")
    'http://alice:***@prometheus:9090 refuses'
    >>> redacted("python train.py --api-key=abc --epochs=3")
    'python train.py --api-key=*** --epochs=3'
    """

    text = without_passwords(text, mark)
    for opening, value, is_secret, between in _NAMED_VALUES:
        text = _hide_values(text, opening, value, is_secret, mark, between)
    text = "".join(_hide_after_short_flags(command, mark) for command in _COMMAND_END.split(text))
    for pattern in (_TOKEN_USER, _HOOK):
        text = pattern.sub(rf"\g<before>{mark}", text)
    text = _PRIVATE_KEY.sub(mark, _AUTHORIZED.sub(rf"\g<before>{mark}", text))
    return _KNOWN_WORD.sub(mark, text)


def redacted_data(data: Any, name: str = "") -> Any:
    """Return plain data, which is the value of the key `name`, with everything that may be a secret replaced by a mark.

    Data has to be redacted before it is encoded or escaped, since quotes and escapes hide where a value ends.

    >>> redacted_data({"api_key": 12345678, "host": "--password 'a b'"})
    {'api_key': '***', 'host': "--password '***'"}
    """
    if isinstance(data, dict):
        names = {"value": data["name"]} if isinstance(data.get("name"), str) else {}  # a variable in a pod
        return {
            redacted(key) if isinstance(key, str) else key: redacted_data(value, names.get(key, str(key)))
            for key, value in data.items()
        }
    if isinstance(data, (list, tuple)):
        items = [redacted_data(each, name) for each in data]
        return list(hide_in_words(items, _MARK)) if all(isinstance(each, str) for each in items) else items
    if not isinstance(data, (str, int, float)) or isinstance(data, bool) or data == "":
        return data
    if _is_secret(name, str(data)) and not _REFERENCE.fullmatch(str(data)):
        return _MARK
    return _redacted_text(data) if isinstance(data, str) else data


def _redacted_text(text: str) -> str:
    """Return a text without secrets; a text that is JSON stays JSON."""
    if not text.startswith(("{", "[")):
        return redacted(text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return redacted(text)
    without = redacted_data(data)
    return text if without == data else json.dumps(without)


def _hide_values(
    text: str,
    opening: re.Pattern[str],
    value: re.Pattern[str],
    is_secret: Callable[[re.Match[str], str], bool],
    mark: str,
    between: re.Pattern[str] | None = None,
) -> str:
    """Replace each secret that follows an opening, such as `name=`; `between` separates the items of a list."""
    parts, end, read_to = [], 0, 0
    for match in opening.finditer(text):
        if match.start() < read_to or not _may_name_secret(match.groupdict().get("name") or "secret"):
            continue
        following: re.Match[str] | None = match
        while following and (found := value.match(text, following.end())):
            kind = found.lastgroup
            if kind and not _REFERENCE.fullmatch(found[kind]) and is_secret(match, found[kind]):
                parts += [text[end : found.start(kind)], mark]
                end = read_to = found.end(kind)
            following = between.match(text, found.end()) if between else None
            read_to = following.end() if following else read_to
    return "".join([*parts, text[end:]])


def _hide_after_short_flags(command: str, mark: str) -> str:
    programs = list(_PROGRAM_IN_TEXT.finditer(command))
    starts = [program.end() for program in programs]
    parts = [command[: starts[0]] if starts else command]
    for program, start, end in zip(programs, starts, [*starts, len(command)][1:], strict=True):
        flags = _SHORT_FLAGS[program.lastgroup or ""]
        parts.append(_hide_values(command[start:end], flags.in_text, flags.value, lambda *_: True, mark))
    return "".join(parts)


def without_passwords(text: str, mark: str = _MARK) -> str:
    """Return the text with the passwords of its URLs, and of logins such as `user:pass1@host`, replaced by a mark."""

    def user_of(match: re.Match[str]) -> str:
        return mark if _is_token_user(match["user"], match["password"]) else match["user"]

    if "%" in text:
        text = _ENCODED_USER_INFO.sub(lambda match: f"{match['before']}{user_of(match)}%3A{mark}", text)
    if "@" not in text:
        return text
    text = _USER_INFO.sub(lambda match: f"{user_of(match)}:{mark}@", text)
    return _LOGIN.sub(lambda match: f"{match['before']}{mark}" if _is_login(match) else match[0], text)


def _is_token_user(user: str, password: str) -> bool:
    """Return whether the user of a URL is a token, and its password only a filler such as GitHub's `x-oauth-basic`."""
    if password.lower() in ("", "x") and re.search(r"\d", user) and len(user) >= 8:
        return True
    return bool(user) and (password.lower() == "x-oauth-basic" or bool(_ONE_WORD.fullmatch(user)))


def _is_login(match: re.Match[str]) -> bool:
    """Return whether `user:word@host` contains a password, and is no address of an e-mail or an image."""
    password = match["password"]
    is_mixed = re.search(r"\d", password) and re.search("[A-Za-z]", password)
    return bool(is_mixed or match["slashes"] or match["port"]) and not _REFERENCE.fullmatch(password)


def hide_in_words(words: Sequence[str], mark: str = _WORD_MARK) -> Iterator[str]:
    """Yield the words of a command with everything that may be a secret replaced by a mark."""
    previous, flags = "", None
    for word in words:
        start = _start_of_secret(previous, word, flags)
        yield redacted(word, mark) if start is None else redacted(word[:start], mark) + mark
        names = [each.rpartition("/")[2] for each in (previous, word)]
        if program := _PROGRAM.fullmatch(names[1]) or _PROGRAM.fullmatch(" ".join(names)):
            flags = _SHORT_FLAGS[program.lastgroup or ""]
        previous = word


def _start_of_secret(previous: str, word: str, flags: _ShortFlags | None) -> int | None:
    """Return where a secret begins that extends to the end of the word; None if there is none."""
    starts = []
    if flags and (attached := flags.in_words.match(word)):
        starts.append(attached.end())
    if flags and (separate := flags.in_words.match(f"{previous} {word}")):
        starts.append(separate.end() - len(previous) - 1)
    if _FLAG.fullmatch(previous) and not _OPTION.fullmatch(word) and _is_secret(previous, word):
        starts.append(0)
    assigned = _ASSIGNMENTS.match(word)
    if assigned and (word.startswith("-") or not _SCRIPT_FLAG.fullmatch(previous)):
        ends = [match.end() for match in re.finditer("=", assigned[0])]
        names = assigned[0].split("=")
        starts += [end for end, name in zip(ends, names, strict=False) if _is_secret(name, word[end:])]
    for start in starts:
        if start >= 0 and re.search(r"\w", word[start:]) and not _REFERENCE.fullmatch(word[start:]):
            return start
    return None


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
    if _is_weak(words[-1]) and (len(value) > _MAX_PLAIN or _MIXED.search(value)):
        return True
    return words[-1] in _USUALLY or (("token" in words or words[-1] in _OFTEN) and not _is_word(value))


def _is_always_secret(words: Sequence[str]) -> bool:
    return bool({*words} & _ALWAYS or _ALWAYS_NAME.search("_".join(words)))


def _is_weak(word: str) -> bool:
    """Return whether the last word of a name names a secret only if the value looks like one: SORT_KEYS, N_PASSES."""
    return word in _SEVERAL or word.endswith(("key", "keys"))


def _is_named_secret(match: re.Match[str], value: str) -> bool:
    return _is_secret(match["name"], value.rstrip(".,;:!?)"))


def _is_flagged_secret(match: re.Match[str], value: str) -> bool:
    """Return whether a word after a flag is its secret value, and not the next flag."""
    return not _OPTION.fullmatch(value) and _is_named_secret(match, value)


def _is_keyed_secret(match: re.Match[str], value: str) -> bool:
    """Return whether `name: value` contains a secret; without quotes it may be part of a sentence."""
    words = _words_of(match["name"])
    value = value.rstrip(".,;:!?)")
    if _is_secret(match["name"], value):
        in_quotes = bool(match["q"])
        return (
            in_quotes
            or len(_written_words(match["name"])) > 1
            or _is_always_secret(words)
            or (len(value) > 5 and not _is_word(value))
        )
    return False


@lru_cache(maxsize=1024)
def _may_name_secret(name: str) -> bool:
    words = _words_of(name)
    return bool(words) and (
        _is_always_secret(words) or "token" in words or words[-1] in _USUALLY | _OFTEN or _is_weak(words[-1])
    )


def _is_word(value: str) -> bool:
    """Return whether a value is a number, or one or several words, such as MIT or user_id."""
    return value.isdecimal() or (len(value) > 2 and bool(_PLAIN_WORD.fullmatch(value)))


def _words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case; a word such as dbpass or authtoken is two."""
    return [part for word in _written_words(name) for part in _parts_of(word)]


def _parts_of(word: str) -> list[str]:
    parts = _JOINED.fullmatch(word) if word not in _ALWAYS else None
    return [*parts.groups()] if parts and parts[1] not in _PLAIN_BEFORE else [word]


def _written_words(name: str) -> list[str]:
    name = name.removeprefix("-D") if name[2:3].islower() else name  # a property of Java
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return [word.rstrip("0123456789") for word in _WORD.findall(parted) if not word.isdigit()]


_WORD = re.compile(r"[a-z0-9]+")
_ALWAYS = frozenset((
    "bearer", "cred", "creds", "dsn", "jwt", "oauth", "passcode", "passphrase", "pem", "pgpass", "pgpassword", "psk",
    "pw", "pwd", "sas", "webhook", "passkey",
))  # fmt: skip
_JOINED = re.compile(r"([a-z0-9]{2,}?)(pass|pwd?|tokens?|creds|dsn|webhook|jwt|psk|auth)")
"""Names such as SSHPASS, DBPW and AUTHTOKEN, without a mark between their words."""
_PLAIN_BEFORE = frozenset((
    "all", "back", "backward", "band", "bwd", "by", "com", "double", "dual", "encom", "first", "forward", "fwd", "high",
    "im", "last", "low", "max", "min", "multi", "next", "num", "one", "over", "per", "post", "pre", "second", "single",
    "sub", "sur", "three", "tres", "two", "un", "under", "bos", "cls", "de", "eos", "mask", "pad", "sep", "unk",
))  # fmt: skip
"""Beginnings of words that do not name a secret, such as bypass, compass, lowpass and padtoken."""
_ALWAYS_NAME = re.compile(
    r"passw|secret|credential|priv(?:ate)?_?key"
    r"|(?:api|access|account|admin|auth|aws|azure|client|crypt[a-z]{0,8}|deploy|encryption|gcp|hmac|kms|license|master|pgp"
    r"|gpg|rsa|server|service|shared|signing|ssh|ssl|storage|tls|wandb)_?keys?(?:_|$)"
    r"|(?:pass|recovery|seed)_?phrase|mnemonic"
    r"|conn(?:ection)?_?str(?:ing)?|(?:database|db|redis|mongo|mongodb|amqp|broker|postgres|mysql|sentry|slack)_ur[il]"
)
_USUALLY = frozenset(("cookie", "cookies", "hmac", "otp", "pass", "pat", "pin", "sig", "signature", "token", "totp"))
_OFTEN = frozenset(("auth", "cert", "certificate", "key", "license", "salt", "session", "tokens"))
"""Last words of the names of secrets, and of many other variables."""
_SEVERAL = frozenset(f"{word}{'es' if word.endswith('s') else 's'}" for word in _ALWAYS | _USUALLY | _OFTEN)
"""Plurals, which name amounts and algorithms more often than secrets."""
_MIXED = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]{8})[A-Za-z]*\d+[A-Za-z]+\d")
"""A word in which letters and digits alternate, unlike names such as user_id_2 and sha256."""
_NO_PATHS = frozenset(("password", "passwd", "passphrase", "passcode", "pw", "secret", "token"))
"""Words of names whose values are never paths."""
_ABOUT_SECRETS = frozenset(("file", "path", "dir", "folder", "limit", "length", "count", "ttl", "name"))
"""Last words of names that give a place or an amount."""
_PLAIN = re.compile(r"[-+]?\d{1,3}(?:\.\d*)?|true|false|yes|no|on|off|none|null|auto", re.IGNORECASE)
_MAX_PLAIN = 1000
"""Longest value that is read again from another start."""
_PLAIN_WORD = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[_.-](?:[A-Z]?[a-z]+|[A-Z]+))*")
_PATH = re.compile(r"(?:[~.]{0,2}|(?:[a-z0-9-]+\.)+[a-z]+)/[\w./-]*")
"""The path of a file, or a name of Kubernetes such as nvidia.com/gpu."""
_ONE_WORD = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/_=]{24,}|[0-9a-f]{32,}")
"""A long word with mixed letters and digits."""

# Every pattern is linear in the length of the text: a part that may be read again from another start has a bound.
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]\w*|\d|\{\w+\}|\(\w+\)|\((?:cat +|< *)[\w./~-]+\))")
"""The name of a variable or a file from which a shell takes the value."""
_QUOTE = r"\\{0,8}['\"]"
_BARE = r"(?=[^\s'\"]*\w)(?:[^\s'\"]|(?<=\w)['\"](?=\w))*[^\s'\".,;:!?)\]}]"


def _value(bare: str = _BARE, before: str = "") -> re.Pattern[str]:
    """Return the pattern of a value, in quotes or bare, after a part such as the name of a user.

    Quotes that are not closed extend to the end of the text.
    """
    quoted = rf"(?P<quote>{_QUOTE}){before}(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\\]))+)(?:(?P=quote)|\\?\Z)"
    reference = rf"{_REFERENCE.pattern}(?![^\s'\"\\,;:.!?)\]}}&|])"
    return re.compile(rf"{quoted}|{before}(?:{reference}|(?P<bare>{bare}))", re.DOTALL)


_VALUE, _KEYED_VALUE = _value(), _value(r"(?=[^\s'\",}]*\w)[^\s'\",}]*[^\s'\",}.;:!?)]")
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
_OPTION = re.compile(r"-[A-Za-z]|--[A-Za-z][\w-]*(?:=.*)?", re.DOTALL)
_SCRIPT_FLAG = re.compile(r"-\w*c")
_ASSIGNMENTS = re.compile(r"(?:-{0,2}[A-Za-z_][\w.-]*=)+")
_IN_SCHEME = r"(?:(?!:(?://|\\/\\/))[^\s@])"
_USER_INFO = re.compile(
    r"(?:(?<=://)|(?<=:\\/\\/))(?P<user>[^/?#\s:@]*):"
    r"(?!PASSWORD@)"  # a placeholder in a message
    r"(?P<password>[^/?#\s]*(?=@)"  # up to the last @ of the authority
    r"|(?!\d*(?:[/?#\s]|$))(?:(?!:(?://|\\/\\/))\S)*(?=@)"  # or a password with a slash, where the colon has no port
    rf"|(?!\d*(?:\s|$))(?!\d*[/?#]{_IN_SCHEME}*@(?![\w.-]+:\d|\d+(?:\.\d+){{3}}|\[)){_IN_SCHEME}*"
    rf"(?: {_IN_SCHEME}+){{0,3}}(?=@))@"  # or one with spaces, or with a slash after digits, before a host with a port
)
_ENCODED_USER_INFO = re.compile(
    r"(?P<before>%3A%2F%2F)(?P<user>(?:(?!%3A|%2F|%40)[\w.~%+-])*)%3A(?P<password>(?:(?!%3A%2F%2F)[\w.~%+-])+)(?=%40)",
    re.IGNORECASE,
)
_LOGIN = re.compile(
    r"(?P<before>(?<![\w.@:/\\%+~$-])(?P<slashes>//)?(?!(?:mailto|cc|bcc|to|from|e?mail|author|contact|sips?|xmpp):)"
    r"(?P<user>[A-Za-z_][\w.+~%-]{0,63}):(?!PASSWORD@|\d+/|\\?/\\?/))(?P<password>[^\s'\"@]{1,128})"
    r"(?=@(?!sha\d+:)(?:[A-Za-z][\w-]*(?:\.[\w-]+)*|\d+(?:\.\d+){3}|\[[\da-fA-F:]+\])(?P<port>:\d{1,5}\b)?)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"(?<=[?&;])(?P<name>[\w.-]+)=")
_ASSIGNED = re.compile(r"(?<![\w.$?&;/-])(?P<name>-{0,2}[A-Za-z_][\w.-]*)(?:=| = )")
_FLAGGED = re.compile(rf"(?<![\w-])(?P<name>{_FLAG.pattern})(?:[ \t]+|{_QUOTE},\s*)")
_KEY = rf"(?<![\w.-])(?P<q>(?:{_QUOTE})?)(?P<name>[A-Za-z][\w.-]*)(?P=q)\s*:"
_KEYED = re.compile(rf"{_KEY}\s*")
_NAMED = re.compile(  # an environment variable in a pod
    r"\bname['\"]?\s*:\s*['\"]?(?P<name>[A-Za-z][\w.-]*)['\"]?,?\s*['\"]?value['\"]?\s*:\s*"
)
_LISTED_VALUE = _value(r"[^\s'\",;()\[\]{}]*\w[^\s'\",;()\[\]{}]*")
_LINE_VALUE = _value(r"[^\s'\"\[{]\S*(?<!:)(?=[ \t]*(?:\n|\Z))")
_COMMA, _DASH = re.compile(r"\s*,\s*"), re.compile(r"[ \t]*\n[ \t]*-[ \t]+")
_NAMED_VALUES: tuple[
    tuple[re.Pattern[str], re.Pattern[str], Callable[[re.Match[str], str], bool], re.Pattern[str] | None], ...
] = (
    (re.compile(rf"{_ASSIGNED.pattern}[\[(]\s*"), _LISTED_VALUE, _is_named_secret, _COMMA),
    (re.compile(rf"{_KEYED.pattern}[\[(]\s*"), _LISTED_VALUE, _is_keyed_secret, _COMMA),
    (re.compile(rf"{_KEY}{_DASH.pattern}"), _LINE_VALUE, _is_keyed_secret, _DASH),
    (_PARAMETER, re.compile(r"(?P<bare>[^&;#\s'\"]+)"), _is_named_secret, None),
    (_ASSIGNED, _VALUE, _is_named_secret, None),
    (_FLAGGED, _VALUE, _is_flagged_secret, None),
    (_NAMED, _KEYED_VALUE, _is_named_secret, None),
    (_KEYED, _KEYED_VALUE, _is_keyed_secret, None),
)
"""Openings, the values that follow them, whether these are secrets, and what is between the values of a list."""


class _ShortFlags(NamedTuple):
    """The short flags of a program that a secret follows, in a text and in words, and the secret."""

    in_text: re.Pattern[str]
    in_words: re.Pattern[str]
    value: re.Pattern[str]

    @classmethod
    def of(cls, flag: str, before: str = "") -> _ShortFlags:
        return cls(re.compile(rf"(?<![\w-]){flag}"), re.compile(flag + before), _value(before=before))


_COMMAND_END = re.compile(r"((?<!\\)\n|;\s|\s\|\|?\s|&&)")
_PROGRAM = re.compile(
    r"(?P<user>curl)|(?P<attached>(?:mysql|mariadb)[\w-]*)|(?P<a>redis-cli)|(?P<w>ldap\w+)"
    r"|(?P<p>sshpass|mongo\w*|cqlsh|(?:docker|podman|nerdctl|buildah|skopeo|az|oc)\s+login)"
    r"|(?P<P>sqlcmd|bcp|mosquitto_\w+|zip|unzip)|(?P<none>ssh|scp|sftp|rsync|docker|podman|kubectl)"
)
_PROGRAM_IN_TEXT = re.compile(rf"(?<![\w.-])(?:{_PROGRAM.pattern})(?=(?:{_QUOTE},?)?\s)")
_AFTER_FLAG = rf"(?:=|\s+|{_QUOTE},\s*)?"
_SHORT_FLAGS = {
    "user": _ShortFlags.of(rf"(?:-[A-Za-z]{{0,8}}[uU]|--(?:proxy-)?user){_AFTER_FLAG}", r"[^\s:'\"]{0,128}:"),
    "attached": _ShortFlags.of("-p(?=\\S)"),
    "a": _ShortFlags.of(f"-a{_AFTER_FLAG}"),
    "w": _ShortFlags.of(f"-w{_AFTER_FLAG}"),
    "p": _ShortFlags.of(f"-p{_AFTER_FLAG}"),
    "P": _ShortFlags.of(f"-P{_AFTER_FLAG}"),
    "none": _ShortFlags.of("(?!)"),
}
"""The flags of programs, by the group of their names."""
_TOKEN_USER = re.compile(r"(?P<before>\bhttps?:(?://|\\/\\/))(?=[^@/?#\s]*\d)[\w.~%+-]{8,}(?=@)")
_HOOK = re.compile(r"(?P<before>\b(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)[^\s'\"]+")
_AUTHORIZED = re.compile(
    r"(?P<before>\bauthorization['\"]?\s*[:=]\s*['\"]?(?:\w+\s+)?|\bbearer\s+(?=\S*\d|\S{16}))[^\s$'\"*<]+",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\w+/=\s\\]*(?:-----END [A-Z ]*PRIVATE KEY-----)?)")
_KNOWN_WORD = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{12,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-(?=[\w-]{0,64}\d)[\w-]{12,}"
    r"|xox[a-z]-[\w-]{8,}|sk-(?:proj-|ant-\w+-)?(?=\w*\d)\w{16,}|(?:sk|rk)_live_\w{8,}|hf_[A-Za-z0-9]{20,}"
    r"|npm_[A-Za-z0-9]{20,}|dckr_pat_[\w-]{8,}|pypi-[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]+|dapi[0-9a-f]{16,}"
    r"|ya29\.[\w-]{8,}|eyJ[\w-]{8,}(?:\.[\w.-]+)?|AIza[\w-]{16,})"
)
