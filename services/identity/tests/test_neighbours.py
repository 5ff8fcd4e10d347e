"""Registration for this machine, where a proxy on it could let others in: said at the start."""

from typing import Any

import pytest
from identity_harness import REST, Caller, Starter

from bos_chassis.settings import AuthSettings

WARNING = "callers on this machine may register without invitation, and proxies are set"
NO_PROXY = AuthSettings.load(proxy_public_keys=None)
PROXY = AuthSettings.load(proxy_public_keys=REST.public_key)


def warned(identity: Caller) -> bool:
    return WARNING in [entry["event"] for entry in identity.telemetry.logs]


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [
        ({"auth": PROXY}, True),
        ({"auth": NO_PROXY}, False),
        ({"auth": PROXY, "registration_open": False}, False),
    ],
)
async def test_start_warns_where_a_proxy_makes_clients_look_local(
    start: Starter, settings: dict[str, Any], is_said: bool
) -> None:
    assert warned(await start(**settings)) is is_said
