"""`bos doctor` about registration and proxies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bos_client.connection import Connection
from bos_gateway.operator.commands.deployment import Deployment
from bos_gateway.operator.commands.doctor import examine
from bos_gateway.operator.commands.findings import Level
from bos_gateway.operator.commands.proxies import check_proxies

PROXY = {"BOS_REST_TRUSTED_PROXIES": "10.0.0.0/8"}
KEYS = {"BOS_AUTH_PROXY_PUBLIC_KEYS": "a key"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def deployment(**more: Any) -> Deployment:
    return Deployment("here", "postgresql://x", "", "", {}, "", 1.0, **more)


STANDALONE = {"local": Connection("127.0.0.1:1")}


@pytest.mark.parametrize(
    ("environment", "more", "is_said"),
    [
        (PROXY, {}, True),
        (KEYS, STANDALONE, True),
        ({}, {}, False),
        ({**PROXY, "BOS_IDENTITY_REGISTRATION_OPEN": "false"}, {}, False),
        ({**PROXY, "BOS_SERVER_HOST": "0.0.0.0"}, {}, False),
        ({**PROXY, "BOS_AUTH_ISSUER": "https://login.example.com"}, {}, False),
        ({**PROXY, "BOS_AUTH_ISSUER": "bos-identity"}, {}, True),
        ({**PROXY, "BOS_STANDALONE_HOST": "0.0.0.0"}, STANDALONE, False),
        ({**PROXY, "BOS_AUTH_ISSUER": "https://login.example.com"}, STANDALONE, False),
    ],
)
def test_doctor_warns_where_a_proxy_hides_addresses_of_clients(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    more: dict[str, Any],
    is_said: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = check_proxies(deployment(**more))
    assert [each.level for each in found] == [Level.WARNING] * is_said


async def test_the_warning_is_in_the_doctors_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_REST_TRUSTED_PROXIES", PROXY["BOS_REST_TRUSTED_PROXIES"])
    found = await examine(replace(deployment(), store_url="postgresql://127.0.0.1:1/none"))
    assert {"registration", "audit", "store"} <= {each.check for each in found}
