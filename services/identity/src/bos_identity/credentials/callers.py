"""Callers of identity, and their rights at this moment.

Elsewhere an access token is good until it expires, with the roles that it was issued with. Here,
where accounts are changed, every call asks the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from bos.identity.v1 import SignIn, SignInMethod
from bos_chassis.auth.callers import Principal, current_principal
from bos_chassis.auth.user_tokens import refused_token
from bos_chassis.names import ADMINISTRATOR
from bos_errors import NotFound, PermissionDenied
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.api_keys.store import ApiKeys
from bos_identity.sessions import Rights, Sessions
from bos_postgres.audit import By


@dataclass(frozen=True, slots=True)
class Caller:
    """The calling user."""

    user_id: UUID
    session_id: UUID | None
    """Of a person who signed in."""
    rights: Rights
    is_key: bool
    """Whether an API key stands for the user."""
    principal: Principal
    """As the credential says it."""

    def by(self, address: str) -> By:
        """The caller as the audit trail names it."""
        return By.of(self.principal, address)

    @property
    def may_administer(self) -> bool:
        """Whether this is a person who is an administrator."""
        return not self.is_key and ADMINISTRATOR in self.rights.roles

    def require_administrator(self) -> None:
        """Let only a person pass who is an administrator.

        Raises:
            PermissionDenied: The caller is not.
        """
        if self.is_key:
            raise key_refused()
        if not self.may_administer:
            raise no_administrator()


@dataclass(frozen=True, slots=True)
class Callers:
    """Looks up who is behind the call in progress."""

    sessions: Sessions
    keys: ApiKeys

    async def caller(self) -> Caller:
        """Who calls.

        Raises:
            NotFound: The caller has no account here.
            Unauthenticated: The session has ended, the key was revoked, the account is closed; or
                the credential is one that identity does not take.
        """
        principal = current_principal()
        user_id = None if principal is None else as_uuid(principal.user_id)
        if principal is None or user_id is None:
            raise NotFound("There is no such user.")
        rights = await self._rights(principal, user_id)
        if rights is None:
            raise refused_token()
        is_key = principal.kind == "api_key"
        session_id = as_uuid(principal.session_id) if principal.kind == "user_token" else None
        return Caller(user_id, session_id, rights, is_key, principal)

    async def rights(self) -> Rights | None:
        """What the caller may do; None if the session or key is not good any more."""
        principal = current_principal()
        user_id = None if principal is None else as_uuid(principal.user_id)
        if principal is None or user_id is None:
            return None
        return await self._rights(principal, user_id)

    async def sign_in(self, caller: Caller) -> SignIn:
        """How the caller has signed in, and until when that holds.

        Raises:
            Unauthenticated: The session or key has gone in this very moment.
        """
        if caller.principal.kind == "static_key":
            is_local = caller.user_id == LOCAL_USER_ID
            return SignIn(
                method=SignInMethod.SIGN_IN_METHOD_LOCAL_USER
                if is_local
                else SignInMethod.SIGN_IN_METHOD_STATIC_KEY
            )
        named = as_uuid(caller.principal.session_id)
        if named is not None and caller.is_key:
            key = await self.keys.find(named, caller.user_id)
            if key is not None:
                return SignIn(
                    method=SignInMethod.SIGN_IN_METHOD_API_KEY,
                    start_time=key.create_time,
                    expire_time=key.expire_time,
                )
        elif named is not None:
            stored = await self.sessions.find(named, caller.user_id)
            if stored is not None:
                session = stored.session
                return SignIn(
                    method=session.method,
                    open_id_issuer=session.open_id_issuer,
                    start_time=session.start_time,
                    expire_time=session.expire_time,
                )
        raise refused_token()

    async def _rights(self, principal: Principal, user_id: UUID) -> Rights | None:
        if principal.kind == "static_key":
            return Rights(principal.roles, principal.groups)
        named = as_uuid(principal.session_id)
        if named is None:
            return None
        if principal.kind == "user_token":
            return await self.sessions.rights(named, user_id)
        if principal.kind == "api_key":
            return await self.keys.rights(named, user_id)
        return None  # what speaks for a run has no business with accounts


def key_refused() -> PermissionDenied:
    """What a program hears that does with a key what only people do."""
    return PermissionDenied("API keys cannot do this; sign in.", reason="SIGN_IN_REQUIRED")


def no_administrator() -> PermissionDenied:
    """The refusal of callers who are no administrators."""
    return PermissionDenied(
        f"This needs the role {ADMINISTRATOR}.",
        reason="ROLE_REQUIRED",
        metadata={"role": ADMINISTRATOR},
    )


def as_uuid(text: str) -> UUID | None:
    """The id that ``text`` is, if it is one."""
    try:
        return UUID(text)
    except ValueError:
        return None
