"""``bos login --openid``: signing in by an OpenID provider, in a browser or on another device."""

from __future__ import annotations

import asyncio
import socket
import time
import webbrowser
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from bos_cli.session import ANSWERED, identity_of
from bos_client.openid import Callback, OpenIdClient
from bos_client.sign_in import SignedIn, TokenFile
from bos_client.text import one_line
from bos_errors import FailedPrecondition, Unauthenticated

if TYPE_CHECKING:
    from bos.identity.v1 import BeginOpenIdLogInResponse, LogInResponse
    from bos_cli.session import Target
    from bos_client.connection import Connection

_LEAST_PAUSE_S = 1.0
_LEAST_WAIT_S = 60.0


async def log_in_by_openid(target: Target, *, on_device: bool, open_browser: bool) -> int:
    """Sign in by the provider that identity names; returns the exit code."""
    connection = target.to_sign_in()
    async with OpenIdClient(identity_of(connection)) as identity:
        provider = await identity.provider()
        if not provider.available:
            raise FailedPrecondition(
                "There is no OpenID provider to sign in by; use `bos login NAME`."
            )
        name = one_line(provider.name)
        if on_device:
            response = await _on_another_device(identity, name)
        else:
            response = await _in_a_browser(identity, name, open_browser=open_browser)
    return await keep(connection, response)


async def keep(connection: Connection, response: LogInResponse) -> int:
    """Keep the tokens of a session for later commands; returns the exit code."""
    kept = SignedIn.of(
        identity_of(connection),
        response.user.username,
        response.tokens,
        memory_target=connection.memory_target or connection.target,
        documents_target=connection.documents_target or "",
        files_target=connection.files_target or "",
        standalone=connection.standalone,
    )
    file = TokenFile.of_this_user()
    async with file.locked():
        file.write(connection.target, kept)
    click.echo(f"Signed in to {connection.target} as {one_line(response.user.username)}.")
    return ANSWERED


def client_name() -> str:
    """What the command line calls itself in the list of sessions."""
    return f"bos on {socket.gethostname()}"


async def _in_a_browser(identity: OpenIdClient, name: str, *, open_browser: bool) -> LogInResponse:
    async with Callback.listening() as callback:
        begun = await identity.begin(callback.redirect_uri)
        url = _page(begun.authorization_url)
        click.echo(f"Sign in by {name} in a browser on this machine:\n\n  {url}\n")
        if open_browser:
            await asyncio.to_thread(webbrowser.open, url)
        came_back = await callback.wait(url, _left_s(begun))
    finished = await identity.finish(begun.handle, came_back, client_name())
    return finished.log_in


async def _on_another_device(identity: OpenIdClient, name: str) -> LogInResponse:
    begun = await identity.begin()
    shown = _page(begun.verification_uri)
    click.echo(f"Sign in by {name}, on any device:\n\n  {shown}\n")
    click.echo(f"and type the code {one_line(begun.user_code)}")
    if begun.verification_uri_complete:
        click.echo(f"or open {_page(begun.verification_uri_complete)}")
    ends = time.monotonic() + _left_s(begun)
    pause_s = begun.interval.ToMilliseconds() / 1000
    while time.monotonic() < ends:
        await asyncio.sleep(max(pause_s, _LEAST_PAUSE_S))
        finished = await identity.finish(begun.handle, {}, client_name())
        if finished.HasField("log_in"):
            return finished.log_in
        pause_s = finished.pending.interval.ToMilliseconds() / 1000
    raise Unauthenticated("The sign-in timed out; start it again.")


def _left_s(begun: BeginOpenIdLogInResponse) -> float:
    # The clocks of the two machines may differ.
    return max(_LEAST_WAIT_S, begun.expire_time.seconds - time.time())


def _page(url: str) -> str:
    """An address that a browser may be sent to; others from identity are refused."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or url.startswith("-"):
        raise FailedPrecondition("Identity returned an address that a browser cannot open.")
    return one_line(url)
