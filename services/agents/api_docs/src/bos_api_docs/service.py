"""Builds the API agent and serves it: for its own process and for standalone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bos_agentkit import agent_service
from bos_api_docs.agent import ApiDocsAgent
from bos_api_docs.calls.sending import Sender
from bos_api_docs.calls.tokens import Tokens
from bos_api_docs.card import NAME
from bos_api_docs.catalogue.loading import Catalogues, is_url
from bos_api_docs.catalogue.model import METHODS
from bos_api_docs.planning import Router
from bos_http import HttpClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_api_docs.settings import ApiDocsSettings
    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpPolicy
    from bos_llm import Models

_LOOPBACK = (IPv4Network("127.0.0.1/32"), IPv6Network("::1/128"))


@asynccontextmanager
async def serve(
    settings: ApiDocsSettings, telemetry: Telemetry, *, models: Models | None
) -> AsyncIterator[GrpcServer]:
    """Serve the API agent until the context exits.

    Catalogues are read before; one that cannot be read is logged, and steps say so.

    Args:
        settings: APIs, limits, HTTP policy.
        telemetry: Of this service.
        models: Shared by the process; None answers from documentation alone.

    Raises:
        ConfigurationError: the address, the HTTP policy or the agent's model settings are invalid.
    """
    apis = settings.all_apis()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(HttpClient(http_policy(settings), telemetry))
        catalogues = Catalogues(apis, http, telemetry)
        await catalogues.load()
        if settings.reload_s and apis:
            await stack.enter_async_context(_watched(catalogues, settings.reload_s))
        agent = ApiDocsAgent(
            settings,
            catalogues,
            Router(apis, settings.default_base_url, http),
            Sender(http, Tokens(http), timeout_s=settings.request_timeout_s),
            http,
            models.for_agent(NAME) if models is not None else None,
        )
        yield await stack.enter_async_context(agent_service(settings, telemetry, agent))


def http_policy(settings: ApiDocsSettings) -> HttpPolicy:
    """HTTP policy of the agent: the operator's, and the hosts that its own settings name.

    Naming a public host in a base URL, a document or a token URL allows it; hosts inside the
    network need ``internal_origins`` all the same, except the sample company's on loopback.
    """
    policy, changes = settings.http, dict[str, Any]()
    if "methods" not in policy.model_fields_set:
        changes["methods"] = METHODS
    named = [settings.default_base_url]
    for api in settings.all_apis().values():
        named.append(api.base_url)
        if is_url(api.openapi):
            named.append(api.openapi)
        if api.email is not None or api.web_api_key is not None:
            named.append(api.token_url)
    hosts = {_host(url) for url in named} - {""}
    changes["hosts"] = tuple(dict.fromkeys([*policy.hosts, *sorted(hosts)]))
    sample = settings.sample_api
    if sample is not None and sample.base_url:
        parts = urlsplit(sample.base_url)
        origin = f"{parts.scheme}://{parts.netloc}"
        changes["internal_origins"] = {**policy.internal_origins, origin: _LOOPBACK}
    return policy.model_copy(update=changes)


def _host(url: str) -> str:
    """Host of a URL; empty for an invalid one, which the client refuses when it is called."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


@asynccontextmanager
async def _watched(catalogues: Catalogues, every_s: float) -> AsyncIterator[None]:
    """Reload catalogues in the background until the context exits."""
    watching = asyncio.create_task(catalogues.watch(every_s), name="api catalogues")
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
