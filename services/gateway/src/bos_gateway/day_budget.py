"""Tokens of a day: what a user, and everybody together, may still spend until midnight UTC.

A run's whole budget is held by the statement that accepts it, and what its log counted takes the
place of that in the statement that ends it; in between nothing has to be done, and nobody has to
remember anything. What is kept beside the log (``token_days``, ``runs.day_tokens``) follows from
it. A run counts for the day on which it was accepted. One whose end does not say what it consumed,
such as one that could not be read any more, counts with all that it held.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from bos.runlog.v1 import LogEvent
from bos_chassis.errors import ResourceExhausted
from bos_gateway.budget import MIN_STEP_TOKENS, counted

if TYPE_CHECKING:
    from bos_gateway.run_log import LogWriter, NewRun

# Planning, one step and an answer; what remains of a day may be less than a run's usual budget, but
# with less than this it would only be spent on questions that come to nothing.
MIN_RUN_TOKENS: Final = 5 * MIN_STEP_TOKENS
# Others may take what was just left over; by then there is little left to be had.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class DayBound:
    """One of the bounds, and where it stands."""

    limit: int
    left: int
    """Also negative: a run may have consumed more than it held."""


class DayLimit(Exception):
    """The day's tokens do not suffice for the run as it is; nothing was written.

    Args:
        of_user: The bound of its user, if there is one.
        of_all: The bound of everybody together, if there is one.
        resets_in_s: Seconds until the next day begins, by the clock of the database.
    """

    def __init__(
        self, of_user: DayBound | None, of_all: DayBound | None, resets_in_s: float
    ) -> None:
        super().__init__("day limit")
        self.of_user = of_user
        self.of_all = of_all
        self.resets_in_s = resets_in_s

    @property
    def left(self) -> int:
        """What one more run may hold."""
        return min(bound.left for bound in (self.of_user, self.of_all) if bound is not None)


def held(run: NewRun) -> int:
    """Tokens that the run holds until it ends: its whole budget."""
    return run.event.run_accepted.settings.max_tokens


def settled(event: LogEvent) -> int | None:
    """What the end of a run counts against its day; None if it does not say."""
    metadata = event.run_finished.response.metadata
    return counted(metadata.usage) if metadata.max_tokens else None


async def accept(writer: LogWriter, run: NewRun) -> NewRun | None:
    """Store a run, with a smaller budget if that is all that the day has left.

    Returns:
        The run as it was stored; None when its user already has one under this request id.

    Raises:
        DayLimit: what is left of the day is not worth beginning with.
        UserLimit: the user has too many unfinished runs.
        LogRefused: PostgreSQL refuses to store it, or has no room left.
    """
    least = min(held(run), MIN_RUN_TOKENS)
    for _ in range(_TRIES - 1):
        try:
            return run if await writer.accept(run) else None
        except DayLimit as limit:
            if limit.left < least:
                raise
            run = _with_tokens(run, min(held(run), limit.left))
    return run if await writer.accept(run) else None


def _with_tokens(run: NewRun, tokens: int) -> NewRun:
    event = LogEvent()
    event.CopyFrom(run.event)
    event.run_accepted.settings.max_tokens = tokens
    return replace(run, event=event)


def day_limit(limit: DayLimit, now: datetime) -> ResourceExhausted:
    """What a user hears when a day's tokens are spent; of others' consumption nothing."""
    resets_at = (now + timedelta(seconds=limit.resets_in_s)).astimezone(UTC)
    metadata = {"reset_time": resets_at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    mine = limit.of_user
    if mine is None or (limit.of_all is not None and limit.of_all.left < mine.left):
        text, reason = "The model tokens of this installation for today are spent.", "DAY_LIMIT"
    else:
        used = mine.limit - mine.left
        text = f"You have used {used} of the {mine.limit} model tokens that you have for a day."
        reason = "USER_DAY_LIMIT"
        metadata |= {"used_tokens": str(used), "limit_tokens": str(mine.limit)}
    return ResourceExhausted(
        f"{text} What questions in work do not need comes back when they end; all of it at 00:00 "
        "UTC.",
        reason=reason,
        metadata=metadata,
        retry_after_s=limit.resets_in_s,
    )
