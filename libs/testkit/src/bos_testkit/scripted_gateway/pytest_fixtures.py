"""Starts scripted gateways on real ports, with the chassis around them, and clients of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bos.gateway.v1 import add_OrchestratorServiceServicer_to_server
from bos_chassis.auth.callers import StaticKey
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient, Reconnect
from bos_testkit.scripted_gateway.servicer import Gateway

KEY = "a-key-of-the-tests"


class Starter:
    """Starts gateways that stop with the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, gateway: Gateway | None = None, port: int = 0) -> Gateway:
        """Start ``gateway`` and set its address."""
        gateway = gateway or Gateway()
        server = await self._stack.enter_async_context(
            grpc_server(
                ServerSettings.load(grace_s=0.0, port=port),
                [
                    Servicer(
                        gateway,
                        add_OrchestratorServiceServicer_to_server,
                        "bos.gateway.v1.OrchestratorService",
                    )
                ],
                telemetry=Telemetry.for_tests("gateway"),
                auth=StaticKey(KEY),
            )
        )
        gateway.address = server.address
        return gateway


@pytest.fixture
async def start() -> AsyncIterator[Starter]:
    """Start gateways of a test."""
    async with AsyncExitStack() as stack:
        yield Starter(stack)


@pytest.fixture
async def gateway(start: Starter) -> Gateway:
    """A started gateway."""
    return await start()


def client(gateway: Gateway, **options: Any) -> BosClient:
    """A client that reconnects without delay."""
    fast = Reconnect(attempts=5, first_s=0.001, cap_s=0.01)
    return BosClient(gateway.address, api_key=KEY, **{"reconnect": fast, **options})


@pytest.fixture
async def bos(gateway: Gateway) -> AsyncIterator[BosClient]:
    """A client of ``gateway``."""
    async with client(gateway) as connected:
        yield connected
