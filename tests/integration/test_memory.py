"""Memory from end to end: a user's facts are in her prompts, and in no other user's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
import pytest_asyncio

from bos.identity.v1 import IdentityServiceStub, LogInRequest, RegisterUserRequest
from bos.memory.v1 import (
    DeleteConversationRequest,
    DeleteLongTermMemoryRequest,
    GetLongTermMemoryRequest,
    ListConversationsRequest,
    MemoryServiceStub,
)
from bos_client import BosClient
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import OpenProduct

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASSWORD = "correct horse battery"
COMPANY = "Analytical Engines"
INTRODUCTION = f"I am Ada of {COMPANY}. How many bicycles are there?"
NEEDS_MODEL = "How many bicycles are there?"
FOUND = fixture(
    "ada",
    [f"look through <untrusted> {INTRODUCTION}"],
    schema="PersonalFacts",
    json={"found": True, "critical_facts": {"user_name": "Ada", "company_name": COMPANY}},
)


@dataclass
class Person:
    bos: BosClient
    memory: Any
    token: str
    model: ScriptedModel
    prompts: list[tuple[str | None, str]] = field(default_factory=list)
    """Schema and text of what her last question showed the model, its extraction left out."""

    async def ask(self, question: str, conversation: str = "") -> Any:
        before = len(self.model.requests)
        response = await self.bos.ask(question, conversation_id=conversation)
        self.prompts = [
            (request.schema, request.prompt)
            for request in list(self.model.requests)[before:]
            if request.schema not in ("PersonalFacts", "ConversationSummary")
        ]
        return response

    def shown(self, text: str) -> set[str | None]:
        """Schemas of the prompts that hold ``text``."""
        return {schema for schema, prompt in self.prompts if text in prompt}

    async def call(self, method: str, request: Any) -> Any:
        metadata = (("authorization", f"Bearer {self.token}"),)
        return await getattr(self.memory, method)(request, metadata=metadata, timeout=20)

    async def company(self) -> str:
        response = await self.call("GetLongTermMemory", GetLongTermMemoryRequest())
        return str(response.memory.critical.company_name)

    async def remembered(self) -> None:
        async with asyncio.timeout(60):
            while not await self.company():  # noqa: ASYNC110  memory is asked
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people(open_product: OpenProduct) -> AsyncIterator[dict[str, Person]]:
    variables = {
        "BOS_IDENTITY_ARGON2_MEMORY_KIB": "8",
        "BOS_IDENTITY_ARGON2_TIME_COST": "1",
        "BOS_GATEWAY_MEMORY_TIMEOUT_S": "20",  # however busy the machine is
    }
    found = {}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = await enter(ScriptedModel([FOUND]))
        product = (await enter(open_product(model, **variables))).standalone
        identity = IdentityServiceStub(
            await enter(grpc.aio.insecure_channel(product.addresses["identity"]))
        )
        at_memory = await enter(grpc.aio.insecure_channel(product.addresses["memory"]))
        for name in ("ada", "eve", "ida"):
            email = f"{name}@example.com"
            await identity.RegisterUser(
                RegisterUserRequest(username=name, email=email, password=PASSWORD)
            )
            login = await identity.LogIn(LogInRequest(username=name, password=PASSWORD))
            token = login.tokens.access_token
            bos = await enter(BosClient(product.target, api_key=token))
            found[name] = Person(bos, MemoryServiceStub(at_memory), token, model)
        yield found


@pytest.mark.requirement("L-01", "L-05", "L-08")
async def test_facts_are_in_the_users_own_prompts_only_until_deleted(
    people: dict[str, Person],
) -> None:
    ada, eve = people["ada"], people["eve"]
    await ada.ask(INTRODUCTION)
    await ada.remembered()

    await ada.ask(NEEDS_MODEL)
    assert {"PlannerReply", "QueryDraft"} <= ada.shown(COMPANY)
    await eve.ask(NEEDS_MODEL)
    assert eve.prompts
    assert eve.shown(COMPANY) == set()

    await ada.call("DeleteLongTermMemory", DeleteLongTermMemoryRequest())
    await ada.ask(NEEDS_MODEL)
    assert ada.prompts
    assert ada.shown(COMPANY) == set()


async def test_a_follow_up_is_planned_with_what_was_said_before_it(
    people: dict[str, Person],
) -> None:
    ida = people["ida"]
    first = await ida.ask("List all tables in the database, for the inventory")
    conversation = first.metadata.conversation_id
    await ida.ask("And the ones before?", conversation)
    assert "PlannerReply" in ida.shown("user: List all tables in the database, for the inventory")
    listed = await ida.call("ListConversations", ListConversationsRequest())
    assert [each.conversation_id for each in listed.conversations] == [conversation]

    await ida.call("DeleteConversation", DeleteConversationRequest(conversation_id=conversation))
    await ida.ask("And the ones after?", conversation)
    assert ida.prompts
    assert ida.shown("for the inventory") == set()
