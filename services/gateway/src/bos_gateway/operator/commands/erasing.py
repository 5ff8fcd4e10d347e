"""``bos runs erase``: deletes runs and everything that is stored about them."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import UUID

import click

from bos_artefacts import open_artefacts
from bos_errors import BosError
from bos_gateway.operator.commands.bounded import run_bounded
from bos_gateway.operator.commands.deployment import find_run_stores
from bos_gateway.run_log.retention import Scope, cancel
from bos_gateway.run_log.retention import erase as erase_runs
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect, statement_errors

_CANCEL_TIMEOUT_S: Final = 30.0


@click.command()
@click.option("--user", metavar="USER", help="All runs of this user.")
@click.option("--run", "run_id", type=click.UUID, metavar="RUN", help="This run.")
@click.option("--cancel", "cancel_first", is_flag=True, help="First end what is still under way.")
def erase(user: str | None, run_id: UUID | None, *, cancel_first: bool) -> None:
    """Delete runs of a user, or one run, with everything that is stored about them.

    Works on the gateway's database itself, as an operator, and leaves an entry in its audit trail.
    Files in an artefact store are deleted too: that of a running `bos serve all`, or the one that
    BOS_GATEWAY_ARTEFACTS_URL names. An account that the identity service keeps is erased as a whole
    by `bos account delete`.
    """
    if (user is None) == (run_id is None):
        raise click.UsageError("Name either --user or --run.")
    try:
        run_bounded(_erase(Scope(user, run_id), cancel_first=cancel_first))
    except BosError as error:
        raise click.ClickException(error.message) from None


async def _erase(scope: Scope, *, cancel_first: bool) -> None:
    store_url, artefacts_url = find_run_stores(Path.cwd())
    files = RunFiles(open_artefacts(artefacts_url) if artefacts_url else None)
    async with connect(store_url, application_name="bos-operator-erase", schema=SCHEMA) as session:
        with statement_errors(session):
            if cancel_first:
                await cancel(session, scope, timeout_s=_CANCEL_TIMEOUT_S)
            erased = await erase_runs(session, scope, files)
    click.echo(
        f"Erased {erased['runs']} run(s) of {scope}: "
        f"{erased['events']} event(s), {erased['bytes']} bytes of payload, "
        f"{erased['files']} file(s) in the artefact store."
    )
