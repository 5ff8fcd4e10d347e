"""Registering: who may make an account, and of what."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from bos_chassis.client_address import parsed
from bos_chassis.settings import is_loopback
from bos_errors import InvalidArgument, PermissionDenied
from bos_identity.accounts import LOCAL_USERNAME, NewAccount, Right
from bos_identity.names import clean_name
from bos_identity.opaque_tokens import digest
from bos_identity.passwords.weak import weakness
from bos_postgres.audit import unauthenticated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import RegisterUserRequest, User
    from bos_identity.accounts import Accounts
    from bos_identity.administration.invitations import Invitations
    from bos_identity.metrics import IdentityMetrics
    from bos_identity.passwords.hashes import Passwords
    from bos_identity.passwords.throttle import Throttle
    from bos_identity.sessions import Origin
    from bos_identity.settings import IdentitySettings
    from bos_postgres.audit import Refusals

_UNIX: Final = "unix:"
# By which proxies say that they pass a call on, beside x-forwarded-for.
_PASSED_ON: Final = frozenset(
    {
        *("forwarded", "via", "x-real-ip", "x-client-ip", "x-forwarded-proto", "x-forwarded-port"),
        *("x-envoy-external-address", "cf-connecting-ip", "true-client-ip"),
    }
)


@dataclass(frozen=True, slots=True)
class Registration:
    """Makes accounts for people who may have one."""

    accounts: Accounts
    invitations: Invitations
    passwords: Passwords
    throttle: Throttle
    settings: IdentitySettings
    metrics: IdentityMetrics
    log: FilteringBoundLogger
    refusals: Refusals

    async def register(
        self, request: RegisterUserRequest, origin: Origin, *, is_local: bool
    ) -> User:
        """Make an account.

        Args:
            request: What it is to be.
            origin: Where the call comes from; empty if unknown.
            is_local: Whether it comes from this machine, by the connection.

        Raises:
            PermissionDenied: Registration is closed, or the invitation cannot be used.
            InvalidArgument: The password is too weak, or a field is not acceptable.
            AlreadyExists: Username or address is taken.
            ResourceExhausted: Too many accounts were made from this network.
        """
        self._check(request)
        code = digest(request.invitation)
        right = await self._right(request, code, is_local=is_local)
        if right is None or right is Right.OPEN:
            # Successes count as well, to throttle the creation of accounts. Invited users are
            # exempt; callers who guess codes are not.
            await self.throttle.count(self.throttle.registration(origin.network))
        if right is None:
            refused = unauthenticated(origin.network).entry("account.refused", outcome="refused")
            self.refusals.count(refused)
            raise _invitation_refused() if request.invitation else _closed()
        new = NewAccount(
            username=request.username,
            email=request.email,
            display_name=clean_name("display_name", request.display_name) or request.username,
            password=await self.passwords.hash(request.password),
        )
        user = await self.accounts.add(new, right, code, origin.address)
        if user is None:
            raise _invitation_refused()
        self.metrics.registrations.inc()
        self.log.info(
            "user registered", user=user.user_id, right=right.name.lower(), roles=list(user.roles)
        )
        return user

    def _check(self, request: RegisterUserRequest) -> None:
        if request.username.lower() == LOCAL_USERNAME:
            raise InvalidArgument.field("username", "is reserved; choose another one")
        clean_name("display_name", request.display_name)
        names = (request.username, request.email, request.display_name)
        check_password("password", request.password, names, self.settings)

    async def _right(
        self, request: RegisterUserRequest, code: bytes, *, is_local: bool
    ) -> Right | None:
        """By what right the account may be made, as of now; None if by none."""
        if request.invitation:
            if self._is_first_token(code):
                return Right.FIRST
            return Right.INVITED if await self.invitations.is_good(code) else None
        if self.settings.registration_open is not None:
            return Right.OPEN if self.settings.registration_open else None
        return Right.OPEN if is_local and takes_neighbours(self.settings) else None

    def _is_first_token(self, code: bytes) -> bool:
        token = self.settings.bootstrap_token
        return token is not None and hmac.compare_digest(digest(token.get_secret_value()), code)


def takes_neighbours(settings: IdentitySettings) -> bool:
    """Whether people and programs of this machine alone may register."""
    return settings.registration_open is None and is_loopback(settings.server.host)


def check_password(
    field: str, password: str, names: tuple[str, ...], settings: IdentitySettings
) -> None:
    """Refuse a new password that is guessed soon.

    Raises:
        InvalidArgument: It is; says why.
    """
    least = settings.min_password_chars
    if len(password) < least:
        raise InvalidArgument.field(field, f"must have at least {least} characters")
    weak = weakness(password, [name for name in names if name])
    if weak is not None:
        raise InvalidArgument.field(field, weak)


def all_local(peer: str, forwarded_for: str, believed: str) -> bool:
    """Whether every party that a call names on its way is on this machine.

    Args:
        peer: As gRPC has it, such as ``ipv4:127.0.0.1:51234``.
        forwarded_for: The header ``x-forwarded-for``. A lie in it can only make the call foreign.
        believed: The client's address, from a trusted proxy.
    """
    kind, _, rest = unquote(peer).partition(":")
    if f"{kind}:" != _UNIX and not _is_local(rest.rpartition(":")[0]):
        return False
    hops = [part.strip() for part in forwarded_for.split(",") if part.strip()]
    return all(_is_local(hop) for hop in (*hops, *([believed] if believed else [])))


def passed_on(metadata: Mapping[str, str]) -> bool:
    """Whether a proxy says that it passes the call on; a lie can only make the call foreign."""
    return not _PASSED_ON.isdisjoint(metadata)


def _is_local(text: str) -> bool:
    address = parsed(text)
    return address is not None and address.is_loopback


def _closed() -> PermissionDenied:
    return PermissionDenied(
        "Registration is by invitation here; ask an administrator for one.",
        reason="REGISTRATION_CLOSED",
    )


def _invitation_refused() -> PermissionDenied:
    return PermissionDenied(
        "The invitation is not valid, or no longer; ask an administrator for another one.",
        reason="INVITATION_INVALID",
    )
