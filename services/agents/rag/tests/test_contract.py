"""The agent contract, kept by the document agent."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput
from bos_rag.service import serve
from bos_rag.settings import RagSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules
from bos_testkit.scripted_model.replies import fixture

from .scripted_documents import ScriptedDocuments, passage, serving_documents

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
    documents = ScriptedDocuments([passage(1, "The carrier pays a penalty of 2% per day.")])
    async with (
        serving_documents(documents) as target,
        agent_subject(
            *("rag", serve, RagSettings, [ANSWER], AgentInput(task=TASK)),
            documents_target=target,
            environment={"BOS_RAG_DOCUMENTS_TARGET": target},
        ) as subject,
    ):
        yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
