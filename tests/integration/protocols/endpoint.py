"""What every endpoint can do, in the words of the cases."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .harness import Harness

_WITHIN_S = 120.0
_LOOK_S = 0.05


class State(StrEnum):
    """Where a question stands, as its client sees it."""

    ANSWERED = "answered"
    WAITS_FOR_APPROVAL = "waits for approval"
    ASKS_BACK = "asks back"
    CANCELLED = "cancelled"
    FAILED = "failed"
    UNDER_WAY = "under way"


@dataclass
class Seen:
    """What a client saw of a question so far."""

    state: State
    text: str = ""
    """The answer, the question back, or all that is shown of the action that waits."""
    rows: list[list[str]] = field(default_factory=list)
    handle: Any = None
    """What the client needs to go on with, of the endpoint's own kind."""
    pieces: list[str] = field(default_factory=list)
    """The text as it came, if it was streamed."""


class Refused(Exception):
    """The endpoint refuses; its text is what the client saw."""


async def patiently(
    call: Callable[[], Awaitable[Seen]], error: type[Exception], signs: tuple[str, ...]
) -> Seen:
    """Try again while the service is away, which is what ``error`` with one of ``signs`` says."""
    async with asyncio.timeout(_WITHIN_S):
        while True:
            try:
                return await call()
            except error as failure:
                if not any(sign in str(failure) for sign in signs):
                    raise
            await asyncio.sleep(_LOOK_S)


class Endpoint(ABC):
    """One user's client of one endpoint; an async context manager."""

    name: str

    def __init__(self, harness: Harness, token: str) -> None:
        self.harness = harness
        self.token = token

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    @abstractmethod
    async def ask(self, question: str) -> Seen:
        """Ask, and wait until it is answered, waits for a person, or asks back."""

    @abstractmethod
    async def stream(self, question: str) -> Seen:
        """Ask and read the text as it comes."""

    @abstractmethod
    async def drop(self, question: str) -> Seen:
        """Ask, read the first piece of the answer, and lose the connection."""

    @abstractmethod
    async def resume(self, dropped: Seen) -> Seen:
        """Go on behind what was seen; the text is the whole, what was seen before included."""

    @abstractmethod
    async def reply(self, waiting: Seen, text: str) -> Seen:
        """Say something to what asks back, or yes or no to what waits for approval."""

    @abstractmethod
    async def cancel(self, dropped: Seen) -> None:
        """Ask for the end of what is under way."""

    @abstractmethod
    async def look(self, dropped: Seen) -> Seen:
        """How a question stands.

        Raises:
            Refused: it is not the caller's, or there is none.
        """
