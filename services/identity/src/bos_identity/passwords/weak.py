"""Weak passwords, which guessing finds first; pure.

Guesses begin with common words, names, years, runs along the alphabet or the keyboard, and the same
again. A password is measured by what is left when each of those counts as one character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Final

LEAST_EFFECTIVE: Final = 6
_LEAST_DISTINCT: Final = 5
_SHORTEST_RUN: Final = 3
_SHORTEST_NAME: Final = 3
_YEAR: Final = re.compile(r"(19|20)\d\d")
_KEYBOARD: Final = (
    "1234567890-=",
    "qwertyuiop[]",
    "asdfghjkl;'",
    "zxcvbnm,./",
    "qwertzuiop",
    "yxcvbnm",
    "azertyuiop",
    "qsdfghjklm",
    "wxcvbn",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "1q2w3e4r5t6y7u8i9o0p",
    "qazwsxedcrfvtgbyhnujmikolp",
    "789456123",
    "147258369",
)
# Words and names that passwords are made of most, in small letters.
_COMMON_WORDS: Final = frozenset(
    Path(__file__).with_name("common_words.txt").read_text(encoding="utf-8").split()
)
_RUNS: Final = tuple(run for line in _KEYBOARD for run in (line, line[::-1]))
_LOOKALIKES: Final = str.maketrans("@4310$57!|8", "aaeiossti" + "lb")
_MAX_WORD: Final = max(map(len, _COMMON_WORDS))


def weakness(password: str, names: Collection[str]) -> str | None:
    """What is weak about the password, to be said behind its field; None if nothing is.

    Args:
        password: The new password; how long it must be is for others to say.
        names: What is known of its owner, such as username and e-mail address.
    """
    text = unicodedata.normalize("NFKC", password).casefold()
    if text in {name.casefold() for name in names}:
        return "must not be the username or the e-mail address"
    if len(set(text.replace(" ", ""))) < _LEAST_DISTINCT:
        return f"must have at least {_LEAST_DISTINCT} different characters"
    known = {part for name in names for part in _parts(name)}
    plain = text.translate(_LOOKALIKES)
    if min(_effective(each, known) for each in (text, plain, _once(text))) < LEAST_EFFECTIVE:
        return "is one of those that are guessed first: a common word, a name, a run of keys"
    return None


def _parts(name: str) -> list[str]:
    """Guesses that a name suggests: all of it, and its words."""
    lowered = name.casefold()
    words = re.split(r"[^\w]+|_", lowered)
    return [each for each in (lowered, *words) if len(each) >= _SHORTEST_NAME]


def _once(text: str) -> str:
    """The part that ``text`` is repetitions of; all of it if it is none."""
    period = (text + text).find(text, 1)
    return text[:period]


def _effective(text: str, names: Collection[str]) -> int:
    """How many characters are left when each guessable part counts as one."""
    count, start = 0, 0
    while start < len(text):
        start += max(1, _guessable(text, start, names))
        count += 1
    return count


def _guessable(text: str, start: int, names: Collection[str]) -> int:
    """The length of the longest guessable part that begins there; 0 if there is none."""
    found = [_run(text, start)]
    if _YEAR.match(text, start):
        found.append(4)
    found += [len(name) for name in names if text.startswith(name, start)]
    longest = min(_MAX_WORD, len(text) - start)
    found += [
        length
        for length in range(longest, _SHORTEST_NAME - 1, -1)
        if text[start : start + length] in _COMMON_WORDS
    ]
    return max(found)


def _run(text: str, start: int) -> int:
    """The length of a run from there: one character again, the alphabet, or keys in a row."""
    lengths = [0]
    for step in (0, 1, -1):
        end = start + 1
        while end < len(text) and ord(text[end]) - ord(text[end - 1]) == step:
            end += 1
        lengths.append(end - start)
    for run in _RUNS:
        end = start + 1
        while end < len(text) and text[start : end + 1] in run:
            end += 1
        lengths.append(end - start)
    longest = max(lengths)
    return longest if longest >= _SHORTEST_RUN else 0
