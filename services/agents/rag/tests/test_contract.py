"""The agent contract, kept by the document agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos.documents.v1 import add_DocumentsServiceServicer_to_server
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_rag.service import serve
from bos_rag.settings import RagSettings
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import ScriptedDocuments, passage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASK = "Which penalty does the carrier pay?"
ANSWER = fixture(
    "answer",
    [TASK],
    schema="DocumentAnswer",
    json={"found": True, "answer": "2% per day [1].", "quotations": []},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject() -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests("rag")
    documents = ScriptedDocuments([passage(1, "The carrier pays a penalty of 2% per day.")])
    server = grpc.aio.server()
    add_DocumentsServiceServicer_to_server(documents, server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with (
        ScriptedModel([ANSWER]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name="rag",
            example=AgentInput(task=TASK),
            model=model,
            serve=serving(serve, RagSettings, telemetry, models, documents_target=target),
            telemetry=telemetry,
            process=Process("bos_rag", {"BOS_RAG_DOCUMENTS_TARGET": target}),
        )
    await server.stop(None)


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
