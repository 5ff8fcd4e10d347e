"""Actors of audit entries: users, keys, services, operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from attrs import frozen

from bos_chassis.auth.callers import LOCAL_USER
from bos_postgres.audit.entries import AuditEntry

if TYPE_CHECKING:
    from bos_chassis.auth.callers import Principal
    from bos_postgres.audit.entries import ActorKind, Outcome


@frozen
class By:
    """An actor, and where it calls from."""

    actor: str
    """Id of the user, of the API key or of the service; empty where it is unknown."""
    kind: ActorKind = "user"
    address: str = ""
    user: str = ""
    """Whose API key it is."""

    @classmethod
    def of(cls, principal: Principal | None, address: str = "") -> Self:
        """The caller; where authentication is off, all callers are one user."""
        if principal is None:
            return cls(LOCAL_USER, address=address)
        if principal.kind == "api_key":
            return cls(principal.session_id, "api_key", address, principal.user_id)
        kind: ActorKind = "service" if principal.kind == "run_token" else "user"
        return cls(principal.user_id, kind, address)

    def entry(
        self, action: str, target: str = "", *, outcome: Outcome = "succeeded", **details: str
    ) -> AuditEntry:
        """Audit entry of an action of this actor, done or refused; see :class:`AuditEntry`."""
        if self.user:
            details["user"] = self.user
        return AuditEntry(
            action,
            self.actor,
            actor_kind=self.kind,
            target=target,
            outcome=outcome,
            address=self.address,
            details=details,
        )


OPERATOR: Final = By("operator", "operator")
"""The operator who works on the database itself, with commands."""


def unauthenticated(address: str = "") -> By:
    """An unauthenticated actor, known by its address at most."""
    return By("", "anonymous", address)
