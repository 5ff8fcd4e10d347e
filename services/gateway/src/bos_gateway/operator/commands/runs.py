"""``bos runs log`` and ``bos runs adopted``: what is stored about runs, for those who run Bos."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import click
from google.protobuf.json_format import MessageToDict

from bos.runlog.v1 import LogEvent
from bos_client.text import one_line, run_status_text
from bos_errors import BosError, NotFound, Unavailable
from bos_gateway.core.fold import apply
from bos_gateway.core.revision_context import journal
from bos_gateway.core.run_state import BrokenLog, RunState, UnknownEvent
from bos_gateway.operator.commands.bounded import run_bounded
from bos_gateway.operator.commands.deployment import find_store
from bos_gateway.run_log.reader import EVENTS, PAGE_BYTES, PAGE_EVENTS
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect, statement_errors

_CONNECT_S: Final = 5.0
_MOST_RUNS: Final = 10_000
_SHORT_CHARS: Final = 160
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_OF_ONE_ATTEMPT: Final = 3  # its start, its end, and its final failure
_LONGEST_S: Final = 10 * 365 * 86400

# Runs are narrowed first: a run that was taken over has a higher epoch, and had not ended before.
_ADOPTED = """
SELECT r.run_id, r.status, r.finished_at, min(e.created_at) AS first, max(e.created_at) AS last,
       array_agg(e.payload ORDER BY e.created_at, e.sequence) AS payloads
FROM (
    SELECT run_id, status, finished_at FROM runs
    WHERE epoch > 1 AND (finished_at IS NULL OR finished_at >= now() - $1::interval)
    ORDER BY created_at DESC LIMIT $2
) AS r JOIN run_events AS e USING (run_id)
WHERE e.kind = 'run_adopted' AND e.created_at >= now() - $1::interval
GROUP BY r.run_id, r.status, r.finished_at ORDER BY first, r.run_id
"""


def _period(value: str) -> timedelta:
    """A number and a unit."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", value)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_S:
        raise click.BadParameter(f"{value!r} is not a period such as 90s, 30m, 1h or 7d")
    return timedelta(seconds=seconds)


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
@click.option(
    "--since",
    metavar="PERIOD",
    type=_period,
    default="1h",
    show_default=True,
    help="Such as 30m, 7d.",
)
@_json
def adopted(since: timedelta, as_json: bool) -> None:
    """Runs that changed their owner: when, how often, why, and how they ended.

    Reads the gateway's database itself, and of it the latest 10,000 such runs. Reasons:
    lease_expired (the owner died or was cut off), released (it let go, as when it drains), resumed
    (the same one took the run up again).
    """
    _run(_show_adopted(since, as_json=as_json))


async def _show_log(run_id: UUID, *, as_json: bool) -> None:
    expected, state, understood = 1, RunState(str(run_id)), True
    async with _store() as session:
        while page := await session.fetch(EVENTS, run_id, expected - 1, PAGE_EVENTS, PAGE_BYTES):
            for row in page:
                if row["sequence"] > expected and not as_json:
                    click.echo(f"{expected:>6}  … to {row['sequence'] - 1} are not stored any more")
                event = LogEvent.FromString(row["payload"])
                click.echo(_as_json(row, event) if as_json else _line(row, event))
                expected = row["sequence"] + 1
                try:
                    if understood:
                        apply(state, event)
                except (UnknownEvent, BrokenLog):
                    understood = False  # attempts are shown as far as this version can follow
    if expected == 1:
        raise NotFound(f"There is no run {run_id}.")
    attempts = journal(state)
    if not as_json and len(attempts) > _OF_ONE_ATTEMPT:
        for each in attempts:
            click.echo(f"attempt  {one_line(each.entry)}")


async def _show_adopted(since: timedelta, *, as_json: bool) -> None:
    async with _store() as session:
        runs = await session.fetch(_ADOPTED, since, _MOST_RUNS)
    for run in runs:
        click.echo(_adopted(run, as_json=as_json))
    if not as_json and not runs:
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


def _adopted(run: asyncpg.Record, *, as_json: bool) -> str:
    first, last, ended = run["first"], run["last"], run["finished_at"]
    reasons = Counter(LogEvent.FromString(each).run_adopted.reason for each in run["payloads"])
    status = run_status_text(run["status"])
    if as_json:
        return json.dumps(
            {
                "run_id": str(run["run_id"]),
                "first": first.isoformat(),
                "last": last.isoformat(),
                "times": reasons.total(),
                "reasons": reasons,
                "status": status,
                "ended": ended and ended.isoformat(),
            }
        )
    when = _time(first) if first == last else f"{_time(first)} to {_time(last)}"
    why = ", ".join(f"{times} x {reason}" for reason, times in sorted(reasons.items()))
    return one_line(f"{run['run_id']}  {when}  {why}  {status}{'' if ended else ' (not ended)'}")


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
