"""``bos account …``: one's own account as a whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bos_cli.session import ANSWERED, USAGE, identity_of, run
from bos_client.own_account import AccountClient, write_archive
from bos_client.sign_in import TokenFile
from bos_errors import BosError

if TYPE_CHECKING:
    from bos_cli.session import Target


@click.group("account")
def account() -> None:
    """Your own account: take everything along, or delete it."""


@account.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def export(target: Target, file: Path) -> None:
    """Write everything that is held of you into a new zip file."""

    async def work() -> int:
        async with _of_caller(target) as identity:
            try:
                files = await write_archive(identity.export(), file)
            except OSError as error:
                click.echo(f"{file} cannot be written: {error.strerror}", err=True)
                return USAGE
        click.echo(f"Wrote {files} files into {file}.")
        return ANSWERED

    run(work())


@account.command("rm")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.pass_obj
def remove(target: Target, yes: bool, password_stdin: bool) -> None:
    """Delete your account with everything of it: runs, files, conversations, what is remembered."""
    if not yes:
        click.confirm("Delete your account and everything of it for good?", abort=True)
    given = sys.stdin.readline().rstrip("\r\n") if password_stdin else ""

    async def work() -> int:
        connection, file = target.to_sign_in(), TokenFile.of_this_user()
        async with _of_caller(target) as identity:
            await _close(identity, given, ask=not password_stdin)
        async with file.locked():
            file.write(connection.target, None)
        click.echo("The account is closed; everything of it is being deleted.")
        return ANSWERED

    run(work())


async def _close(identity: AccountClient, password: str, *, ask: bool) -> None:
    """Close the account; users who sign in by an OpenID provider alone have no password."""
    try:
        await identity.close_account(password)
    except BosError as error:
        if not ask or error.reason != "PASSWORD_REQUIRED":
            raise
    else:
        return
    await identity.close_account(str(click.prompt("Password", hide_input=True)))


def _of_caller(target: Target) -> AccountClient:
    found = target.connection()
    return AccountClient(identity_of(found), api_key=found.api_key, tokens=found.tokens)
