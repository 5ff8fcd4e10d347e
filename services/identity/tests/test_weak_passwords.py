"""Guessable passwords and deceptive names are refused."""

import pytest

from bos_errors import InvalidArgument
from bos_identity.names import clean_name
from bos_identity.passwords.weak import weakness

NAMES = ("ada.lovelace", "ada@example.com", "Ada Lovelace")


@pytest.mark.parametrize(
    "password",
    [
        "1234567890",
        "password123",
        "P@ssw0rd2024",
        "            ",
        "abababababab",
        "qwertzuiop[]",
        "Liverpool1999",
        "xq7!xq7!xq7!",
        "Ada-Lovelace",
        "１２３４５６７８９０",
    ],
)
def test_guessable_password_is_weak(password: str) -> None:
    assert weakness(password, NAMES)


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery",
        "pässwörter",
        "kR7#mq2!xV9",
        "2 boats, 3 oars",
    ],
)
def test_other_password_is_strong(password: str) -> None:
    assert weakness(password, NAMES) is None


@pytest.mark.parametrize(("given", "kept"), [("  Ada L. ", "Ada L."), ("Žofie 李", "Žofie 李")])
def test_names_are_trimmed_and_otherwise_kept(given: str, kept: str) -> None:
    assert clean_name("name", given) == kept


@pytest.mark.parametrize(
    "name",
    ["a\x1bb", "a\u202eb", "a\u3164b", "x" * 129],
)  # fmt: skip
def test_names_that_look_like_others_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        clean_name("name", name)
