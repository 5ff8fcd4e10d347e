"""A scripted gateway for tests of its clients."""

from bos_testkit.scripted_gateway.pytest_fixtures import KEY, Starter, bos, client, gateway, start
from bos_testkit.scripted_gateway.servicer import RUN_ID, Gateway, response, story

__all__ = [
    "KEY",
    "RUN_ID",
    "Gateway",
    "Starter",
    "bos",
    "client",
    "gateway",
    "response",
    "start",
    "story",
]
