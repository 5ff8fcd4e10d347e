"""``bos runs log`` and ``bos runs adopted``: what is stored about runs, for those who run Bos."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import click
from google.protobuf.json_format import MessageToDict

from bos.runlog.v1 import LogEvent
from bos_chassis.errors import BosError, NotFound, Unavailable
from bos_client.render.text import one_line, run_status_text
from bos_gateway.attempts import journal
from bos_gateway.operator.bounded import run_bounded
from bos_gateway.operator.deployment import find_store
from bos_gateway.run_log import SCHEMA
from bos_gateway.runs import EVENTS, PAGE_BYTES, PAGE_EVENTS
from bos_gateway.state import BrokenLog, RunState, UnknownEvent, apply
from bos_postgres import connect, statement_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from uuid import UUID

    from bos.gateway.v1 import RunStatus

_CONNECT_S: Final = 5.0
_MOST_RUNS: Final = 10_000
_SHORT_CHARS: Final = 160
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_OF_ONE_ATTEMPT: Final = 3  # its start, its end, and that it failed for good
_LONGEST_S: Final = 10 * 365 * 86400

# Runs are narrowed first: a run that was taken over has a higher epoch, and had not ended before.
_ADOPTED = """
SELECT r.run_id, r.status, r.finished_at, e.created_at, e.payload
FROM (
    SELECT run_id, status, finished_at FROM runs
    WHERE epoch > 1 AND (finished_at IS NULL OR finished_at >= now() - $1::interval)
    ORDER BY created_at DESC LIMIT $2
) AS r JOIN run_events AS e USING (run_id)
WHERE e.kind = 'run_adopted' AND e.created_at >= now() - $1::interval
ORDER BY e.created_at, r.run_id, e.sequence
"""


class _Period(click.ParamType[timedelta]):
    """A number and a unit."""

    name = "period"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([0-9]{1,9})([smhd])", value)
        seconds = int(match[1]) * _UNITS[match[2]] if match else 0
        if not 0 < seconds <= _LONGEST_S:
            self.fail(f"{value!r} is not a period such as 90s, 30m, 1h or 7d", param, ctx)
        return timedelta(seconds=seconds)


@dataclass(slots=True)
class _Changes:
    """Changes of owner of one run."""

    status: RunStatus
    ended: datetime | None
    first: datetime
    last: datetime
    reasons: Counter[str] = field(default_factory=Counter)


class _Attempts:
    """What a log says was attempted (SPEC C-26), as far as this version understands it."""

    def __init__(self, run_id: str) -> None:
        self._state = RunState(run_id)
        self._whole = True

    def take(self, event: LogEvent) -> None:
        """One more event."""
        if self._whole:
            try:
                apply(self._state, event)
            except (UnknownEvent, BrokenLog):
                self._whole = False

    def told(self) -> list[str]:
        """One line each, oldest first; none if the first plan was the only one."""
        entries = journal(self._state)
        return [one_line(each.entry) for each in entries] if len(entries) > _OF_ONE_ATTEMPT else []


_json = click.option("--json", "as_json", is_flag=True, help="One JSON object per line, whole.")


@click.command()
@click.argument("run_id", type=click.UUID)
@_json
def log(run_id: UUID, as_json: bool) -> None:
    """The stored log of a run: sequence, time (UTC), epoch, kind, content.

    Reads the gateway's database itself. Credentials of a request are never stored; what users
    wrote, and the data that answered them, is: treat the output accordingly.
    """
    _run(_show_log(run_id, as_json=as_json))


@click.command()
@click.option("--since", type=_Period(), default="1h", show_default=True, help="Such as 30m, 7d.")
@_json
def adopted(since: timedelta, as_json: bool) -> None:
    """Runs that changed their owner: when, how often, why, and how they ended.

    Reads the gateway's database itself, and of it the latest 10,000 such runs. Reasons:
    lease_expired (the owner died or was cut off), released (it let go, as when it drains), resumed
    (the same one took the run up again).
    """
    _run(_show_adopted(since, as_json=as_json))


async def _show_log(run_id: UUID, *, as_json: bool) -> None:
    expected, state = 1, _Attempts(str(run_id))
    async with _store() as session:
        while page := await session.fetch(EVENTS, run_id, expected - 1, PAGE_EVENTS, PAGE_BYTES):
            for row in page:
                if row["sequence"] > expected and not as_json:
                    click.echo(f"{expected:>6}  … to {row['sequence'] - 1} are not stored any more")
                event = LogEvent.FromString(row["payload"])
                click.echo(_as_json(row, event) if as_json else _line(row, event))
                state.take(event)
                expected = row["sequence"] + 1
    if expected == 1:
        raise NotFound(f"There is no run {run_id}.")
    for entry in () if as_json else state.told():
        click.echo(f"attempt  {entry}")


async def _show_adopted(since: timedelta, *, as_json: bool) -> None:
    found: dict[UUID, _Changes] = {}
    async with _store() as session:
        rows = await session.fetch(_ADOPTED, since, _MOST_RUNS)
    for row in rows:
        at = row["created_at"]
        changes = found.setdefault(
            row["run_id"], _Changes(row["status"], row["finished_at"], at, at)
        )
        changes.last = at
        changes.reasons[LogEvent.FromString(row["payload"]).run_adopted.reason] += 1
    for run_id, changes in found.items():
        click.echo(_adopted_json(run_id, changes) if as_json else _adopted_line(run_id, changes))
    if not as_json and not found:
        click.echo("no run changed its owner")


@asynccontextmanager
async def _store() -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    async with connect(
        find_store(Path.cwd()),
        application_name="bos-operator",
        schema=SCHEMA,
        connect_timeout_s=_CONNECT_S,
    ) as session:
        try:
            with statement_errors(session):
                yield session
        except (asyncpg.UndefinedTableError, asyncpg.InsufficientPrivilegeError) as error:
            raise Unavailable("The run log cannot be read there; ask `bos doctor`.") from error


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        run_bounded(work)
    except BosError as error:
        raise click.ClickException(error.message) from None
    sys.stdout.flush()


def _line(row: asyncpg.Record, event: LogEvent) -> str:
    kind = event.WhichOneof("event")
    text = "(of a newer version)"
    if kind is not None:
        content = MessageToDict(getattr(event, kind), preserving_proto_field_name=True)
        text = one_line(json.dumps(content, ensure_ascii=False), _SHORT_CHARS)
    at = _time(row["created_at"])
    return f"{row['sequence']:>6}  {at}  {row['epoch']:>3}  {row['kind']:<18} {text}"


def _as_json(row: asyncpg.Record, event: LogEvent) -> str:
    return json.dumps(
        {
            "sequence": row["sequence"],
            "epoch": row["epoch"],
            "kind": row["kind"],
            "event": MessageToDict(event, preserving_proto_field_name=True),
        },
        ensure_ascii=False,
    )


def _adopted_line(run_id: UUID, changes: _Changes) -> str:
    when = _time(changes.first)
    if changes.last != changes.first:
        when += f" to {_time(changes.last)}"
    reasons = ", ".join(f"{times} x {reason}" for reason, times in sorted(changes.reasons.items()))
    return one_line(f"{run_id}  {when}  {reasons}  {_end(changes)}")


def _end(changes: _Changes) -> str:
    status = run_status_text(changes.status)
    return f"{status} (not ended)" if changes.ended is None else status


def _adopted_json(run_id: UUID, changes: _Changes) -> str:
    return json.dumps(
        {
            "run_id": str(run_id),
            "first": changes.first.isoformat(),
            "last": changes.last.isoformat(),
            "times": changes.reasons.total(),
            "reasons": dict(changes.reasons),
            "status": run_status_text(changes.status),
            "ended": changes.ended.isoformat() if changes.ended else None,
        }
    )


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
