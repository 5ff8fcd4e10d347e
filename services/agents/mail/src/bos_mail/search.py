"""Search syntax, and criteria of IMAP and queries of Gmail made of it. Pure.

Such as ``from:x subject:"y z" after:2026-01-31 words``. A query is parsed into terms, and what
servers are sent is built from these: nothing that a user, a model or a message wrote reaches a
server as a command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from bos_errors import InvalidArgument

MAX_QUERY_CHARS: Final = 500
_MAX_TERMS: Final = 20
_TEXTS: Final = ("from", "to", "cc", "bcc", "subject")
_DATES: Final = {"after": "after", "since": "after", "before": "before", "until": "before"}
_AGES: Final = {"newer_than": "after", "older_than": "before"}
_FLAGS: Final = {
    ("is", "unread"): "unread",
    ("is", "read"): "read",
    ("is", "starred"): "starred",
    ("has", "attachment"): "attachment",
}
_TERM: Final = re.compile(
    r"""(?P<not>-)?(?:(?P<key>[A-Za-z_]+):)?(?:"(?P<quoted>[^"]*)"|(?P<word>[^\s"]+))"""
)
_AGE: Final = re.compile(r"(\d{1,4})([dmy])")
_DAYS: Final = {"d": 1, "m": 31, "y": 366}
_IMAP_SPECIALS: Final = re.compile(r"[(){}%*\"\\]")
_DATE: Final = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})")


@dataclass(frozen=True, slots=True)
class Term:
    """One condition."""

    kind: str
    """from, to, cc, bcc, subject, text, after, before, unread, read, starred, attachment."""
    value: str = ""
    day: date | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """Conditions that all must hold."""

    terms: tuple[Term, ...] = ()


def parse_query(text: str, today: date) -> Query:
    """The conditions of a query.

    Raises:
        InvalidArgument: it is too long, or names a date that there is not.
    """
    if len(text) > MAX_QUERY_CHARS:
        raise InvalidArgument.field("query", f"must have at most {MAX_QUERY_CHARS} characters")
    plain = "".join(each if each.isprintable() else " " for each in text)
    terms: list[Term] = []
    for found in _TERM.finditer(plain):
        value = (found["quoted"] if found["quoted"] is not None else found["word"]).strip()
        key, negated = (found["key"] or "").lower(), bool(found["not"])
        # What is in the inbox is searched by another action.
        if not value or (key == "in" and found["quoted"] is None):
            continue
        terms.append(_term(key, value, negated, today))
    if len(terms) > _MAX_TERMS:
        raise InvalidArgument.field("query", f"must have at most {_MAX_TERMS} conditions")
    return Query(tuple(terms))


def _term(key: str, value: str, negated: bool, today: date) -> Term:
    if key in _TEXTS:
        return Term(key, value, negated=negated)
    if key in _DATES:
        return Term(_DATES[key], day=_day(key, value), negated=negated)
    if key in _AGES:
        age = _AGE.fullmatch(value.lower())
        if age is None:
            raise InvalidArgument.field("query", f"{key}: must be such as 7d, 2m or 1y")
        day = today - timedelta(days=int(age[1]) * _DAYS[age[2]])
        return Term(_AGES[key], day=day, negated=negated)
    if flag := _FLAGS.get((key, value.lower())):
        return Term(flag, negated=negated)
    if key == "rfc822msgid":
        return Term("message_id", value.strip("<>"), negated=negated)
    return Term("text", f"{key}:{value}" if key else value, negated=negated)


def _day(key: str, value: str) -> date:
    found = _DATE.fullmatch(value)
    try:
        if found is None:
            raise ValueError
        return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        raise InvalidArgument.field(
            "query", f"{key}: must be a date of the calendar such as 2026-01-31"
        ) from None


def imap_criteria(query: Query) -> list[str | date]:
    """Criteria of IMAP SEARCH (RFC 9051), each an atom or a value that the client quotes."""
    found: list[str | date] = []
    for term in query.terms:
        if term.negated:
            found.append("NOT")
        found += _imap_term(term)
    return found or ["ALL"]


def _imap_term(term: Term) -> Sequence[str | date]:
    match term.kind:
        case "after" | "before":
            assert term.day is not None
            return ["SINCE" if term.kind == "after" else "BEFORE", term.day]
        case "unread":
            return ["UNSEEN"]
        case "read":
            return ["SEEN"]
        case "starred":
            return ["FLAGGED"]
        case "attachment":
            # IMAP knows nothing nearer.
            return ["HEADER", "Content-Type", "multipart/mixed"]
        case "message_id":
            return ["HEADER", "Message-ID", _imap_value(term.value)]
        case "text":
            return ["TEXT", _imap_value(term.value)]
        case _:
            return [term.kind.upper(), _imap_value(term.value)]


def _imap_value(value: str) -> str:
    """A value without the characters that mean something in IMAP, also where it is not quoted."""
    return " ".join(_IMAP_SPECIALS.sub(" ", value).split()) or "."


def gmail_query(query: Query) -> str:
    """The query in Gmail's own syntax; values are quoted, and hold no quotes."""
    return " ".join(("-" if term.negated else "") + _gmail_term(term) for term in query.terms)


def _gmail_term(term: Term) -> str:
    value = '"' + term.value.replace('"', " ").replace("\\", " ") + '"'
    match term.kind:
        case "after" | "before":
            assert term.day is not None
            return f"{term.kind}:{term.day:%Y/%m/%d}"
        case "unread" | "read" | "starred":
            return f"is:{term.kind}"
        case "attachment":
            return "has:attachment"
        case "message_id":
            return f"rfc822msgid:{value.strip(chr(34))}"
        case "text":
            return value
        case _:
            return f"{term.kind}:{value}"
