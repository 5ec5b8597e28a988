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
