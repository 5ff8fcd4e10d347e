"""Signing in: calls of the identity service, and tokens that are kept between commands.

Tokens lie in ``bos/tokens.json`` (mode 0600) in the user's configuration folder, by the gateway
they are for, beside where identity, memory, documents and files were when they were issued: they go
there, and to the gateway, also if a folder or variable names another. The access token is
refreshed by itself shortly before it expires. Each refresh uses its refresh token up, so processes
take turns by a lock beside the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bos.identity.v1 import (
    GetUserRequest,
    IdentityServiceStub,
    LogInRequest,
    LogOutRequest,
    RefreshSessionRequest,
    RegisterUserRequest,
    ResetPasswordRequest,
)
from bos_client.calling import ServiceClient, bearer
from bos_client.local import config_folder, write_private
from bos_errors import Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bos.identity.v1 import IdentityServiceAsyncStub, LogInResponse, Tokens, User
    from bos_client.connection import Connection

_LOCK_TIMEOUT_S = 45.0
_LOCK_POLL_S = 0.02
# So long a caller that gives up waits for the answer to a refresh.
_GIVING_UP_S = 3.0
# Refreshed this long before it expires, so that none expires on its way.
_MARGIN_S = 30.0


class IdentityClient(ServiceClient):
    """A client of the identity service; see :class:`ServiceClient`."""

    async def register(
        self,
        username: str,
        email: str,
        password: str,
        display_name: str = "",
        invitation: str = "",
    ) -> User:
        """Make an account; unless registration is open, by an invitation."""
        request = RegisterUserRequest(
            username=username,
            email=email,
            password=password,
            display_name=display_name,
            invitation=invitation,
        )
        return (await self._unary(self._stub.RegisterUser, request)).user

    async def log_in(self, username: str, password: str, client_name: str = "") -> LogInResponse:
        """Open a session."""
        request = LogInRequest(username=username, password=password, client_name=client_name)
        return await self._unary(self._stub.LogIn, request)

    async def refresh(self, refresh_token: str) -> Tokens:
        """Exchange a refresh token for new tokens; it is used up then.

        Repeating it at once, after an answer that was lost, gives new tokens once more.
        """
        request = RefreshSessionRequest(refresh_token=refresh_token)
        return (await self._unary(self._stub.RefreshSession, request)).tokens

    async def log_out(self, refresh_token: str) -> None:
        """End the session of a refresh token."""
        await self._unary(self._stub.LogOut, LogOutRequest(refresh_token=refresh_token))

    async def reset_password(self, code: str, new_password: str) -> str:
        """Set a password by an administrator's code; returns the name to sign in with."""
        request = ResetPasswordRequest(code=code, new_password=new_password)
        return (await self._unary(self._stub.ResetPassword, request)).username

    async def user(self, credential: str) -> User:
        """The user that an access token or key identifies."""
        request, metadata = GetUserRequest(), bearer(credential)
        return (await self._unary(self._stub.GetUser, request, metadata=metadata)).user

    @property
    def _stub(self) -> IdentityServiceAsyncStub:
        return IdentityServiceStub(self._channel)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A stored sign-in at a gateway: user and tokens."""

    identity_target: str
    memory_target: str
    username: str
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    refresh_at: float
    """When a new access token is due, in seconds since 1970 by this machine's clock."""
    standalone: str = ""
    """Data folder of the local standalone that issued them; its services move at each start."""
    documents_target: str = ""
    """Empty where documents are behind the gateway's address."""
    files_target: str = ""
    """Empty where workspaces are behind the gateway's address."""

    @classmethod
    def of(
        cls,
        identity_target: str,
        username: str,
        tokens: Tokens,
        *,
        memory_target: str,
        documents_target: str = "",
        files_target: str = "",
        standalone: str = "",
    ) -> SignedIn:
        """From tokens that were issued just now."""
        life_s = tokens.access_token_lifetime.ToMilliseconds() / 1000
        margin_s = min(_MARGIN_S, life_s / 2)
        return cls(
            identity_target,
            memory_target,
            username,
            tokens.access_token,
            tokens.refresh_token,
            time.time() + life_s - margin_s,
            standalone,
            documents_target,
            files_target,
        )

    def now_at(self, connection: Connection) -> SignedIn:
        """The same where its services are now.

        What ``connection`` says counts only if it comes from the very standalone that issued the
        tokens: no other service learns where they go.
        """
        if not self.standalone or self.standalone != connection.standalone:
            return self
        return replace(
            self,
            identity_target=connection.identity_target or self.identity_target,
            memory_target=connection.memory_target or self.memory_target,
            documents_target=connection.documents_target or self.documents_target,
            files_target=connection.files_target or self.files_target,
        )


