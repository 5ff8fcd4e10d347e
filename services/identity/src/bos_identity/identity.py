"""Signing in, staying signed in, signing out; one's own password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from attrs import evolve

from bos.identity.v1 import LogInResponse, Tokens
from bos_chassis.auth.user_tokens import refused_token
from bos_errors import (
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
)
from bos_identity.administration.registration import check_password
from bos_identity.names import clean_name
from bos_identity.opaque_tokens import digest, new_refresh_token
from bos_identity.passwords.throttle import THROTTLED
from bos_postgres.audit import unauthenticated

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import LogInRequest, User
    from bos_identity.account import Account
    from bos_identity.accounts import Accounts
    from bos_identity.administration.resets import Resets
    from bos_identity.metrics import IdentityMetrics
    from bos_identity.passwords.attempts import Attempts
    from bos_identity.passwords.hashes import Passwords
    from bos_identity.passwords.throttle import Throttle
    from bos_identity.sessions import Origin, Sessions, StoredSession
    from bos_identity.settings import IdentitySettings
    from bos_identity.tokens import AccessTokens
    from bos_postgres.audit import By, Refusals


_NO_USER = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Identity:
    """Sign-in, sessions and passwords; each part knows one table or one secret."""

    accounts: Accounts
    sessions: Sessions
    passwords: Passwords
    attempts: Attempts
    throttle: Throttle
    resets: Resets
    tokens: AccessTokens
    settings: IdentitySettings
    metrics: IdentityMetrics
    log: FilteringBoundLogger
    refusals: Refusals

    async def log_in(self, request: LogInRequest, origin: Origin) -> LogInResponse:
        """Open a session.

        Raises:
            Unauthenticated: Username or password is wrong; which of them is not said.
            PermissionDenied: The account is deactivated.
            ResourceExhausted: The account or the address has to wait.
        """
        client_name = clean_name("client_name", request.client_name)
        account = await self.accounts.by_name(request.username)
        # By id where there is one: name and e-mail address are the same account.
        name = request.username if account is None else str(account.user_id)
        is_known = await self._was_there(account, origin)
        subjects = self.throttle.log_in(name, origin.network, is_known=is_known)
        stored = None if account is None else account.password
        # Never what was typed: people type passwords there.
        whose = "" if account is None else str(account.user_id)
        refused = unauthenticated(origin.network).entry("session.refused", whose, outcome="refused")
        try:
            matches = await self.attempts.matches(stored, request.password, subjects)
        except ResourceExhausted as error:
            if error.reason == THROTTLED:
                self.refusals.count(evolve(refused, action="session.throttled"))
            raise
        if not matches:
            self.refusals.count(refused)
            raise _login_failed()
        assert account is not None
        assert account.password is not None
        if not account.user.active:
            self.refusals.count(refused)
            raise PermissionDenied(
                "This account is deactivated; ask an administrator.", reason="USER_DEACTIVATED"
            )
        if self.passwords.is_outdated(account.password):
            await self.accounts.rehash(account, await self.passwords.hash(request.password))
        response = await self.open_session(account, origin, client_name)
        if response is None:
            raise _login_failed()  # the password was changed while it was looked at
        return response

    async def open_session(
        self, account: Account, origin: Origin, client_name: str, openid_issuer: str = ""
    ) -> LogInResponse | None:
        """Open a session for a person who has proved whose account it is.

        Args:
            account: Whose it is.
            origin: Where they sign in from.
            client_name: What their client calls itself.
            openid_issuer: The provider that they have proved it by; empty: by the password.

        Returns:
            None if the account has another password by now, or was deactivated.
        """
        refresh_token = new_refresh_token()
        opened = await self.sessions.open(
            account, digest(refresh_token), origin, client_name, openid_issuer
        )
        if opened is None:
            return None
        self.log.info("signed in", user=account.user.user_id, session=opened.session.session_id)
        opened.session.current = True
        return LogInResponse(
            tokens=self._tokens(opened, refresh_token), session=opened.session, user=account.user
        )

    async def refresh(self, refresh_token: str, address: str = "") -> Tokens:
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
        if await self.sessions.end_if_reused(used, address):
            self.metrics.refreshes.labels("reused").inc()
            self.log.warning("refresh token used twice, session ended")
        else:
            self.metrics.refreshes.labels("refused").inc()
        raise refused_token()

    async def log_out(self, refresh_token: str, address: str = "") -> None:
        """End the session of the token, if there is one."""
        await self.sessions.end(digest(refresh_token), address)

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
        self, user_id: UUID, session_id: UUID | None, current: str, new: str, by: By
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
        names = (account.user.username, account.user.email, account.user.display_name)
        check_password("new_password", new, names, self.settings)
        await self._check_present(account, current, by)
        hashed = await self.passwords.hash(new)
        if not await self.accounts.change_password(account, hashed, session_id, by):
            raise FailedPrecondition(
                "The password was changed by another session just now.", reason="PASSWORD_CHANGED"
            )
        self.log.info("password changed", user=str(user_id))

    async def require_owner(
        self, user_id: UUID, session_id: UUID | None, password: str, by: By
    ) -> None:
        """Let only the owner pass, before what cannot be undone.

        An access token alone may be stolen: the owner gives the password, or, without one, has
        just signed in by the provider.

        Raises:
            FailedPrecondition: The account has no password, and the session is not a fresh one.
            InvalidArgument: The password is missing, or wrong.
            ResourceExhausted: The account has to wait.
        """
        account = await self.accounts.by_id(user_id)
        if account is None or account.password is None:
            await self._require_fresh(user_id, session_id)
        elif not password:
            problem = FieldViolation("current_password", "must be given: this account has one")
            text = f"{problem.field}: {problem.description}"
            raise InvalidArgument(text, (problem,), reason="PASSWORD_REQUIRED")
        else:
            await self._check_present(account, password, by)

    async def _require_fresh(self, user_id: UUID, session_id: UUID | None) -> None:
        issuer, fresh_s = self.settings.openid.issuer, self.settings.openid.fresh_s
        if session_id is None or issuer is None:
            raise FailedPrecondition("This account has no password.", reason="NO_PASSWORD")
        if not await self.sessions.is_fresh(session_id, user_id, issuer, fresh_s):
            raise FailedPrecondition(
                "This account has no password, and this session is not new enough to do without. "
                f"Log in again with `bos login --openid` first; you have {fresh_s:.0f} s then.",
                reason="SIGN_IN_NOT_FRESH",
            )

    async def _check_present(self, account: Account, password: str, by: By) -> None:
        user_id = str(account.user_id)
        if not await self.attempts.matches(
            account.password, password, self.throttle.change(user_id)
        ):
            self.refusals.count(by.entry("password.refused", user_id, outcome="refused"))
            raise InvalidArgument.field("current_password", "is wrong")

    async def reset_password(self, code: str, new: str, origin: Origin) -> str:
        """Set a new password by an administrator's code; returns the name to sign in with.

        All sessions and API keys of the account end, and it is slowed down no more.

        Raises:
            PermissionDenied: The code cannot be used.
            InvalidArgument: The new password is too weak.
        """
        owner = await self.resets.owner(code)
        account = None if owner is None else await self.accounts.by_id(owner)
        if account is None:
            refused = unauthenticated(origin.network).entry("password.refused", outcome="refused")
            self.refusals.count(refused)
            raise _code_refused()
        names = (account.user.username, account.user.email, account.user.display_name)
        check_password("new_password", new, names, self.settings)
        if not await self.resets.use(code, await self.passwords.hash(new), origin.address):
            raise _code_refused()
        await self.throttle.forget(self.throttle.account(str(account.user_id)))
        self.log.info("password reset", user=str(account.user_id))
        return account.user.username

    async def _was_there(self, account: Account | None, origin: Origin) -> bool:
        if not origin.network:
            return False
        # Also of accounts that do not exist: they must cost what others cost.
        user_id = _NO_USER if account is None else account.user_id
        return await self.sessions.was_there(user_id, origin.network)

    def _tokens(self, session: StoredSession, refresh_token: str) -> Tokens:
        tokens = Tokens(
            access_token=self.tokens.mint(session),
            refresh_token=refresh_token,
        )
        tokens.access_token_lifetime.FromSeconds(int(self.settings.access_token_s))
        tokens.refresh_token_expire_time.FromDatetime(session.expires_at)
        return tokens


def _login_failed() -> Unauthenticated:
    return Unauthenticated("The username or the password is wrong.", reason="LOGIN_FAILED")


def _code_refused() -> PermissionDenied:
    return PermissionDenied(
        "The code is not valid, or no longer; ask an administrator for another one.",
        reason="RESET_CODE_INVALID",
    )
