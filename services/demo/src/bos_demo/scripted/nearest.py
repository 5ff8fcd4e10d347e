"""Replies to questions without prepared ones: what is asked here is listed, the nearest first.

Only the planner's and the composer's calls are answered, and only for a question that no scripted
reply was prepared for. The planner is given a plan without steps, the composer names the questions
that the demo can answer. Any other call is refused as before.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bos_demo.scripted.replies import PLANNER_SCHEMA, planned

NEAREST = 5
"""Questions that are named."""

_WORD = re.compile(r"[^\W_]+")
_PLANNED = re.compile(r"(?s).*### Question\n(.*?)\n\n### Instructions")
_COMPOSED = re.compile(r"(?s).*### Question\n(.*)\n\nWrite the answer to this question now\.")
_OTHER = ("Agent results", "What did not succeed", "Earlier attempts", "Settled with the user")
_WITH_RESULTS = re.compile(rf"(?m)^### ({'|'.join((*_OTHER, 'Revision'))})$")
_PREFIX = 5
"""Letters by which two words count as forms of one: customers, customer."""
_MAX_CHARS = 2_000
"""Beginning of a question that is compared; more only costs time."""


class NearestQuestions:
    """The nearest prepared questions by their rare words in common (cosine of tf-idf weights).

    Args:
        questions: All questions with prepared replies.
    """

    def __init__(self, questions: Sequence[str]) -> None:
        self._questions = tuple(dict.fromkeys(questions))
        words = [_words(each) for each in self._questions]
        found = Counter(word for each in words for word in set(each))
        self._weights = {word: math.log(1 + len(words) / count) for word, count in found.items()}
        self._vectors = [self._vector(each) for each in words]

    def to(self, question: str) -> tuple[str, ...]:
        """At most five prepared questions, the nearest first; ties are in their given order."""
        asked = self._vector(_words(question))
        scores = [
            sum(weight * each.get(word, 0.0) for word, weight in asked.items())
            for each in self._vectors
        ]
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        return tuple(self._questions[place] for place in order[:NEAREST])

    def reply(self, schema: str | None, prompt: str) -> str | dict[str, Any] | None:
        """Reply to a call without a prepared one; None: the model refuses it."""
        if schema == PLANNER_SCHEMA:
            if _PLANNED.match(prompt) is None or _WITH_RESULTS.search(prompt):
                return None
            return planned(
                "The demo's scripted model has no prepared reply to this question.",
                [],
                intent="OUT_OF_SCOPE",
            )
        asked = _COMPOSED.match(prompt) if schema is None else None
        if asked is None or _WITH_RESULTS.search(prompt):
            return None
        listed = "\n".join(f"- {each}" for each in self.to(asked[1]))
        return (
            "I am the scripted model of the demo and have no prepared reply to this question. "
            f"Of the questions that I know, these come nearest:\n\n{listed}\n\n"
            "A real model answers any question: set OPENAI_API_KEY, or OPENAI_BASE_URL and "
            "BOS_MODEL."
        )

    def _vector(self, words: Sequence[str]) -> dict[str, float]:
        """Weights of the words, of length 1; words of no prepared question weigh nothing."""
        weights = {
            word: count * self._weights[word]
            for word, count in Counter(words).items()
            if word in self._weights
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values()))
        return {word: weight / length for word, weight in weights.items()} if length else {}


def _words(text: str) -> list[str]:
    """Words of a text by their beginnings, so that forms of one word are equal."""
    return [word[:_PREFIX] for word in _WORD.findall(text.casefold()[:_MAX_CHARS])]
