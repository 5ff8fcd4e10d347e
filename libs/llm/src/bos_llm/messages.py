"""Messages of a conversation with a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Message:
    """One message; made by :func:`system`, :func:`user` and :func:`assistant`."""

    role: Literal["system", "user", "assistant"]
    text: str


def system(text: str) -> Message:
    """Instructions."""
    return Message("system", text)


def user(text: str) -> Message:
    """A message of the user."""
    return Message("user", text)


def assistant(text: str) -> Message:
    """An earlier message of the model."""
    return Message("assistant", text)
