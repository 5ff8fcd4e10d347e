"""Check of proxies: whether their clients count as local callers, who may register."""

from __future__ import annotations

from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import Settings, is_loopback, settings_from
from bos_gateway.operator.commands.deployment import Deployment
from bos_gateway.operator.commands.findings import Finding, warning


class _EndpointSettings(Settings):
    """Of identity's and REST's settings, those that decide who may register."""

    model_config = SettingsConfigDict(env_prefix="BOS_")

    server_host: str = "127.0.0.1"
    standalone_host: str = "127.0.0.1"
    auth_issuer: str | None = None
    auth_proxy_public_keys: str | None = None
    rest_trusted_proxies: str | None = None
    identity_registration_open: bool | None = None


def check_proxies(deployment: Deployment) -> list[Finding]:
    """A warning where proxies are set, and any caller from this machine may register."""
    if deployment.local is not None:
        given = _EndpointSettings.load()  # as `bos serve all` reads them
        host, foreign = given.standalone_host, bool(given.auth_issuer)
    else:
        with settings_from(deployment.settings_of):
            given = _EndpointSettings.load()
        host, foreign = given.server_host, given.auth_issuer not in (None, "bos-identity")
    proxied = given.auth_proxy_public_keys or given.rest_trusted_proxies
    if foreign or not (proxied and is_loopback(host) and given.identity_registration_open is None):
        return []
    return [
        warning(
            "registration",
            "proxies are set, and any caller from this machine may register: a client of a "
            "proxy on this machine that BOS_REST_TRUSTED_PROXIES does not name is taken for one "
            "(by the environment of this command; identity may have another)",
            "Set BOS_IDENTITY_REGISTRATION_OPEN=false and invite users.",
        )
    ]
