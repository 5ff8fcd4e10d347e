"""Client addresses of signed-in callers, for the audit trail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos_chassis.auth.proxy_tokens import PROXY_TOKEN_KEY
from bos_chassis.client_address import client_address

if TYPE_CHECKING:
    import grpc

    from bos_chassis.auth.proxy_tokens import ProxyTokenVerifier


@dataclass(frozen=True, slots=True)
class Addresses:
    """Client addresses of calls of signed-in people, for the audit trail."""

    proxies: ProxyTokenVerifier | None

    def of(self, context: grpc.aio.ServicerContext[Any, Any]) -> str:
        """The client's address; empty if unknown, as behind a gateway that is not known."""
        entries = context.invocation_metadata() or ()
        metadata = {key: value for key, value in entries if isinstance(value, str)}
        proxied = self.proxies.verify(metadata) if self.proxies else None
        if proxied is None and PROXY_TOKEN_KEY in metadata:
            return ""
        return client_address(context.peer(), proxied)
