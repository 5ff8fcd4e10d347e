"""What a person's message says about an action that waits for approval."""

from __future__ import annotations

from dataclasses import dataclass

_APPROVING = frozenset({"yes", "y", "approve", "approved", "allow"})
_DENYING = frozenset({"no", "n", "deny", "denied", "reject", "cancel"})
_AROUND = " \t\r\n.!\"'*_`"


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about exactly what was shown."""

    approved: bool
    """Whether it is allowed. With instructions nothing is done: another proposal is made."""
    instructions: str = ""
    """What to do in its place, in the person's words."""


def decision_of(text: str) -> Decision:
    """The decision that a message is: one word of consent or refusal, or else instructions.

    A message that merely contains such a word decides nothing: it leads to another proposal, which
    is shown again. An empty message is a refusal.
    """
    word = text.strip(_AROUND).casefold()
    if word in _APPROVING:
        return Decision(approved=True)
    if word in _DENYING or not word:
        return Decision(approved=False)
    return Decision(approved=True, instructions=text.strip())
