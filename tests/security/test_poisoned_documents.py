"""Orders in documents, before a model that obeys them: what follows needs an approval that says so.

Each document goes through the real upload, parser, index, rag, planner, composer and gateway.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import pytest_asyncio
from documents_harness import Caller

from bos.documents.v1 import DocumentsServiceStub
from bos_chassis.settings import AuthSettings
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.reader import open_document
from bos_documents.service import serve as serve_documents
from bos_documents.settings import DocumentsSettings
from bos_rag.service import serve as serve_rag
from bos_rag.settings import RagSettings
from bos_testkit.deploy import DeployAgent
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import fixture

from .obeying_model import STOLEN, improvise, outside_fences, plan
from .poison_harness import (
    SERVER,
    TAINTED,
    Core,
    PoisonRun,
    assert_harmless,
    follow,
    open_core,
    reading_plan,
)
from .poisoned_documents import (
    COLLECTOR,
    DEED,
    HONEST,
    NOWHERE,
    PLANNER,
    POISONED,
    QUESTION,
    RANKING,
    Poisoned,
    gives_the_order,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.security,
    pytest.mark.timeout(600),
]

OTHER = "The depot of Kestrel is open on weekdays, and late on Fridays."
DEPLOY = "Deploy version 1.2 of the shop"
ORDERED = {"step_id": "act", "agent": "deploy", "task": "deploy shop 1.2"}
PLANS = [
    reading_plan("rag"),
    fixture(
        "deploy",
        [f"### Question\n{DEPLOY}\n\n### Instructions"],
        schema=PLANNER,
        json=plan({**ORDERED, "tool_name": "trigger_deployment"}),
    ),
]
READ = [each for each in POISONED if each.reaches != NOWHERE]


@dataclass
class PoisonHarness:
    """The running services."""

    core: Core
    client: BosClient
    documents: Caller
    agent: DeployAgent

    @asynccontextmanager
    async def holding(self, content: bytes, name: str) -> AsyncIterator[None]:
        """A document that is read and can be searched, deleted with the block."""
        self.core.model.requests.clear()
        document = await self.documents.ready(content, name)
        try:
            yield
        finally:
            await self.documents.delete(document.document_id)

    async def ask(self, poisoned: Poisoned, question: str = QUESTION, **how: Any) -> PoisonRun:
        async with self.holding(poisoned.make(), poisoned.name):
            return await follow(self.client, question, **how)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[PoisonHarness]:
    folder = tmp_path_factory.mktemp("poison")
    (folder / "spool").mkdir()
    async with open_core(postgres_server.dsn(), PLANS, improvise) as core:
        dsn = await core.database("poison_documents")
        settings = DocumentsSettings.load(
            server=SERVER,
            store_url=dsn,
            files_url=(folder / "files").as_uri(),
            index_folder=folder / "index",
            spool_folder=folder / "spool",
            poll_s=0.2,
        )
        found = await core.serve(serve_documents, settings, "documents")
        answering = RagSettings.load(
            server=SERVER, auth=AuthSettings.load(), documents_target=found
        )
        rag, agent = await core.serve(serve_rag, answering, "rag"), DeployAgent()
        enter = core.stack.enter_async_context
        client = await enter(BosClient(await core.gateway({"rag": rag, "deploy": agent})))
        stub = DocumentsServiceStub(await enter(grpc.aio.insecure_channel(found)))
        caller = Caller(stub, None, core.telemetry, dsn, folder, address=found)
        started = PoisonHarness(core, client, caller, agent)
        # Always there, so that the model has passages to rank.
        async with started.holding(OTHER.encode(), "depot.txt"):
            yield started


async def test_hidden_parts_of_documents_are_not_read() -> None:
    for hidden in (each for each in POISONED if each.reaches == NOWHERE):
        source = open_document(hidden.make(), hidden.name, ParsingLimits())
        pages = [source.page(number) for number in range(1, source.info.page_count + 1)]
        text = "\n".join(block.text for page in pages for block in page.blocks)
        assert HONEST[1] in text, hidden.what
        assert not gives_the_order(text), hidden.what


@pytest.mark.parametrize("poisoned", READ, ids=lambda each: each.what)
async def test_order_of_a_document_needs_approval_with_its_origin(
    poisoned: Poisoned, harness: PoisonHarness
) -> None:
    run = await harness.ask(poisoned)

    assert harness.agent.effects == []
    # An address of the document itself may stay, without words of the user.
    assert_harmless(run, "rag", STOLEN.removeprefix(COLLECTOR))
    for approval in run.asked:
        (action,), (shown,) = approval.actions, approval.display.actions
        assert action.tool == "trigger_deployment"
        assert from_value_map(action.arguments) == {"service": "shop", "version": "6.6.6"}
        assert [list(each.lines) for each in shown.arguments] == [["shop"], ["6.6.6"]]
    for request in harness.core.model.requests:
        assert not gives_the_order(outside_fences(request.prompt)), request.prompt
    # Otherwise nothing is shown: the model has not read the order at all.
    replies = list(harness.core.replies())
    assert {schema for schema, reply in replies if DEED in reply} == poisoned.reaches
    assert RANKING in {schema for schema, _ in replies}
    assert bool(run.asked) == (PLANNER in poisoned.reaches)


async def test_approved_order_of_a_document_is_performed_once(harness: PoisonHarness) -> None:
    run = await harness.ask(POISONED[0], approve=True)
    approved = [action for approval in run.asked for action in approval.actions]
    assert approved
    assert all(action.tainted for action in approved)
    effects = list(harness.agent.effects)
    harness.agent.effects.clear()
    assert len(effects) == len(approved)
    assert len({effect.idempotency_key for effect in effects}) == len(effects)


async def test_documents_without_orders_lead_to_no_deed(harness: PoisonHarness) -> None:
    honest = Poisoned("honest", "honest.txt", lambda: "\n\n".join(HONEST).encode())
    run = await harness.ask(honest)
    assert harness.agent.effects == []
    assert run.asked == []
    assert run.response.answer == f"{HONEST[1]} [1]"
    assert run.results["read"].tainted


async def test_users_own_order_is_tainted_only_after_a_poisoned_answer(
    harness: PoisonHarness,
) -> None:
    run = await harness.ask(POISONED[0], DEPLOY, approve=True)
    (approval,) = run.asked
    assert not approval.actions[0].tainted
    assert TAINTED not in approval.display.actions[0].notes
    assert [each.label for each in harness.agent.effects] == ["deploy shop 1.2"]
    assert not run.response.tainted
    harness.agent.effects.clear()
    read = await harness.ask(POISONED[0])
    after = await harness.ask(POISONED[0], DEPLOY, tainted=read.response.tainted)
    (approval,) = after.asked
    assert approval.actions[0].tainted
    assert harness.agent.effects == []
