"""Rows of the chart's values; its templates make workloads, policies and settings from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from descriptors.descriptor import Descriptor, Services


def rows(services: Services) -> str:
    """Entries below ``services:`` in values.yaml."""
    return "".join(_row(each) for each in services.all)


def _row(service: Descriptor) -> str:
    row = yaml.safe_dump(
        {service.name: _fields(service)}, default_flow_style=None, sort_keys=False, width=110
    )
    text = f"# {service.description}.\n{row}"
    return "".join(f"  {line}\n" for line in text.splitlines())


def _fields(service: Descriptor) -> dict[str, Any]:
    """What differs from ``defaults`` and ``agentDefaults`` of the values."""
    found: dict[str, Any] = {}
    if service.on_request:
        found["enabled"] = False
    if service.kind != "service":
        found["kind"] = service.kind
    if service.protocol != "grpc":
        found["protocol"] = service.protocol
    if service.path:
        found["path"] = service.path
    if "users" in service.callers:
        found["issuer"] = "BOS_AUTH_ISSUER"
    named = {
        "accountData": service.account_data,
        "audience": service.is_audience,
        "models": service.models and not service.is_agent,
        "calls": _calls(service),
        "needs": [*service.calls],
        "callsAgents": service.calls_agents,
        "callsAccountData": service.calls_account_data,
        "handsOn": service.hands_on,
        "connections": service.connections,
        "outside": service.egress,
        "store": service.store_setting if service.store else "",
        "blobs": service.blobs,
        "index": service.index,
        "secretFiles": _keys(service),
    }
    found |= {key: value for key, value in named.items() if value}
    if service.isolated:
        found["telemetry"] = False
    return _merged(found, service.chart)


def _calls(service: Descriptor) -> dict[str, str]:
    found = dict(service.all_calls)
    if "users" in service.callers and service.name != "identity":
        found["identity"] = "BOS_AUTH_IDENTITY_TARGET"
    if service.is_audience and not service.isolated:  # agents have it by their defaults
        found["gateway"] = "BOS_AUTH_RUN_TOKEN_CHECK_TARGET"
    return found


def _keys(service: Descriptor) -> dict[str, Any]:
    """Public keys of those whose credentials it accepts."""
    found = {}
    if service.takes_run_tokens and not service.is_agent:
        found["BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS_FILE"] = {"key": "run-token-public.pem"}
    if "users" in service.callers:
        found["BOS_AUTH_PROXY_PUBLIC_KEYS_FILE"] = {"key": "rest-public.pem"}
    return found


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both, tables within them merged as well; the second wins."""
    merged = {
        key: _merged(first[key], value)
        if isinstance(value, dict) and isinstance(first.get(key), dict)
        else value
        for key, value in second.items()
    }
    return first | merged
