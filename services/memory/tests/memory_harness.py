"""A memory service on a fresh database, the scripted model, and clients of both servicers."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import grpc

import bos.memory.v1 as contracts
from bos.common.v1 import LongTermMemory
from bos.memory.v1 import (
    Conversation,
    ExtractFactsRequest,
    Fact,
    MemoryServiceStub,
    MemoryTurnServiceStub,
    Message,
    OpenTurnRequest,
    OpenTurnResponse,
    RecordTurnRequest,
)
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_memory.service import serve
from bos_memory.settings import MemorySettings
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import Fixture

ADA_KEY, EVE_KEY = "the-key-of-ada-0123", "the-key-of-eve-0123"
PRIVATE_KEY, PUBLIC_KEY = generate_keypair()
AS_ADA = AuthSettings.load(
    static_key=ADA_KEY, static_key_user="ada", run_token_public_keys=PUBLIC_KEY
)
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)


@dataclass
class Caller:
    """Client of one server: as a user with a key, or as a run of a user."""

    people: Any
    turns: Any
    model: Any
    telemetry: Telemetry
    key: str = ""
    """Key of the user; empty if authentication is off."""
    address: str = ""

    async def call(self, method: str, request: Any) -> Any:
        """Stub for calls of a user."""
        metadata = (("authorization", f"Bearer {self.key}"),) if self.key else ()
        with translate_rpc_errors():
            return await getattr(self.people, method)(request, metadata=metadata, timeout=20)

    async def do(self, method: str, /, **fields: Any) -> Any:
        """Stub for calls of a user, by the fields of their request."""
        return await self.call(method, getattr(contracts, f"{method}Request")(**fields))

    async def call_as_run(self, method: str, request: Any, *, token: str = "") -> Any:
        """Stub for calls of a run."""
        metadata = ((RUN_TOKEN_KEY, token),) if token else ()
        with translate_rpc_errors():
            return await getattr(self.turns, method)(request, metadata=metadata, timeout=20)

    async def record(
        self,
        question: str,
        answer: str = "An answer.",
        *,
        user: str = "local",
        conversation: str = "talk",
        run_id: str = "",
        asked: datetime | None = None,
        tainted: bool = False,
    ) -> bool:
        asked = asked or datetime.now(UTC)
        request = RecordTurnRequest(
            user_id=user,
            run_id=run_id or str(uuid4()),
            conversation_id=conversation,
            question=question,
            answer=answer,
            tainted=tainted,
        )
        request.ask_time.FromDatetime(asked)
        request.answer_time.FromDatetime(asked + timedelta(seconds=1))
        return bool((await self.call_as_run("RecordTurn", request)).recorded)

    async def extract(
        self,
        question: str,
        *,
        user: str = "local",
        asked: datetime | None = None,
        tainted: bool = False,
        run_id: str = "",
    ) -> bool:
        request = ExtractFactsRequest(
            user_id=user, question=question, tainted=tainted, run_id=run_id
        )
        request.ask_time.FromDatetime(asked or datetime.now(UTC))
        return bool((await self.call_as_run("ExtractFacts", request)).remembered)

    async def open(
        self, conversation: str = "talk", *, user: str = "local", most: int = 8
    ) -> OpenTurnResponse:
        request = OpenTurnRequest(user_id=user, conversation_id=conversation, max_messages=most)
        return await self.call_as_run("OpenTurn", request)

    async def history(self, conversation: str = "talk", **options: Any) -> list[str]:
        opened = await self.open(conversation, **options)
        return [each.content for each in opened.conversation_history]

    async def memory(self) -> LongTermMemory:
        return (await self.do("GetLongTermMemory")).memory

    async def facts(self) -> list[Fact]:
        return list((await self.do("ListFacts")).facts)

    async def conversation(self, conversation: str = "talk") -> Conversation:
        return (await self.do("GetConversation", conversation_id=conversation)).conversation

    async def conversations(self) -> list[Conversation]:
        return list((await self.do("ListConversations")).conversations)

    async def messages(self, conversation: str = "talk") -> list[Message]:
        return list((await self.do("ListMessages", conversation_id=conversation)).messages)

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0


class Starter:
    """Starts replicas that stop at the end of the test."""

    def __init__(
        self, stack: AsyncExitStack, dsn: str, scripted_model: ScriptedModelFactory
    ) -> None:
        self.stack = stack
        self.dsn = dsn
        self.scripted_model = scripted_model

    async def __call__(
        self,
        *replies: Fixture,
        model: bool = True,
        model_name: str = "scripted",
        auth: AuthSettings | None = None,
        **more: Any,
    ) -> Caller:
        telemetry = Telemetry.for_tests("memory")
        scripted = await self.scripted_model(*replies) if model else None
        models = None
        if scripted is not None:
            options = model_settings(
                scripted,
                model=model_name,
                schema_in_prompt="never",
                retry_base_s=0.001,
                retry_cap_s=0.002,
            )
            models = await self.stack.enter_async_context(Models(options, telemetry))
        settings = MemorySettings.load(
            server=ServerSettings.load(grace_s=0.1),
            auth=auth or AuthSettings.load(),
            telemetry=TelemetrySettings.load(),
            store_url=self.dsn,
            **more,
        )
        server = await self.stack.enter_async_context(serve(settings, telemetry, models=models))
        channel = await self.stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Caller(
            MemoryServiceStub(channel),
            MemoryTurnServiceStub(channel),
            scripted,
            telemetry,
            address=server.address,
        )


def run_token(
    user: str, run: str = "", audiences: Sequence[str] = ("memory",), step: str = "", **more: Any
) -> str:
    return RunTokenSigner(PRIVATE_KEY).mint(user, run, step, audiences, 60, **more)
