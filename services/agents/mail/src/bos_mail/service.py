from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bos_agentkit import agent_service
from bos_http import HttpClient
from bos_mail.agent import MailAgent
from bos_mail.card import NAME
from bos_mail.connections import Mailboxes
from bos_mail.imap.session import ImapSessions
from bos_mail.net import Connector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpPolicy
    from bos_llm import Models
    from bos_mail.settings import MailSettings


@asynccontextmanager
async def serve(
    settings: MailSettings, telemetry: Telemetry, *, models: Models | None
) -> AsyncIterator[GrpcServer]:
    """Serve the mail agent until the context exits.

    Args:
        settings: Address, mail servers and limits.
        telemetry: Of this service.
        models: Shared by the process; None fails every step that the plan does not spell out.

    Raises:
        ConfigurationError: the address, the authorities or the agent's model settings are invalid.
    """
    connector = Connector(settings)
    sessions = ImapSessions(settings, connector)
    try:
        async with HttpClient(_gmail_policy(settings), telemetry) as http:
            mailboxes = Mailboxes(settings, connector, sessions, http)
            model = models.for_agent(NAME) if models is not None else None
            async with agent_service(
                settings, telemetry, MailAgent(settings, mailboxes, model)
            ) as server:
                yield server
    finally:
        sessions.close()


def _gmail_policy(settings: MailSettings) -> HttpPolicy:
    """HTTP policy: the two origins of Google, and internal hosts that the operator allows."""
    named = (urlsplit(url).hostname for url in (settings.gmail_api_url, settings.gmail_token_url))
    hosts = tuple(dict.fromkeys(filter(None, named)))
    limit = settings.max_message_bytes * 2
    return settings.http.model_copy(
        update={
            "hosts": hosts,
            "methods": ("GET", "POST", "DELETE"),
            "max_redirects": 0,
            "max_request_bytes": limit,
            "max_response_bytes": limit,
        }
    )
