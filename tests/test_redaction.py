"""No message shows the password of a URL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.redaction import redacted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://alice:s3cret@host:9090/x", "http://alice:***@host:9090/x"),
        ("at http://alice:s3@cret@host: no", "at http://alice:***@host: no"),
        ("http://alice:s3/cr#et@host", "http://alice:***@host"),
        ("postgresql+psycopg://u:1234@h:5432/d", "postgresql+psycopg://u:***@h:5432/d"),
        (
            "postgresql://h/d?user=u&password=s3cret&sslmode=require",
            "postgresql://h/d?user=u&password=***&sslmode=require",
        ),
        ("https://host/api?access_token=abc", "https://host/api?access_token=***"),
        ("http://host:9090/user@example", "http://host:9090/user@example"),
        ("http://host:9090 of a@b.c", "http://host:9090 of a@b.c"),
        ("sqlite:///models.db", "sqlite:///models.db"),
        ("s3cret@host, but no URL", "s3cret@host, but no URL"),
    ],
)
def test_passwords_are_replaced_and_nothing_else(text: str, shown: str) -> None:
    assert redacted(text) == shown


@given(
    st.text(st.characters(codec="ascii", exclude_characters=" \t\n\r\x0b\x0c/?#"), min_size=1)
    .map(str.strip)
    .filter(bool)
)
def test_no_password_of_an_authority_is_shown(password: str) -> None:
    if password.split() == [password]:
        assert redacted(f"no http://alice:{password}@host/x.") == "no http://alice:***@host/x."


def test_errors_show_no_password_in_message_or_remedy() -> None:
    error = InputError("No http://u:pw@h.", "Start http://u:pw@h.")
    assert (str(error), error.args) == ("No http://u:***@h. Start http://u:***@h.", ("No http://u:***@h.",))
    assert NotEnoughDataError("At http://u:pw@h there are none.", 2).message == "At http://u:***@h there are none."