class TokenFile:
    """The file; entries of other versions and invalid ones count as absent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_this_user(cls) -> TokenFile:
        """The one in the user's configuration folder."""
        return cls(config_folder() / "tokens.json")

    def read(self, target: str) -> SignedIn | None:
        """Who is signed in to the gateway at ``target``."""
        try:
            kept = SignedIn(**self._entries()[target])
        except (KeyError, TypeError):
            return None
        return kept if kept.identity_target and kept.memory_target else None

    def write(self, target: str, signed_in: SignedIn | None) -> None:
        """Keep who is signed in; None forgets."""
        entries = self._entries()
        if signed_in is None:
            entries.pop(target, None)
        else:
            entries[target] = asdict(signed_in)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self.path, json.dumps(entries, indent=2))

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Lock: no other process writes while the block runs.

        Raises:
            Unavailable: another process holds the lock for too long.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_TIMEOUT_S
            while not _taken(lock):
                if time.monotonic() > deadline:
                    raise Unavailable("Another process keeps the tokens locked; end it first.")
                await asyncio.sleep(_LOCK_POLL_S)
            yield
        finally:
            os.close(lock)

    def _entries(self) -> dict[str, Any]:
        try:
            entries = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}


class StoredTokens:
    """Tokens of the file, refreshed when it is time.

    Args:
        file: Where they are kept.
        target: Gateway that they are for.
        identity_target: Where the standalone that issued them has identity now; None where they
            were issued elsewhere, which does not move.
    """

    def __init__(self, file: TokenFile, target: str, identity_target: str | None = None) -> None:
        self._file = file
        self._target = target
        self._identity_target = identity_target

    async def access_token(self) -> str:
        """The kept token, or a new one; see :class:`TokenSource`."""
        kept = self._file.read(self._target)
        if kept is not None and time.time() < kept.refresh_at:
            return kept.access_token
        async with self._file.locked():
            # Another process may have done it in the meantime.
            kept = self._file.read(self._target)
            if kept is None:
                raise Unauthenticated("No user is signed in; run `bos login`.")
            if time.time() < kept.refresh_at:
                return kept.access_token
            return await self._refreshed_to_the_end(kept)

    async def _refreshed_to_the_end(self, kept: SignedIn) -> str:
        """Refresh to the end, also when the caller gives up (Ctrl-C): the token is used by then.

        A caller that gives up waits a little for the answer, and not at all at a second interrupt.
        """
        task = asyncio.create_task(self._refreshed(kept), name="refresh tokens")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=_GIVING_UP_S)
            raise
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _refreshed(self, kept: SignedIn) -> str:
        identity_target = self._identity_target or kept.identity_target
        async with IdentityClient(identity_target) as identity:
            try:
                tokens = await identity.refresh(kept.refresh_token)
            except Unauthenticated:
                self._file.write(self._target, None)
                raise
        renewed = SignedIn.of(
            identity_target,
            kept.username,
            tokens,
            memory_target=kept.memory_target,
            documents_target=kept.documents_target,
            files_target=kept.files_target,
            standalone=kept.standalone,
        )
        self._file.write(self._target, renewed)
        return renewed.access_token


def _taken(lock: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
