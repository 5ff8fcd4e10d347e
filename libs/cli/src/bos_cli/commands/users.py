"""``bos users …``: accounts, for administrators; and ``bos keys …``: API keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import click

from bos_cli.session import ANSWERED, identity_of, print_json, run
from bos_client.accounts import AdministrationClient, ApiKeyClient
from bos_client.text import one_line

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from bos.identity.v1 import User
    from bos_cli.session import Target
    from bos_client.calling import ServiceClient

C = TypeVar("C", bound="ServiceClient")

_ROLES = click.Choice(["user", "approver", "operator", "administrator"])
_SCOPES = click.Choice(
    [
        *("runs.ask", "runs.read", "runs.operate", "files.read"),
        *("approvals.respond", "webhooks", "memory", "documents", "files", "account"),
    ]
)
_DAY_S = 86400
_PAGE = 200
_LOOK_AGAIN_S = 0.5
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
_roles = click.option("--role", "roles", multiple=True, type=_ROLES, help="Role; may be repeated.")
_groups = click.option("--group", "groups", multiple=True, help="Group; may be repeated.")
_none = click.option("--none", "nothing", is_flag=True, help="Take all away.")


@click.group("users")
def users() -> None:
    """Accounts, for administrators."""


@users.command("list")
@_json
@click.pass_obj
def list_users(target: Target, as_json: bool) -> None:
    """All accounts."""

    async def work() -> int:
        token = ""
        async with _client(AdministrationClient, target) as identity:
            while True:
                page = await identity.users(_PAGE, token)
                for user in page.users:
                    print_json(user) if as_json else click.echo(_line(user))
                token = page.next_page_token
                if not token:
                    return ANSWERED

    run(work(), as_json=as_json)


@users.command()
@_roles
@_groups
@click.option("--days", type=click.IntRange(1, 30), default=7, show_default=True)
@click.pass_obj
def invite(target: Target, roles: tuple[str, ...], groups: tuple[str, ...], days: int) -> None:
    """Create a code for one registration."""

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            made = await identity.invite(roles, groups, days * _DAY_S)
        click.echo(f"Invitation {made.invitation.invitation_id}, shown this once; pass it on:")
        click.echo(f"  bos register NAME --invitation {made.code}")
        return ANSWERED

    run(work())


@users.command()
@click.pass_obj
def invitations(target: Target) -> None:
    """Invitations that can be used."""

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            for each in await identity.invitations():
                rights = ", ".join([*each.roles, *each.groups])
                click.echo(f"{each.invitation_id}  until {_day(each.expire_time)}  {rights}")
        return ANSWERED

    run(work())


@users.command()
@click.argument("invitation_id")
@click.pass_obj
def uninvite(target: Target, invitation_id: str) -> None:
    """Make an invitation useless."""

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            await identity.revoke_invitation(invitation_id)
        click.echo("Revoked.")
        return ANSWERED

    run(work())


@users.command()
@click.argument("username")
@click.argument("roles", nargs=-1, type=_ROLES)
@_none
@click.pass_obj
def roles(target: Target, username: str, roles: tuple[str, ...], nothing: bool) -> None:
    """Replace the roles of an account."""
    _all_or_nothing(roles, nothing)

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            user = await identity.user(username)
            click.echo(_line(await identity.set_roles(user.user_id, roles)))
        return ANSWERED

    run(work())


@users.command()
@click.argument("username")
@click.argument("groups", nargs=-1)
@_none
@click.pass_obj
def groups(target: Target, username: str, groups: tuple[str, ...], nothing: bool) -> None:
    """Replace the groups of an account."""
    _all_or_nothing(groups, nothing)

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            user = await identity.user(username)
            click.echo(_line(await identity.set_groups(user.user_id, groups)))
        return ANSWERED

    run(work())


@users.command()
@click.argument("username")
@click.pass_obj
def deactivate(target: Target, username: str) -> None:
    """Close an account: its sessions end, its API keys are revoked."""

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            user = await identity.user(username)
            click.echo(_line(await identity.deactivate(user.user_id)))
        return ANSWERED

    run(work())


@users.command()
@click.argument("username")
@click.pass_obj
def reactivate(target: Target, username: str) -> None:
    """Open an account again. Its sessions and API keys do not come back."""

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            user = await identity.user(username)
            click.echo(_line(await identity.reactivate(user.user_id)))
        return ANSWERED

    run(work())


@users.command("rm")
@click.argument("username")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--no-wait", is_flag=True, help="Do not wait until services have deleted all.")
@click.pass_obj
def remove(target: Target, username: str, yes: bool, no_wait: bool) -> None:
    """Delete an account with everything of it: runs, files, conversations, what is remembered."""
    if not yes:
        click.confirm(f"Delete {username} and everything of it for good?", abort=True)

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            user = await identity.user(username)
            deletion = await identity.delete(user.user_id)
            click.echo(f"{one_line(user.username)} is closed; everything of it is being deleted.")
            said = ""
            while not (no_wait or deletion.HasField("erase_time")):
                if deletion.waiting_for != said:
                    said = deletion.waiting_for
                    click.echo(f"Waiting for {one_line(said)}" if said else "Deleting", err=True)
                await asyncio.sleep(_LOOK_AGAIN_S)
                deletion = await identity.delete(user.user_id)
        if deletion.HasField("erase_time"):
            click.echo("All services have deleted what they held.")
        click.echo(f"The name is free again at {_day(deletion.earliest_end_time)} at the earliest.")
        return ANSWERED

    run(work())


@users.command("reset-password")
@click.argument("username")
@click.pass_obj
def reset(target: Target, username: str) -> None:
    """Create a code that sets a new password for the user, once."""

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            user = await identity.user(username)
            made = await identity.password_reset(user.user_id)
        click.echo(f"Good until {_day(made.expire_time)}, shown this once; pass it on:")
        click.echo(f"  bos reset-password --code {made.code}")
        return ANSWERED

    run(work())


@users.command("add-service")
@click.argument("username")
@_roles
@_groups
@click.pass_obj
def add_service(
    target: Target, username: str, roles: tuple[str, ...], groups: tuple[str, ...]
) -> None:
    """Make an account for a service; it works by API keys: `bos keys create --for NAME`."""

    async def work() -> int:
        async with _client(AdministrationClient, target) as identity:
            click.echo(_line(await identity.add_service(username, roles, groups)))
        return ANSWERED

    run(work())


@click.group("keys")
def keys() -> None:
    """API keys for programs: yours, or those of services."""


_for = click.option("--for", "username", default="", help="A service account, if you administer.")


@keys.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, required=True, type=_SCOPES, help="May repeat.")
@click.option("--days", type=click.IntRange(1, 366), default=90, show_default=True)
@_for
@click.pass_obj
def create(target: Target, name: str, scopes: tuple[str, ...], days: int, username: str) -> None:
    """Make a key that a program can call with."""

    async def work() -> int:
        user_id = await _user_id(target, username)
        async with _client(ApiKeyClient, target) as identity:
            made = await identity.make(name, scopes, days * _DAY_S, user_id)
        click.echo(f"Key {made.api_key.key_id}, until {_day(made.api_key.expire_time)}.", err=True)
        click.echo("It is shown this once:", err=True)
        click.echo(made.secret)
        return ANSWERED

    run(work())


@keys.command("list")
@_json
@_for
@click.pass_obj
def list_keys(target: Target, as_json: bool, username: str) -> None:
    """Keys that are good."""

    async def work() -> int:
        user_id = await _user_id(target, username)
        async with _client(ApiKeyClient, target) as identity:
            for key in await identity.keys(user_id):
                if as_json:
                    print_json(key)
                    continue
                used = _day(key.last_use_time) if key.HasField("last_use_time") else "never"
                click.echo(
                    f"{key.key_id}  {one_line(key.name)}: {', '.join(key.scopes)}; "
                    f"until {_day(key.expire_time)}, last used {used}"
                )
        return ANSWERED

    run(work(), as_json=as_json)


@keys.command()
@click.argument("key_id")
@click.pass_obj
def revoke(target: Target, key_id: str) -> None:
    """End a key; services that have seen it take it for a minute more."""

    async def work() -> int:
        async with _client(ApiKeyClient, target) as identity:
            await identity.revoke(key_id)
        click.echo("Revoked.")
        return ANSWERED

    run(work())


def _client(kind: type[C], target: Target) -> C:
    """A client of identity that calls as the signed-in user, or by the key."""
    found = target.connection()
    return kind(identity_of(found), api_key=found.api_key, tokens=found.tokens)


async def _user_id(target: Target, username: str) -> str:
    if not username:
        return ""
    async with _client(AdministrationClient, target) as identity:
        return (await identity.user(username)).user_id


def _all_or_nothing(given: tuple[str, ...], nothing: bool) -> None:
    if bool(given) == nothing:
        raise click.UsageError("Name all of them, or say --none.")


def _line(user: User) -> str:
    said = [one_line(user.username), ", ".join(user.roles) or "no role"]
    if user.groups:
        said.append("in " + ", ".join(map(one_line, user.groups)))
    if user.service_account:
        said.append("a service")
    if user.deleting:
        said.append("being deleted")
    elif not user.active:
        said.append("deactivated")
    return "; ".join(said)


def _day(time: Timestamp) -> str:
    return f"{time.ToDatetime():%Y-%m-%d %H:%M} UTC"
