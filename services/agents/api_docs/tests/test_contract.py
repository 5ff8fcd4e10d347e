"""Agent contract of the API agent, with a real HTTP API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_api_docs.service import serve
from bos_api_docs.settings import ApiDocsSettings
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.asgi_server import asgi_server
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

from .api_under_test import ApiUnderTest
from .conftest import planned, policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

READS, WRITES = "Show the order PO-7", "Open a ticket about pumps"
REPLIES = [
    planned(READS, path="/orders/{order_id}", path_params={"order_id": "PO-7"}),
    planned(WRITES, "POST", "/tickets", json_body={"topic": "pumps"}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    telemetry, api = Telemetry.for_tests("api_docs"), ApiUnderTest()
    async with (
        asgi_server(api.application()) as base_url,
        ScriptedModel(REPLIES) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        apis = {"orders": {"openapi": f"{base_url}/openapi.json", "base_url": base_url}}
        yield Subject(
            name="api_docs",
            example=AgentInput(task=READS),
            model=model,
            serve=serving(
                serve, ApiDocsSettings, telemetry, models, apis=apis, http=policy(base_url)
            ),
            telemetry=telemetry,
            process=Process(
                "bos_api_docs",
                {
                    "BOS_API_DOCS_APIS": json.dumps(apis),
                    "BOS_HTTP_INTERNAL_ORIGINS": json.dumps({base_url: ["127.0.0.1/32"]}),
                },
            ),
            proposing=AgentInput(task=WRITES, tools=["call_api_read", "call_api_write"]),
            performed=lambda: len(api.effects),
        )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
