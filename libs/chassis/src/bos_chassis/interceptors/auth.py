from __future__ import annotations

from typing import TYPE_CHECKING

from bos_chassis.auth import RUN_TOKEN_KEY, set_caller
from bos_chassis.errors import Unauthenticated
from bos_chassis.interceptors.concern import Concern
from bos_chassis.scopes import require_scope

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bos_chassis.auth import Authenticator
    from bos_chassis.interceptors.concern import ServerCall


class Authentication(Concern):
    """Refuses callers that the authenticator does not know, and remembers the others.

    Args:
        authenticator: None asks nobody; the server then binds to loopback only.
        open_methods: Methods as ``service/method`` that anybody may call; whatever credential such
            a call brings is not looked at.
        of_services: Authenticators of single services, by full name, in place of the first.
    """

    def __init__(
        self,
        authenticator: Authenticator | None,
        open_methods: Collection[str] = (),
        of_services: Mapping[str, Authenticator] | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._of_services = dict(of_services or {})
        self._open_methods = frozenset(open_methods)

    async def begin(self, call: ServerCall) -> None:
        """Identify the caller and keep its run token for calls made inside.

        Raises:
            Unauthenticated: No credential, or an invalid one.
            PermissionDenied: An API key that is not for this method.
        """
        if f"{call.service}/{call.method}" in self._open_methods:
            set_caller(None, None)
            return
        principal = None
        authenticator = self._of_services.get(call.service, self._authenticator)
        if authenticator is not None:
            principal = await authenticator.authenticate(call.metadata)
            if principal is None:
                raise Unauthenticated(
                    "The call carries no credential. Send an access token or API key as "
                    "'authorization: Bearer <token>', or a run token as 'bos-run-token'.",
                    reason="CREDENTIAL_MISSING",
                )
            require_scope(principal, call.service, call.method)
        set_caller(principal, call.metadata.get(RUN_TOKEN_KEY))
