"""Who calls, by the headers that REST passes on; the gateway alone judges them."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from starlette.datastructures import Headers

from bos_client import BosClient
from bos_client.documents import DocumentsClient
from bos_errors import Unauthenticated, Unimplemented
from bos_protocols.settings import ProtocolsSettings

_AUTHORIZATION = "authorization"
_PASSED_ON = (_AUTHORIZATION, "bos-proxy-token")
_PUBLIC_URL = "bos-public-url"


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway, called as the caller of each request; protocols have no rights of their own."""

    channel: grpc.aio.Channel
    settings: ProtocolsSettings
    documents_channel: grpc.aio.Channel | None = None
    """To the documents service, where there is one."""

    def client(self, headers: Headers) -> BosClient:
        """A client that calls as the sender of ``headers``.

        Raises:
            Unauthenticated: there is more than one credential.
        """
        return BosClient.over(
            self.channel, _passed_on(headers), run_timeout_s=self.settings.run_timeout_s
        )

    def documents(self, headers: Headers) -> DocumentsClient:
        """A client of documents, as :meth:`client`."""
        if self.documents_channel is None:
            raise Unimplemented("There are no documents here.", reason="DOCUMENTS_MISSING")
        return DocumentsClient.over(self.documents_channel, _passed_on(headers))

    def public_url(self, headers: Headers) -> str:
        """Where the caller reaches Bos, without a slash at its end: as configured, or as called."""
        return self.settings.public_url or headers.get(_PUBLIC_URL, "")


def _passed_on(headers: Headers) -> tuple[tuple[str, str], ...]:
    if len(headers.getlist(_AUTHORIZATION)) > 1:
        raise Unauthenticated("Send one Authorization header.", reason="CREDENTIAL_AMBIGUOUS")
    return tuple((name, headers[name]) for name in _PASSED_ON if name in headers)
