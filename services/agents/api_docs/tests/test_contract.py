"""Agent contract of the API agent, with a real HTTP API."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_api_docs.service import serve
from bos_api_docs.settings import ApiDocsSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules
from bos_testkit.asgi_server import asgi_server

from .api_under_test import ApiUnderTest, planned, policy

pytestmark = pytest.mark.asyncio(loop_scope="module")

READS, WRITES = "Show the order PO-7", "Open a ticket about pumps"
REPLIES = [
    planned(READS, path="/orders/{order_id}", path_params={"order_id": "PO-7"}),
    planned(WRITES, "POST", "/tickets", json_body={"topic": "pumps"}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    api = ApiUnderTest()
    async with asgi_server(api.application()) as base_url:
        apis = {"orders": {"openapi": f"{base_url}/openapi.json", "base_url": base_url}}
        async with agent_subject(
            *("api_docs", serve, ApiDocsSettings, REPLIES, AgentInput(task=READS)),
            apis=apis,
            http=policy(base_url),
            environment={
                "BOS_API_DOCS_APIS": json.dumps(apis),
                "BOS_HTTP_INTERNAL_ORIGINS": json.dumps({base_url: ["127.0.0.1/32"]}),
            },
            proposing=AgentInput(task=WRITES, tools=["call_api_read", "call_api_write"]),
            performed=lambda: len(api.effects),
        ) as subject:
            yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
