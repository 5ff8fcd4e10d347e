"""``bos mail …``: connects the user's mailbox, shows the connection, ends it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bos_cli.session import ANSWERED, identity_of, print_json, run
from bos_client.text import one_line
from bos_client.user_connections import ConnectionClient
from bos_errors import NotFound

if TYPE_CHECKING:
    from bos.identity.v1 import Connection
    from bos_cli.session import Target

IMAP: Final = "mail.imap"
GMAIL: Final = "mail.gmail"
_KINDS: Final = (IMAP, GMAIL)
_MAX_TOKEN_BYTES: Final = 64 * 1024
_TOKEN_FIELDS: Final = ("client_id", "client_secret", "refresh_token")
_security = click.Choice(["implicit", "starttls", "none"])


@click.group("mail")
def mail() -> None:
    """Your mailbox: connect it, so that Bos can search it and write mails that you approve."""


@mail.command("connect")
@click.argument("address")
@click.option("--imap", "imap_host", help="IMAP server as host or host:port.")
@click.option("--smtp", "smtp_host", help="SMTP server as host or host:port; that of IMAP if left.")
@click.option("--user", help="Name to sign in with; the address if not given.")
@click.option("--imap-security", type=_security, help="By the port if not given: TLS always.")
@click.option("--smtp-security", type=_security, help="By the port if not given: TLS always.")
@click.option(
    "--gmail-token",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Gmail instead, by a file of Google's OAuth with client_id, client_secret, refresh_token.",
)
@click.option("--label", default="", help="What to call it.")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.pass_obj
def connect(
    target: Target,
    address: str,
    imap_host: str | None,
    smtp_host: str | None,
    user: str | None,
    imap_security: str | None,
    smtp_security: str | None,
    gmail_token: Path | None,
    label: str,
    password_stdin: bool,
) -> None:
    """Connect the mailbox of ADDRESS, in place of one connected before.

    The password is asked for, or read from standard input; it is stored encrypted, handed to the
    mail agent alone, and never shown again. Many providers want an app password made for this.
    """
    if (imap_host is None) == (gmail_token is None):
        raise click.UsageError("Give --imap HOST, or --gmail-token FILE.")
    if gmail_token is not None:
        kind, fields, secret = GMAIL, {"address": address}, _token_of(gmail_token)
    else:
        kind = IMAP
        fields = _servers(str(imap_host), smtp_host, imap_security, smtp_security)
        fields |= {"address": address, "user": user or address}
        secret = _password(password_stdin)

    async def work() -> int:
        async with _client(target) as identity:
            await identity.connect(kind, secret, fields, label)
        click.echo(f"Connected {one_line(address)}. End it with `bos mail disconnect`.")
        return ANSWERED

    run(work())


@mail.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
@click.pass_obj
def status(target: Target, as_json: bool) -> None:
    """The mailbox that is connected; its password is never shown."""

    async def work() -> int:
        async with _client(target) as identity:
            found = [each for each in await identity.connections() if each.kind in _KINDS]
        for each in found:
            print_json(each) if as_json else click.echo(_line(each))
        if not found and not as_json:
            click.echo("No mailbox is connected. Connect one with `bos mail connect`.")
        return ANSWERED

    run(work(), as_json=as_json)


@mail.command("disconnect")
@click.pass_obj
def disconnect(target: Target) -> None:
    """Delete the connection with its password; questions asked from now on cannot use it."""

    async def work() -> int:
        ended = 0
        async with _client(target) as identity:
            for kind in _KINDS:
                try:
                    await identity.disconnect(kind)
                except NotFound:
                    continue
                ended += 1
        click.echo("Disconnected." if ended else "No mailbox is connected.")
        return ANSWERED

    run(work())


def _servers(
    imap: str, smtp: str | None, imap_security: str | None, smtp_security: str | None
) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, given, port, security in (
        ("imap", imap, "993", imap_security),
        ("smtp", smtp or imap.partition(":")[0], "465", smtp_security),
    ):
        host, _, own_port = given.partition(":")
        if not host or (own_port and not own_port.isdigit()):
            raise click.UsageError(f"--{name} must be a host, or host:port.")
        found |= {f"{name}_host": host, f"{name}_port": own_port or port}
        if security:
            found[f"{name}_security"] = security
    return found


def _token_of(file: Path) -> str:
    """What of a file of Google's OAuth is needed, and no more of it."""
    try:
        if file.stat().st_size > _MAX_TOKEN_BYTES:
            raise ValueError
        found = json.loads(file.read_text())
        # As Google's console gives it, the client stands one level deeper.
        found = {**found, **found.get("installed", {}), **found.get("web", {})}
        needed = {name: found[name] for name in _TOKEN_FIELDS}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        names = ", ".join(_TOKEN_FIELDS)
        raise click.UsageError(f"{file} must be a JSON object with {names}.") from None
    if not all(isinstance(each, str) and each for each in needed.values()):
        raise click.UsageError(f"{file} must hold texts for {', '.join(_TOKEN_FIELDS)}.")
    return json.dumps(needed)


def _password(from_stdin: bool) -> str:
    """The password; never an argument, which everybody on the machine could read."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Password of the mailbox", hide_input=True))


def _line(connection: Connection) -> str:
    fields = connection.fields
    address = fields.get("address", "")
    where = "Gmail" if connection.kind == GMAIL else f"IMAP {fields.get('imap_host', '')}"
    label = f" ({connection.label})" if connection.label else ""
    since = connection.update_time.ToDatetime().strftime("%Y-%m-%d %H:%M UTC")
    return one_line(f"{address}{label} at {where}, connected {since}")


def _client(target: Target) -> ConnectionClient:
    found = target.connection()
    return ConnectionClient(identity_of(found), api_key=found.api_key, tokens=found.tokens)
