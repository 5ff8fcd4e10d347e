"""Finding and parsing JSON in what a model wrote around it, in time linear in its length."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_FENCE = re.compile(r"\A```[A-Za-z0-9_-]*[ \t]*\n(?P<body>.*?)\n?```\Z", re.DOTALL)
_PLAIN = re.compile(r'\\.|["{}]', re.DOTALL)
_BY_LINE = re.compile(r'\\.|["{}\n]', re.DOTALL)
_MAX_OBJECTS = 50
_MAX_DEPTH = 3

# Every alternative takes at least one character and an open string takes the rest, so that no
# part of a text is looked at more than once.
_TOKEN = re.compile(
    r"""
      (?P<string>"(?P<double>[^"\\]*+(?:\\.[^"\\]*+)*+)(?P<ended>"|\\?\Z)
               | '(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)(?P<ended_single>'|\\?\Z))
    | (?P<space>\s+)
    | (?P<word>[^\W\d]\w*)
    | (?P<other>[^\s"'\w]|\d[\w.+-]*)
    """,
    re.DOTALL | re.VERBOSE,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"""\\(.)|(")""", re.DOTALL)


class NoJson(ValueError):
    """A text that is not JSON, nor something that can only have been meant as such."""


@dataclass(frozen=True, slots=True)
class Found:
    """The objects in a text."""

    objects: list[str]
    """The outermost ones, in the order in which they stand there."""
    broken_off: bool
    """Whether an object after, or around, the last of them never ends."""


def unfenced(text: str) -> str:
    """A text without the fence of backquotes around all of it, if there is one."""
    text = text.strip()
    fenced = _FENCE.match(text)
    return fenced["body"].strip() if fenced else text


def parse(text: str) -> Any:
    """A value written as JSON, or nearly so.

    Line breaks within strings, commas after the last item, single quotes and Python's names of
    the constants are understood: each can only mean one thing.

    Raises:
        NoJson: it is neither, or nested deeper than any reply.
    """
    try:
        return _loads(text)
    except NoJson:
        mended = _as_json(text)
        if mended is None:
            raise
        return _loads(mended)


def find_objects(text: str, *, by_line: bool = False) -> Found:
    """The outermost balanced ``{…}`` of a text; braces within strings do not count.

    Args:
        text: Where to look.
        by_line: Take no string to go on over the end of a line. Finds objects behind a brace
            and a quotation mark in prose, and loses those with line breaks in their strings.
    """
    opened: list[int] = []
    spans: list[tuple[int, int]] = []
    in_string = False
    for token in (_BY_LINE if by_line else _PLAIN).finditer(text):
        mark = token[0]
        if not opened:
            in_string = False
            # Quotation marks in prose are often left open.
            if mark == "{":
                opened.append(token.start())
        elif mark == '"':
            in_string = not in_string
        elif mark == "\n":
            in_string = False
        elif not in_string and mark == "{":
            opened.append(token.start())
        elif not in_string and mark == "}":
            start = opened.pop()
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, token.end()))
    return Found([text[start:end] for start, end in spans[-_MAX_OBJECTS:]], broken_off=bool(opened))


def objects_from_last(text: str, depth: int = 0) -> list[Any]:
    """The objects in a text that can be parsed, the last one first.

    In braces that hold something else, such as prose, the ones inside count.
    """
    values: list[Any] = []
    for found in reversed(find_objects(text).objects or find_objects(text, by_line=True).objects):
        try:
            values.append(parse(found))
        except NoJson:
            if depth < _MAX_DEPTH:
                values += objects_from_last(found[1:-1], depth + 1)
        if len(values) >= _MAX_OBJECTS:
            break
    return values


def _loads(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        what = error.msg if isinstance(error, json.JSONDecodeError) else "not a value of JSON"
        raise NoJson(f"Invalid JSON: {what}{where}") from None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _as_json(text: str) -> str | None:
    """A text in Python's or JavaScript's spelling as JSON; None if a string in it never ends."""
    tokens: list[str] = []
    last = -1
    """Where the last token stands that is no white space."""
    for token in _TOKEN.finditer(text):
        written = token[0]
        if token["string"]:
            body = token["double"] if token["single"] is None else token["single"]
            if not (token["ended"] or token["ended_single"]) or written[-1] == "\\":
                return None
            written = f'"{_ESCAPE.sub(_escaped, body)}"'
        elif token["word"]:
            written = _WORDS.get(written, written)
        elif written in "]}" and last >= 0 and tokens[last] == ",":
            tokens[last] = ""
        if not token["space"]:
            last = len(tokens)
        tokens.append(written)
    return "".join(tokens)


def _escaped(match: re.Match[str]) -> str:
    if match[2]:
        return '\\"'
    return "'" if match[1] == "'" else match[0]
