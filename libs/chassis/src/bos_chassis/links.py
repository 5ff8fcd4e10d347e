"""Links in texts of models that have read what others wrote: only given addresses stay. Pure.

An image is fetched, and a link often followed, without a look at its address: an address that a
model puts together can carry what it has read to the author of the text that it obeys. An address
that stood word for word in what it was given carries nothing that its author does not know.
Renderers of Markdown differ, so that everything one of them could take for a link is checked.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import Final

REMOVED: Final = "(link removed)"
"""Stands for an address that was not given."""

_SCHEME: Final = r"(?<![A-Za-z0-9+.-])[0-9+.-]*+[A-Za-z][A-Za-z0-9+.-]*+"
_ADDRESS: Final = (
    rf"(?:{_SCHEME}\\*+:\\*+/\\*+/|(?<![A-Za-z0-9])www\\*\.|(?:mailto|xmpp)\\*:)[^\s<]*+"
)
_GIVEN: Final = re.compile(rf"(?:{_SCHEME}://|\bwww\.|\bmailto:|\bxmpp:)[^\s<]*+", re.IGNORECASE)
_ENTITIES: Final = (
    "colon|sol|period|bsol|commat|quest|equals|num|excl|lpar|rpar|lsqb|lbrack|rsqb|rbrack|Tab"
    "|NewLine"
)
_PART: Final = re.compile(
    rf"""
      (?P<image>!(?=\[(?!\d{{1,4}}(?:,[ ]?\d{{1,4}})*\](?!\())))  # a citation after a call stays
    | (?P<target>\]\()
    | (?P<definition>\]:)
    | (?P<tag><(?=[A-Za-z][A-Za-z0-9-]*(?:[\s/]|\Z)))
    | (?P<entity>&(?=\#|(?:{_ENTITIES});))
    | (?P<bare>{_ADDRESS})
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BROKEN: Final = {"image": "", "definition": "] :", "tag": "< ", "entity": "& "}
_TARGET: Final = re.compile(r"<[^>\n]*>|\S*")
_TARGET_BEGINS: Final = re.compile(r"<[^>\n]*|\S*")
# What goes on behind a space: a target in angle brackets, and numbers of a citation.
_HOLDS_SPACES: Final = re.compile(
    r"\]\(<[^>\n]*(?:>|\Z)|!\[\d{1,4}(?:, ?\d{1,4})*(?:\]|(?:, ?)?\Z)"
)
_LEADS_OUT: Final = re.compile(r"[a-z][a-z0-9+.-]*:|[/\\]{2}", re.IGNORECASE)
_ESCAPED: Final = re.compile(r"\\([!-/:-@\[-`{-~])")
_INVISIBLE: Final = re.compile(r"[\x00-\x20\x7f]")
_TRAILING: Final = re.compile(r"(?:[?!.,:;*_~'\"()\[\]{}>|`“”‘’]|\[\d{1,4}\])+\Z")
_DELIMITER: Final = re.compile(r"[\"'<>()\[\]{}|`\\,;“”‘’]")
_UP_TO_SPACE: Final = re.compile(r"(?s:.*)\s")
_BEGUN: Final = re.compile(r"[!\[\]<&:/\\.]")
_ASCII_END: Final = re.compile(r"[!-~]*\Z")
_MAX_WORD_CHARS: Final = 4_096
_PIECE_CHARS: Final = 1_024
_MAX_SCHEME_CHARS: Final = 200


def may_hold_links(text: str) -> bool:
    """Whether there is anything in a text that :class:`LinkCheck` could change; quick."""
    return _PART.search(text) is not None


class LinkCheck:
    """Streaming check of the links of one text: takes pieces of any size.

    Images become links; a link whose address was not given loses it; tags with attributes and
    definitions of links become text.

    Args:
        given: Texts whose addresses stay; they are looked through once an address is met.
    """

    def __init__(self, given: Iterable[str]) -> None:
        self.removed = 0
        """Addresses that were not given."""
        self._given = given
        self._known: frozenset[str] | None = None
        self._held = ""

    def add(self, text: str) -> str:
        """Add a piece; returns the text that is decided, possibly empty."""
        # In parts, as each looks through all that is held.
        parts = range(0, len(text), _PIECE_CHARS)
        return "".join([self._added(text[start : start + _PIECE_CHARS]) for start in parts])

    def end(self) -> str:
        """End of the text; returns the rest."""
        rest, self._held = self._checked(self._held), ""
        return rest

    def _added(self, text: str) -> str:
        held = self._held + text
        space = _UP_TO_SPACE.match(held)
        end = space.end() if space else 0
        word = held[end:]
        if not _BEGUN.search(word):
            # Scripts without spaces: only what may become an address is held back.
            end += len(word) - len(_ASCII_END.findall(word)[0])
        for found in reversed(list(_HOLDS_SPACES.finditer(held))):
            may_go_on = not found[0].endswith((">", "]"))
            if found.start() < end < found.end() + may_go_on:
                # Up to a space again: what stands right before it may be read with it.
                space = _UP_TO_SPACE.match(held, 0, found.start())
                end = space.end() if space else 0
        self._held = held[end:]
        decided = self._checked(held[:end])
        if len(self._held) > _MAX_WORD_CHARS:
            # A space, or the next piece could make an address of this one.
            decided += self._checked(self._held) + " "
            self._held = ""
        return decided

    def _checked(self, text: str) -> str:
        pieces: list[str] = []
        place = 0
        while part := _PART.search(text, place):
            pieces.append(text[place : part.start()])
            kind = str(part.lastgroup)
            place = part.end()
            if kind == "target":
                shown, place = self._target(text, place)
            elif kind == "bare":
                address = part[0].partition("](")[0]
                shown, place = self._bare(address), part.start() + len(address)
            else:
                shown = _BROKEN[kind]
            pieces.append(shown)
        return "".join([*pieces, text[place:]])

    def _bare(self, address: str) -> str:
        core = _core(address)
        if self._is_known(core):
            return address
        self.removed += 1
        return REMOVED + address[len(core) :]

    def _target(self, text: str, start: int) -> tuple[str, int]:
        """What is shown for the target of a link that begins at ``start``, and where it ends."""
        if not text[start : start + 1].strip():
            return "] (", start
        found = _TARGET_BEGINS.match(text, start, start + _MAX_SCHEME_CHARS)
        begins = found[0] if found else ""
        if not any(map(_LEADS_OUT.match, _readings(begins))):
            return "](", start
        found = _TARGET.match(text, start)
        target = _closed(found[0] if found else "")
        written, address = _readings(target)
        if written == address and self._is_known(address):
            return f"]({target}", start + len(target)
        self.removed += 1
        end = start + len(target)
        return f"] {REMOVED}", end + (text[end : end + 1] == ")")

    def _is_known(self, address: str) -> bool:
        if self._known is None:
            self._known = frozenset(each for text in self._given for each in _addresses(text))
        return address in self._known


def checked_links(text: str, given: Iterable[str]) -> str:
    """A whole text with its links checked, as :class:`LinkCheck` does."""
    check = LinkCheck(given)
    return check.add(text) + check.end()


def _addresses(text: str) -> Iterator[str]:
    """Addresses in a text that was given, also those within quotes, brackets and markup."""
    for found in _GIVEN.finditer(text):
        yield _core(found[0])
        yield _core(_DELIMITER.split(found[0], maxsplit=1)[0])


def _readings(target: str) -> tuple[str, str]:
    """A target as written and as read by renderers that take backslashes for escapes."""
    written = _INVISIBLE.sub("", html.unescape(target.strip("<>")))
    return written, _ESCAPED.sub(r"\1", written)


def _closed(target: str) -> str:
    """``target`` up to the bracket that closes the link."""
    if target.startswith("<"):
        return target
    depth = 0
    for place, character in enumerate(target):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return target[:place]
    return target


def _core(address: str) -> str:
    """An address without the punctuation and citations behind it."""
    return _TRAILING.sub("", address)
