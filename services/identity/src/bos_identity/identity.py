"""Registering, signing in, staying signed in, signing out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos.identity.v1 import LogInResponse, Tokens
from bos_chassis.errors import (
    BosError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from bos_chassis.user_tokens import refused_token
from bos_identity.accounts import LOCAL_USERNAME
from bos_identity.client_address import throttled_address
from bos_identity.tokens import digest, new_refresh_token

if TYPE_CHECKING:
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import LogInRequest, RegisterUserRequest, User
    from bos_identity.accounts import Account, Accounts
    from bos_identity.metrics import IdentityMetrics
    from bos_identity.passwords import Passwords
    from bos_identity.sessions import Sessions, StoredSession
    from bos_identity.settings import IdentitySettings
    from bos_identity.throttle import Subject, Throttle
    from bos_identity.tokens import AccessTokens


@dataclass(frozen=True, slots=True)
class Identity:
    """What the service does; each part knows one table or one secret."""

    accounts: Accounts
    sessions: Sessions
    passwords: Passwords
    throttle: Throttle
    tokens: AccessTokens
    settings: IdentitySettings
    metrics: IdentityMetrics
    log: FilteringBoundLogger

    async def register(self, request: RegisterUserRequest, address: str) -> User:
        """Make an account.

        Raises:
            PermissionDenied: Registration is closed.
            InvalidArgument: The password is too weak, or a field cannot be stored.
            AlreadyExists: Username or address is taken.
            ResourceExhausted: Too many accounts were made from this address.
        """
        if not self.settings.registration_open:
            raise PermissionDenied(
                "Registration is closed here; ask an administrator for an account.",
                reason="REGISTRATION_CLOSED",
            )
        if request.username.lower() == LOCAL_USERNAME:
            raise InvalidArgument.field("username", "is reserved; choose another one")
        _check_text("display_name", request.display_name)
        self._check_password("password", request.password, request.username, request.email)
        # Successes count as well: what is slowed down here is the making of accounts.
        await self.throttle.begin([self.throttle.registration(throttled_address(address))])
        user = await self.accounts.add(request, await self.passwords.hash(request.password))
        self.metrics.registrations.inc()
        self.log.info("user registered", user=user.user_id)
        return user

    async def log_in(self, request: LogInRequest, address: str) -> LogInResponse:
        """Open a session.

        Raises:
            Unauthenticated: Username or password is wrong; which of them is not said.
            ResourceExhausted: The account or the address has to wait.
        """
        _check_text("client_name", request.client_name)
        account = await self.accounts.by_name(request.username)
        # By id where there is one: name and e-mail address are the same account.
        name = request.username if account is None else str(account.user_id)
        subjects = (
            self.throttle.address(throttled_address(address)),
            self.throttle.account(name),
        )
        if not await self._password_matches(account, request.password, *subjects):
            raise _login_failed()
        assert account is not None
        assert account.password is not None
        if self.passwords.is_outdated(account.password):
            await self.accounts.rehash(account, await self.passwords.hash(request.password))
        refresh_token = new_refresh_token()
        opened = await self.sessions.open(
            account, digest(refresh_token), address, request.client_name
        )
        if opened is None:
            raise _login_failed()  # the password was changed while it was looked at
        self.log.info("signed in", user=account.user.user_id, session=opened.session.session_id)
        opened.session.current = True
        return LogInResponse(
            tokens=self._tokens(opened, refresh_token), session=opened.session, user=account.user
        )

    async def refresh(self, refresh_token: str) -> Tokens:
        """Exchange a refresh token for new tokens.

        Raises:
            Unauthenticated: It cannot be used. If it was used before, its session has now ended,
                unless the answer may have been lost: for a short time it is exchanged once more.
        """
        used, issued = digest(refresh_token), new_refresh_token()
        refreshed = await self.sessions.refresh(used, digest(issued))
        if refreshed is not None:
            self.metrics.refreshes.labels("succeeded").inc()
            return self._tokens(refreshed, issued)
        repeated = await self.sessions.repeat(used, digest(issued))
        if repeated is not None:
            self.metrics.refreshes.labels("repeated").inc()
            self.log.info("refresh repeated", session=repeated.session.session_id)
            return self._tokens(repeated, issued)
        if await self.sessions.end_if_reused(used):
            self.metrics.refreshes.labels("reused").inc()
            self.log.warning("refresh token used twice, session ended")
        else:
            self.metrics.refreshes.labels("refused").inc()
        raise refused_token()

    async def log_out(self, refresh_token: str) -> None:
        """End the session of the token, if there is one."""
        await self.sessions.end(digest(refresh_token))

    async def user(self, user_id: UUID) -> User:
        """The account.

        Raises:
            NotFound: It is gone.
        """
        user = await self.accounts.own(user_id)
        if user is None:
            raise NotFound("There is no such user.")
        return user

    async def change_password(
        self, user_id: UUID, session_id: UUID | None, current: str, new: str
    ) -> None:
        """Set a new password and end all other sessions.

        Raises:
            FailedPrecondition: The account has no password, or it was changed just now.
            InvalidArgument: The present password is wrong, or the new one too weak.
            ResourceExhausted: The account has to wait.
        """
        account = await self.accounts.by_id(user_id)
        if account is None or account.password is None:
            raise FailedPrecondition("This account has no password.", reason="NO_PASSWORD")
        self._check_password("new_password", new, account.user.username, account.user.email)
        subject = self.throttle.account(str(user_id))
        if not await self._password_matches(account, current, subject):
            raise InvalidArgument.field("current_password", "is wrong")
        if not await self.accounts.set_password(account, await self.passwords.hash(new)):
            raise FailedPrecondition(
                "The password was changed by somebody else just now.", reason="PASSWORD_CHANGED"
            )
        await self.sessions.end_others(user_id, session_id)
        self.log.info("password changed", user=str(user_id))

    async def _password_matches(
        self, account: Account | None, password: str, *subjects: Subject
    ) -> bool:
        """Whether it does, counted and slowed down; the last subject is the account."""
        try:
            await self.throttle.begin(subjects)
        except BosError:
            self.metrics.logins.labels("throttled").inc()
            raise
        stored = None if account is None else account.password
        try:
            matches = await self.passwords.matches(stored, password)
        except BosError:
            await self.throttle.undone(*subjects)
            raise
        self.metrics.logins.labels("succeeded" if matches else "refused").inc()
        if matches:
            await self.throttle.succeeded(subjects[-1], *subjects[:-1])
        return matches

    def _check_password(self, field: str, password: str, *names: str) -> None:
        least = self.settings.min_password_chars
        if len(password) < least:
            raise InvalidArgument.field(field, f"must have at least {least} characters")
        if password.lower() in {name.lower() for name in names}:
            raise InvalidArgument.field(field, "must not be the username or the e-mail address")

    def _tokens(self, session: StoredSession, refresh_token: str) -> Tokens:
        tokens = Tokens(
            access_token=self.tokens.mint(session.user_id, session.session_id),
            refresh_token=refresh_token,
        )
        tokens.access_token_lifetime.FromSeconds(int(self.settings.access_token_s))
        tokens.refresh_token_expire_time.FromDatetime(session.expires_at)
        return tokens


def _login_failed() -> Unauthenticated:
    return Unauthenticated("The username or the password is wrong.", reason="LOGIN_FAILED")


def _check_text(field: str, text: str) -> None:
    if "\0" in text:
        raise InvalidArgument.field(field, "must not contain U+0000")
