"""Passwords in URLs: messages, logs and files show `***` in their place."""

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


def redacted(text: str) -> str:
    """Return the text with every password of its URLs replaced by `***`.

    >>> redacted("http://alice:s3cret@prometheus:9090 refuses")
    'http://alice:***@prometheus:9090 refuses'
    """
    return _PARAMETER.sub(r"\g<name>***", _USER_INFO.sub(r"\g<user>:***@", text)) if "://" in text else text
