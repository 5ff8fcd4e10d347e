"""``bos register``, ``login``, ``logout``, ``whoami`` and ``reset-password``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bos.identity.v1 import SignInMethod
from bos_cli.commands.openid import client_name, keep, log_in_by_openid
from bos_cli.session import ANSWERED, USAGE, client_for, identity_of, print_json, run
from bos_client.sign_in import IdentityClient, TokenFile
from bos_client.text import one_line
from bos_errors import BosError

if TYPE_CHECKING:
    from bos.identity.v1 import SignIn
    from bos_cli.session import Target

_stdin = click.option(
    "--password-stdin", is_flag=True, help="Read the password from standard input."
)


@click.command()
@click.argument("username")
@click.option("--email", prompt="E-mail address", help="Address of the account.")
@click.option("--display-name", default="", help="Name to show; the username if not given.")
@click.option("--invitation", default="", help="Code of an invitation, from an administrator.")
@_stdin
@click.pass_obj
def register(
    target: Target,
    username: str,
    email: str,
    display_name: str,
    invitation: str,
    password_stdin: bool,
) -> None:
    """Make an account; then sign in with `bos login`."""
    password = _password(password_stdin, confirm=True)

    async def work() -> int:
        async with IdentityClient(identity_of(target.to_sign_in())) as identity:
            user = await identity.register(username, email, password, display_name, invitation)
        click.echo(f"Registered {one_line(user.username)}. Sign in: bos login {user.username}")
        return ANSWERED

    run(work())


@click.command()
@click.argument("username", required=False)
@_stdin
@click.option("--openid", is_flag=True, help="Sign in by the OpenID provider, in a browser.")
@click.option("--device", is_flag=True, help="The same, on any other device.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.pass_obj
def login(
    target: Target,
    username: str | None,
    password_stdin: bool,
    openid: bool,
    device: bool,
    no_browser: bool,
) -> None:
    """Sign in. The tokens are kept for later commands and refreshed by themselves."""
    if openid or device:
        if username or password_stdin:
            raise click.UsageError("With --openid the provider says who you are; give no name.")
        run(log_in_by_openid(target, on_device=device, open_browser=not no_browser))
    if not username:
        raise click.UsageError("Give your username, or --openid.")
    password = _password(password_stdin, confirm=False)

    async def work() -> int:
        connection = target.to_sign_in()
        async with IdentityClient(identity_of(connection)) as identity:
            response = await identity.log_in(username, password, client_name())
        return await keep(connection, response)

    run(work())


@click.command()
@click.pass_obj
def logout(target: Target) -> None:
    """Sign out, here and at the service."""

    async def work() -> int:
        connection, file = target.to_sign_in(), TokenFile.of_this_user()
        async with file.locked():
            kept = target.signed_in(connection)
            if kept is None:
                click.echo("No user is signed in.")
                return ANSWERED
            async with IdentityClient(kept.identity_target) as own:
                await own.log_out(kept.refresh_token)
            file.write(connection.target, None)
        click.echo("Signed out.")
        return ANSWERED

    run(work())


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
@click.pass_obj
def whoami(target: Target, as_json: bool) -> None:
    """Who the commands act as, and what that one may use."""

    async def work() -> int:
        connection = target.connection()
        tokens = connection.tokens
        credential = connection.api_key if tokens is None else await tokens.access_token()
        if not credential:
            click.echo("No user is signed in; run `bos login`.", err=True)
            return USAGE
        async with IdentityClient(identity_of(connection)) as identity:
            user = await identity.user(credential)
        if as_json:
            print_json(user)
        else:
            shown = f"{one_line(user.display_name)} ({one_line(user.username)})"
            click.echo(f"{shown}, {one_line(user.email)}, at {connection.target}")
            click.echo(_signed_in(user.sign_in))
            for what, names in (("Roles", user.roles), ("Groups", user.groups)):
                if names:
                    click.echo(f"{what}: {', '.join(map(one_line, names))}")
            await _show_access(target)
        return ANSWERED

    run(work(), as_json=as_json)


def _signed_in(sign_in: SignIn) -> str:
    """How the caller has signed in, and until when that holds, as a line."""
    issuer = one_line(sign_in.open_id_issuer)
    how = {
        SignInMethod.SIGN_IN_METHOD_PASSWORD: "with the password",
        SignInMethod.SIGN_IN_METHOD_OPEN_ID: f"by OpenID ({issuer})",
        SignInMethod.SIGN_IN_METHOD_API_KEY: "with an API key",
        SignInMethod.SIGN_IN_METHOD_STATIC_KEY: "with a static key",
        SignInMethod.SIGN_IN_METHOD_LOCAL_USER: "as the local user of a standalone",
    }.get(sign_in.method, "in a way that this version does not know")
    ends = "without end"
    if sign_in.HasField("expire_time"):
        moment = sign_in.expire_time.ToDatetime().strftime("%Y-%m-%d %H:%M UTC")
        is_key = sign_in.method == SignInMethod.SIGN_IN_METHOD_API_KEY
        ends = f"until {moment}" if is_key else f"until {moment} unless used before"
    return f"Signed in {how}, {ends}"


async def _show_access(target: Target) -> None:
    """What the gateway lets the caller use; who one is, is known without it."""
    try:
        async with client_for(target.connection()) as bos:
            found = await bos.access()
    except BosError as error:
        click.echo(f"What you may use is not known: {one_line(error.message)}", err=True)
        return
    agents = [agent.card.name for agent in found.agents]
    click.echo(f"Agents: {', '.join(map(one_line, agents)) or 'none'}")
    for each in found.tables:
        database = "every database" if each.database == "*" else one_line(each.database)
        tables = "all" if "*" in each.tables else ", ".join(map(one_line, each.tables))
        click.echo(f"Tables of {database}: {tables}")


@click.command("reset-password")
@click.option("--code", prompt=True, help="What an administrator has given you.")
@_stdin
@click.pass_obj
def reset_password(target: Target, code: str, password_stdin: bool) -> None:
    """Set a new password by an administrator's code. All sessions and API keys end."""
    password = _password(password_stdin, confirm=True)

    async def work() -> int:
        async with IdentityClient(identity_of(target.to_sign_in())) as identity:
            username = one_line(await identity.reset_password(code, password))
        click.echo(f"The password is set. Sign in: bos login {username}")
        return ANSWERED

    run(work())


def _password(from_stdin: bool, *, confirm: bool) -> str:
    """The password; never an argument, which everybody on the machine could read."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=confirm))
