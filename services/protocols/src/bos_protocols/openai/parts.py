"""Parts of runs: what one response or completion shows.

A run is cut where it asks for an approval, for the reply to that is the client's next turn. A part
begins with the run or behind such a request, and ends with the next one or with the run; so a part
never changes once it has ended, and its name says all there is to know of it.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_errors import NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from bos.gateway.v1 import RunEvent
    from bos_client import BosClient

_NAME = re.compile(r"([0-9A-Za-z-]{1,64})(?:_([1-9][0-9]{0,7}))?")
_STORED_S = 30.0
"""Time for events that are stored to arrive."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run."""

    run_id: str
    after: int = 0
    """Sequence of the request for approval that it follows; 0 for the beginning of the run."""

    @property
    def name(self) -> str:
        """The part within ids."""
        return f"{self.run_id}_{self.after}" if self.after else self.run_id

    @property
    def response_id(self) -> str:
        """Id of a response."""
        return f"resp_{self.name}"

    @property
    def completion_id(self) -> str:
        """Id of a chat completion."""
        return f"chatcmpl-{self.name}"


def part_of(response_id: str) -> Part:
    """The part that a response is.

    Raises:
        NotFound: it is no id of a response.
    """
    found = _NAME.fullmatch(response_id.removeprefix("resp_"))
    if found is None or not response_id.startswith("resp_"):
        raise _unknown(response_id)
    return Part(found[1], int(found[2] or 0))


def ends_part(part: Part, event: RunEvent) -> bool:
    """Whether the part ends with this event."""
    if event.HasField("approval_requested"):
        return event.sequence > part.after
    return event.HasField("run_finished")


async def events_of(client: BosClient, part: Part) -> AsyncGenerator[RunEvent, None]:
    """The events of a part up to its end, those that are to come included.

    The first one is ``run_accepted``, or the request for approval that the part follows.

    Raises:
        NotFound: the caller has no such run, or the run has no such part.
    """
    first = True
    async with aclosing(client.watch(part.run_id, max(part.after - 1, 0))) as events:
        async for event in events:
            if first and not _begins(part, event):
                raise _unknown(part.response_id)
            first = False
            yield event
            if ends_part(part, event):
                return
    if first:
        raise _unknown(part.response_id)


def _begins(part: Part, event: RunEvent) -> bool:
    if not part.after:
        return True
    return event.sequence == part.after and event.HasField("approval_requested")


async def read_stored(
    client: BosClient, part: Part, take: Callable[[RunEvent], object], quiet_s: float = 1.0
) -> RunEvent | None:
    """Hand on what there is of a part, and return its end; None if it is still under way.

    Args:
        client: Of the caller.
        part: The part.
        take: Called with each event.
        quiet_s: A run under way that is silent for this long, in seconds, has nothing stored left.
    """
    run = await client.get_run(part.run_id)
    wait_s = _STORED_S if run.HasField("response") else quiet_s
    loop = asyncio.get_running_loop()
    try:
        async with (
            asyncio.timeout(_STORED_S) as timer,
            aclosing(events_of(client, part)) as events,
        ):
            async for event in events:
                take(event)
                if ends_part(part, event):
                    return event
                timer.reschedule(loop.time() + wait_s)
    except TimeoutError:
        pass
    return None


def _unknown(response_id: str) -> NotFound:
    return NotFound(f"There is no response {response_id[:200]!r}.", reason="RESPONSE_NOT_FOUND")
