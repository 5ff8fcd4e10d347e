"""Asking a model to mend its reply, without leading it back into what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos_llm.replies.thinking import without_thinking

if TYPE_CHECKING:
    from bos_llm.replies.schema import JsonSchema

_MAX_SHOWN_CHARS = 4000
_MAX_SHOWN_OF_LOOP_CHARS = 300
_TAIL_CHARS = 1200
_MIN_LOOP_CHARS = 200
_MIN_ROUNDS = 4
_CLOSING = "]}\"'`, \t\r\n"
_BRIEF = (
    "Reply again, briefly: at most 5 items per list, no item twice, one sentence per text. "
    "Reply with the complete JSON object and nothing else."
)
_AGAIN = "Reply again with the complete, corrected JSON object and nothing else."


def repair(
    reply_text: str, problem: str, schema: JsonSchema[Any], truncated: bool
) -> tuple[str, str]:
    """What to show a model of its unusable reply, and what to say about it.

    A reply that repeats itself or has no end is hardly shown: a model that sees its own loop
    goes on with it.

    Args:
        reply_text: What the model said; its thoughts are not shown.
        problem: What is wrong, in the text of :class:`bos_llm.replies.schema.UnusableReply`.
        schema: What the reply should be.
        truncated: Whether the token limit ended the reply.

    Returns:
        The reply to show, which may be blank, and the complaint.
    """
    brief = truncated or is_looping(reply_text)
    shown = without_thinking(reply_text)
    shown = shown[: _MAX_SHOWN_OF_LOOP_CHARS if brief else _MAX_SHOWN_CHARS]
    wanted = _BRIEF if brief else _AGAIN
    complaint = f"Your reply is not a valid {schema.name}:\n{problem}\n{wanted}\n\n{schema.form}"
    return shown, complaint


def is_looping(text: str) -> bool:
    """Whether a text ends in repetitions of a short piece, as greedy decoding may without end."""
    for tail in (text[-_TAIL_CHARS:], text.rstrip(_CLOSING)[-_TAIL_CHARS:]):
        for period in range(1, len(tail) // _MIN_ROUNDS + 1):
            length = max(_MIN_LOOP_CHARS, period * _MIN_ROUNDS)
            end = tail[-length:]
            if len(end) == length and end[period:] == end[:-period]:
                return True
    return False
