"""Pages: what a token was made of comes back and nothing else is one; words become patterns."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from bos_chassis.paging import (
    after_ordinal,
    after_time,
    decoded,
    encoded,
    ordinal_token,
    time_token,
    word_patterns,
)
from bos_errors import InvalidArgument

AT = datetime(2026, 6, 15, 9, 30, 0, 123456, tzinfo=UTC)
KEY = UUID(int=7)


def test_a_token_holds_time_and_key() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert after_time(time_token(AT, KEY)) == after_time(time_token(elsewhere, KEY)) == (AT, KEY)


def test_without_a_token_the_newest_row_comes_first() -> None:
    latest, key = after_time("")
    assert latest > AT
    assert key > KEY


@pytest.mark.parametrize("token", ["?", "é", encoded("2026-06-15|"), encoded(f"soon|{KEY}")])
def test_a_foreign_token_is_refused_by_name(token: str) -> None:
    with pytest.raises(InvalidArgument, match="page_token"):
        after_time(token)


@pytest.mark.parametrize("text", ["", "7", "grüß|Gott"])
def test_any_text_comes_back(text: str) -> None:
    assert decoded(encoded(text)) == text


def test_token_holds_position_and_no_token_is_before_first() -> None:
    assert [after_ordinal(ordinal_token(at)) for at in (0, 7, 2**31 - 1)] == [0, 7, 2**31 - 1]
    assert after_ordinal("") == -1


@pytest.mark.parametrize("token", ["?", encoded("x"), encoded("-2"), encoded(str(2**31))])
def test_a_made_up_position_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument):
        after_ordinal(token)


def test_words_become_patterns_that_match_them_literally() -> None:
    assert word_patterns(" \0 ") == []
    assert word_patterns("net  50%_a\\b") == ["%net%", "%50\\%\\_a\\\\b%"]
    assert len(word_patterns("a " * 8)) == 8
    with pytest.raises(InvalidArgument):
        word_patterns("a " * 9)
