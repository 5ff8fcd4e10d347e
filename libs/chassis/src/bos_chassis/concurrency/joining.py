"""Shared calls: callers that ask the same at the same time get one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Joined(Generic[T]):
    """Joins equal questions: while one is under way, callers with the same wait for its answer.

    Nothing runs in the background: the first to come asks, in its own task. If it is cancelled, one
    of those who wait asks again.
    """

    def __init__(self) -> None:
        self._under_way: dict[bytes, asyncio.Future[T]] = {}

    async def ask(self, name: bytes, question: Callable[[], Awaitable[T]]) -> T:
        """The answer to the question called ``name``, or what asking it raised."""
        while (under_way := self._under_way.get(name)) is not None:
            await asyncio.wait([under_way])  # which a caller who leaves does not cancel
            if not under_way.cancelled():
                return under_way.result()
        answer = self._under_way[name] = asyncio.get_running_loop().create_future()
        try:
            found = await question()
        except Exception as error:
            answer.set_exception(error)
            answer.exception()  # retrieved, as no caller may wait for it
            raise
        else:
            answer.set_result(found)
            return found
        finally:
            del self._under_way[name]
            answer.cancel()  # unless it is there: the caller who asked has left
