"""Role checks: refuse callers that lack a role, in words that say which."""

from __future__ import annotations

from bos_chassis.auth.callers import Principal
from bos_chassis.names import Role
from bos_errors import PermissionDenied


def require_role(principal: Principal | None, role: Role) -> None:
    """Refuse a caller that lacks ``role``; where authentication is off, no caller lacks any.

    Raises:
        PermissionDenied: ROLE_REQUIRED; says which role.
    """
    if principal is not None and role not in principal.roles:
        raise PermissionDenied(
            f'This needs the role "{role}", which you do not have. Ask an administrator for it.',
            reason="ROLE_REQUIRED",
            metadata={"role": role},
        )
