"""Query, kind and time range of a search by rule, for when no model writes them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bos_web.replies import SearchType, TimeRange

MAX_QUERY_CHARS = 380
"""Tavily refuses queries of more than 400 characters."""

_ORDER = re.compile(
    r"""^(?:\W*(?:please|kindly|could\ you|can\ you|then|and|also|now)\b)*\W*
    (?:(?:search|look|browse|google)\b(?:\s+(?:the\s+web|the\s+internet|online|up|for|on))*
      |(?:find|get|tell\ me|show\ me|fetch|research|check|read)\b(?:\s+(?:out|me|us|about|for))*)
    (?:\s+(?:the\s+)?(?:latest|recent|current)\s+news\s+(?:about|on|of))?[\s:,]+""",
    re.IGNORECASE | re.VERBOSE,
)
_TAIL = re.compile(
    r"\s+(?:on the (?:web|internet)|online|from the web)\s*(?=[.?!]*$)", re.IGNORECASE
)
_NEWS = re.compile(
    r"\b(?:news|headlines?|latest|breaking|announce[ds]?|announcements?|press releases?"
    r"|this week|today|yesterday)\b",
    re.IGNORECASE,
)
_DEEP = re.compile(
    r"\b(?:in[- ]depth|in detail|detailed|deep(?:er|ly)?|thorough(?:ly)?|comprehensive(?:ly)?"
    r"|compare|comparison|research|whole|full|benchmarks?|table|figures|analy[sz]e)\b",
    re.IGNORECASE,
)
_RANGES: tuple[tuple[TimeRange, str], ...] = (
    ("day", r"\b(?:today|yesterday|last 24 hours|past day)\b"),
    ("week", r"\b(?:this week|(?:last|past) (?:week|seven days|7 days))\b"),
    ("month", r"\b(?:this month|(?:last|past) (?:month|30 days|four weeks))\b"),
    ("year", r"\b(?:this year|(?:last|past) (?:year|twelve months|12 months))\b"),
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a search is made."""

    query: str
    search_type: SearchType
    time_range: TimeRange


def by_rule(task: str) -> Strategy:
    """Words of the task without the order to search; kind and time by words that name them."""
    text = " ".join(task.split())
    query = _TAIL.sub("", _ORDER.sub("", text, count=1)).rstrip(" .?!") or text
    kind: SearchType = "news" if _NEWS.search(text) else "deep" if _DEEP.search(text) else "basic"
    return Strategy(fitting(query), kind, time_range_in(text))


def time_range_in(text: str) -> TimeRange:
    """The time that a text says of what it asks for; any if it says none."""
    return next((name for name, words in _RANGES if re.search(words, text, re.IGNORECASE)), "any")


def fitting(query: str) -> str:
    """A query of one line that search APIs take, cut between words."""
    line = " ".join("".join(each if each.isprintable() else " " for each in query).split())
    if len(line) <= MAX_QUERY_CHARS:
        return line
    return line[:MAX_QUERY_CHARS].rpartition(" ")[0] or line[:MAX_QUERY_CHARS]
