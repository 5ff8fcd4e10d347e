"""Masking of a run's credentials in results, events and texts. Pure.

A service that a credential was given to may say it again: in an answer, a cell, an error, a header
it quotes. Before any of that is kept, each credential long enough to be distinguished from ordinary
text becomes ``[secret KEY]``, as it is and in the encodings that messages commonly hold
(:mod:`bos_chassis.credentials.credential_forms`), and also at the end of a text that was cut within
it. Arguments of proposed actions are the one thing that is put together again, by the agent that
performs them: there each form has a mask of its own, and a part of a form stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from bos.agent.v1 import ProposedAction
from bos_chassis.credentials.credential_forms import MIN_SECRET_CHARS, masks, telling_masks

_CUT_MARKS = ".…"
_LEAST_SHARE = 4
"""A beginning of a form counts from a fourth of it on, and from six characters: less is a word."""
_Named = tuple[str, bytes, str]
"""A form of a credential, as text and as bytes, and its mask."""


class Masker:
    """Masks the credentials of one run in messages and texts; false, and free, without any.

    Args:
        secrets: The credentials by context key.

    Raises:
        TooManyParts: They consist of too many texts to be looked for.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._named = [(form, form.encode(), mask) for form, mask in masks(secrets).items()]
        self._telling = telling_masks(secrets)
        self._masks = {form: mask for form, _, mask in self._named}
        self._all = _Replacing(self._named, also_cut=False)

    def __bool__(self) -> bool:
        return bool(self._named)

    def text(self, text: str, *, may_be_cut: bool = False) -> str:
        """``text`` with masks, also for what it ends with if it may have been cut there."""
        if not self._named:
            return text
        masked: str = self._all.masked(text)
        return _end_replaced(masked, self._masks) if may_be_cut else masked

    def begun(self, text: str) -> int:
        """Number of characters at the end of ``text`` that a credential may begin with."""
        most = 0
        for form, _, _ in self._named:
            for count in range(min(len(form) - 1, len(text)), most, -1):
                if text.endswith(form[:count]):
                    most = count
                    break
        return most

    def mask(self, message: Message) -> None:
        """Mask texts, bytes and names of map entries in a message and all that it holds."""
        if not self._named:
            return
        # Texts stand in the serialised form as they are, so most messages need no walk.
        content = message.SerializeToString()
        begun = [each for each in self._named if each[0][: _least(each[0])].encode() in content]
        if begun:
            whole = [each for each in begun if each[1] in content]
            telling = [(text, form, self._telling[text]) for text, form, _ in whole]
            _Replacing(begun).message(message, _Replacing(telling, also_cut=False))


class MaskedStream:
    """A text in pieces, with masks also where a credential is cut between two of them."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""

    def add(self, piece: str) -> str:
        """Text that may be shown by now; a possible beginning of a credential waits for more."""
        if not self._masker:
            return piece
        text = self._masker.text(self._held + piece)
        shown = len(text) - self._masker.begun(text)
        self._held = text[shown:]
        return text[:shown]


class _Replacing:
    """Replaces some forms of credentials by their masks, in one pass: no mask is masked again."""

    def __init__(self, named: Iterable[_Named], *, also_cut: bool = True) -> None:
        masks = {form: mask for form, _, mask in named}
        self._cut = masks if also_cut else {}
        # Masks that are there already stay as they are. Then the longest first: what is left of it
        # would otherwise stand beside the mask of a part.
        forms = [(mask, mask) for mask in sorted(set(masks.values()))]
        forms += sorted(masks.items(), key=lambda each: (-len(each[0]), each[0]))
        self._in_text = forms
        self._in_bytes = [(form.encode(), mask.encode()) for form, mask in forms]

    def message(self, message: Message, arguments: _Replacing) -> None:
        """Mask a message, in place, with other masks in the arguments of proposed actions."""
        waiting = [message]
        while waiting:  # however deep it is
            current = waiting.pop()
            for field, value in current.ListFields():
                if isinstance(current, ProposedAction) and field.name == "arguments":
                    arguments.message(value, arguments)
                elif isinstance(value, Message):
                    waiting.append(value)
                elif isinstance(value, str | bytes):
                    setattr(current, field.name, self.masked(value))
                elif _is_map(field):
                    self._names(value)
                    waiting += self._entries(value)
                elif field.message_type is not None:
                    waiting += value
                elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
                    value[:] = [self.masked(each) for each in value]

    def _names(self, entries: Any) -> None:
        """Give entries whose names hold a credential other names, none of which is lost."""
        for name in [each for each in entries if isinstance(each, str)]:
            masked = self.masked(name)
            if masked == name:
                continue
            number, free = 1, masked
            while free in entries:
                number += 1
                free = f"{masked} ({number})"
            if isinstance(entries[name], Message):
                entries[free].CopyFrom(entries[name])
            else:
                entries[free] = entries[name]
            del entries[name]

    def _entries(self, entries: Any) -> Iterator[Message]:
        for name in list(entries):
            value = entries[name]
            if isinstance(value, Message):
                yield value
            elif isinstance(value, str | bytes):
                entries[name] = self.masked(value)

    def masked(self, value: Any) -> Any:
        """A text, or bytes, with masks."""
        if isinstance(value, str):
            return _end_replaced(_replaced(value, self._in_text), self._cut)
        return _replaced(value, self._in_bytes)


def _replaced(value: Any, forms: Sequence[tuple[Any, Any]]) -> Any:
    """``value`` with each form replaced; of two that overlap the one that begins first counts.

    Plain searches: a regular expression of many long forms takes seconds to be made.
    """
    found = []
    for rank, (form, _) in enumerate(forms):
        at = value.find(form)
        while at >= 0:
            found.append((at, rank))
            at = value.find(form, at + 1)
    if not found:
        return value
    pieces, end = [], 0
    for at, rank in sorted(found):
        if at >= end:
            form, mask = forms[rank]
            pieces += [value[end:at], mask]
            end = at + len(form)
    return value[:0].join([*pieces, value[end:]])


def _end_replaced(text: str, masks: Mapping[str, str]) -> str:
    """``text`` with a mask for what it ends with, if that is a form that goes on."""
    shown = text.rstrip(_CUT_MARKS)
    most, found = 0, ""
    for form, mask in masks.items():
        least = max(_least(form), most + 1)
        if form[:least] not in shown[-len(form) :]:
            continue
        for count in range(min(len(form) - 1, len(shown)), least - 1, -1):
            if shown.endswith(form[:count]):
                most, found = count, mask
                break
    return shown[: len(shown) - most] + found + text[len(shown) :] if most else text


def _least(form: str) -> int:
    return max(MIN_SECRET_CHARS, -(-len(form) // _LEAST_SHARE))


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
