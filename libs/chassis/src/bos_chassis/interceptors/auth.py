from __future__ import annotations

from collections.abc import Mapping

from bos_chassis.auth.callers import RUN_TOKEN_KEY, Authenticator, set_caller
from bos_chassis.auth.scopes import require_scope
from bos_chassis.client_address import set_network
from bos_chassis.credentials.tls import in_foreign_hands
from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_chassis.interceptors.concurrency import LoadShedder
from bos_errors import Unauthenticated

# Calls whose caller is being looked up. A proxy has those of all its users on one connection.
_UNKNOWN = 4096


class Authentication(Concern):
    """Refuses callers that the authenticator does not know, and remembers the others.

    A credential that the call of an open method brings is not looked at.

    Args:
        authenticator: None for no authentication; the server then binds to loopback only.
        of_services: Authenticators of single services, by full name, in place of the first.
        shown_by: Of these, the services that may show a run token beside the gateway and the agent
            that it was made for; any authenticated caller, where a service is left out.
    """

    def __init__(
        self,
        authenticator: Authenticator | None,
        of_services: Mapping[str, Authenticator] | None = None,
        shown_by: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._of_services = dict(of_services or {})
        self._shown_by = dict(shown_by or {})
        self._unknown = LoadShedder(_UNKNOWN)

    async def begin(self, call: ServerCall) -> None:
        """Identify the caller and keep its run token for calls made inside.

        Raises:
            Unauthenticated: No credential, an invalid one, or one of a kind twice.
            PermissionDenied: An API key that is not for this method.
        """
        set_network(call.network)
        if call.open:
            set_caller(None, None)
            return
        if call.ambiguous:
            # Each party on the way might look at another one of them.
            raise Unauthenticated(
                f"The call has more than one entry '{call.ambiguous}'. Send one.",
                reason="CREDENTIAL_AMBIGUOUS",
            )
        principal = None
        authenticator = self._of_services.get(call.service, self._authenticator)
        if authenticator is not None:
            # Keys may have to be fetched for that; no caller may fill the memory meanwhile.
            self._unknown.enter(call)
            try:
                principal = await authenticator.authenticate(call.metadata)
            finally:
                self._unknown.leave(call)
            if principal is None:
                raise Unauthenticated(
                    "The call carries no credential. Send an access token or API key as "
                    "'authorization: Bearer <token>', or a run token as 'bos-run-token'.",
                    reason="CREDENTIAL_MISSING",
                )
            # A service that asks about a token shows it, and is not its holder.
            others = self._shown_by.get(call.service)
            asked_about = call.service in self._of_services and others is None
            if not asked_about and in_foreign_hands(principal, call.services, others or ()):
                raise Unauthenticated(
                    "The run token was not given to the service that shows it.",
                    reason="RUN_TOKEN_INVALID",
                )
            require_scope(principal, call.service, call.method)
        call.principal = principal
        set_caller(principal, call.metadata.get(RUN_TOKEN_KEY))
