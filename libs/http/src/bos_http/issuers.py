"""Fetches what an issuer of tokens publishes: its configuration and its key set (JWKS)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bos_errors import Unavailable
from bos_http.client import HttpClient
from bos_http.policy import HttpPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from bos_chassis.telemetry import Telemetry

_TIMEOUT_S = 5.0
_MAX_BYTES = 256 * 1024


async def issuer_document(
    url: str, networks: Sequence[IPv4Network | IPv6Network], telemetry: Telemetry
) -> Mapping[str, Any]:
    """The JSON object at ``url``, for :func:`bos_chassis.auth.user_tokens.open_authenticator`.

    Only the host of the URL is reached, and redirects are not followed.

    Args:
        url: Of the document.
        networks: Which its host must be in; none for a host with a public address.
        telemetry: Of the service.

    Raises:
        BosError: The issuer could not be reached, or did not answer with status 2xx.
        ValueError: Its answer is not a JSON object.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    reach: dict[str, Any] = (
        {"internal_origins": {f"{parts.scheme}://{parts.netloc}": networks}}
        if networks
        else {"hosts": (parts.hostname or "",), "ports": (port,)}
    )
    policy = HttpPolicy(
        **reach,
        methods=("GET",),
        max_redirects=0,
        total_timeout_s=_TIMEOUT_S,
        max_response_bytes=_MAX_BYTES,
    )
    async with HttpClient(policy, telemetry) as client:
        response = await client.request("GET", url, headers={"Accept": "application/json"})
    if not response.ok:
        raise Unavailable(f"The issuer answered with status {response.status}.")
    document = json.loads(response.body)
    if not isinstance(document, dict):
        raise ValueError("the issuer did not answer with a JSON object")
    return document
