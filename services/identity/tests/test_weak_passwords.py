"""Passwords that are guessed first are refused, others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos.identity.v1 import ChangePasswordRequest
from bos_errors import InvalidArgument
from bos_identity.names import clean_name
from bos_identity.passwords.weak import weakness

if TYPE_CHECKING:
    from identity_harness import Caller

NAMES = ("ada.lovelace", "ada@example.com", "Ada Lovelace")


@pytest.mark.parametrize(
    "password",
    [
        "1234567890",
        "0987654321",
        "password123",
        "Password123!",
        "P@ssw0rd2024",
        "            ",
        "aaaaaaaaaaaa",
        "abababababab",
        "abcabcabcabc",
        "abcdefghijkl",
        "qwertyuiop",
        "qwertzuiop[]",
        "1q2w3e4r5t6y",
        "1qaz2wsx3edc",
        "asdfghjkl;12",
        "iloveyou1234",
        "letmein12345",
        "welcome2024!",
        "admin1234567",
        "monkeydragon",
        "Liverpool1999",
        "hunter2hunter2hunter2",
        "xq7!xq7!xq7!",
        "ada.lovelace",
        "ADA@example.com",
        "lovelace1815",
        "Ada-Lovelace",
        "１２３４５６７８９０",
    ],
)
def test_what_is_guessed_first(password: str) -> None:
    assert weakness(password, NAMES)


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery",
        "another one, longer",
        "pässwörter",
        "Tr0ub4dor&3",
        "kR7#mq2!xV9",
        "four words in a row",
        "zwölf Boxkämpfer jagen",
        "2 boats, 3 oars",
    ],
)
def test_what_is_not(password: str) -> None:
    assert weakness(password, NAMES) is None


async def test_a_weak_password_is_refused_wherever_one_is_set(identity: Caller) -> None:
    for weak in ("1234567890", "password123", "            ", "aaaaaaaaaaaa"):
        with pytest.raises(InvalidArgument) as error:
            await identity.register(password=weak)
        assert [violation.field for violation in error.value.violations] == ["password"]
    await identity.register()
    token = (await identity.log_in()).tokens.access_token
    request = ChangePasswordRequest(
        current_password="correct horse battery", new_password="password123"
    )
    with pytest.raises(InvalidArgument):
        await identity.call("ChangePassword", request, token)


@pytest.mark.parametrize(
    ("given", "kept"), [("  Ada L. ", "Ada L."), ("Žofie Ó", "Žofie Ó"), (" \t ", ""), ("李", "李")]
)
def test_names_are_trimmed_and_otherwise_kept(given: str, kept: str) -> None:
    assert clean_name("name", given) == kept


@pytest.mark.parametrize(
    "name",
    ["a\nb", "a\x1bb", "a\u202eb", "a\u200db", "a\u2028b", "a\ue000b", "a\u3164b", "a\u00adb",
     "a\U000e0041b", "x" * 129],
)  # fmt: skip
def test_names_that_look_like_others_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        clean_name("name", name)
