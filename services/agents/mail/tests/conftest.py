from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ApprovalContext,
    ConnectionInput,
    ExecuteRequest,
    TaskMetadata,
)
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value, to_value_map
from bos_llm import Models
from bos_mail.service import serve
from bos_mail.settings import MailSettings
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

from .mail_servers import PASSWORD, USER, ImapServer, SmtpServer, imap_server, smtp_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.agent.v1 import ProposedAction
    from bos.common.v1 import TraceEvent
    from bos_testkit.scripted_model.replies import Fixture

LOOPBACK = {"127.0.0.1": ["127.0.0.0/8"]}


@dataclass
class Outcome:
    """Outcome of one step."""

    result: AgentResult
    trace: list[TraceEvent] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    @property
    def action(self) -> ProposedAction:
        (action,) = self.result.proposed_actions
        return action

    @property
    def arguments(self) -> dict[str, Any]:
        return from_value_map(self.action.arguments)


def connection(imap: ImapServer, smtp: SmtpServer, **fields: str) -> ConnectionInput:
    """The connection of a user to servers on loopback."""
    given = {
        "user": USER,
        "imap_host": "127.0.0.1",
        "imap_port": str(imap.port),
        "imap_security": "none",
        "smtp_host": "127.0.0.1",
        "smtp_port": str(smtp.port),
        "smtp_security": "none",
        **fields,
    }
    return ConnectionInput(kind="mail.imap", label="Work", fields=given)


@dataclass
class Mail:
    """The agent, served, and the servers below it."""

    stub: Any
    model: ScriptedModel
    imap: ImapServer
    smtp: SmtpServer

    async def do(
        self,
        task: str,
        *,
        tool: str = "",
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        approved: ProposedAction | None = None,
        tools: tuple[str, ...] = (),
        step_key: str = "run-1/0/step_1",
        connections: tuple[ConnectionInput, ...] | None = None,
        secret: str = PASSWORD,
        **more: Any,
    ) -> Outcome:
        """Execute one step; with ``approved``, the execution after the approval."""
        if connections is None:
            connections = (connection(self.imap, self.smtp),)
        request = AgentInput(
            agent_id="step_1",
            agent_name="mail",
            task=task,
            tool_name=tool,
            tools=tools or ((tool,) if tool else ()),
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            dependency_outputs={k: to_value_map(v) for k, v in (outputs or {}).items()},
            metadata=TaskMetadata(user_id="ada", run_id="run-1", step_key=step_key, attempt=1),
            connections=connections,
            secrets={each.kind: secret for each in connections},
            **more,
        )
        request.context.update({"current_date": "2026-06-15"})
        if approved is not None:
            request.approval_context.CopyFrom(
                ApprovalContext(approval_id="a1", approved_actions=[approved])
            )
        outcome = Outcome(AgentResult())
        async for message in self.stub.Execute(ExecuteRequest(input=request), timeout=60):
            if message.WhichOneof("payload") == "result":
                outcome.result = message.result
            else:
                outcome.trace.extend(message.trace.events)
        return outcome


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def imap_process() -> AsyncIterator[ImapServer]:
    """One server for all tests, because its start takes a second."""
    async with imap_server() as server:
        yield server


@pytest.fixture
def imap(imap_process: ImapServer) -> ImapServer:
    """The server with an empty mailbox."""
    imap_process.reset()
    return imap_process


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def smtp(stack: AsyncExitStack) -> SmtpServer:
    return await stack.enter_async_context(smtp_server())


@pytest.fixture
def start(stack: AsyncExitStack, imap: ImapServer, smtp: SmtpServer) -> Any:
    """Start the agent with fixtures of the scripted model."""

    async def start(*fixtures: Fixture, **settings: Any) -> Mail:
        telemetry = Telemetry.for_tests("mail")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        loaded = MailSettings.load(
            server=ServerSettings(reflection=False, grace_s=1),
            auth=AuthSettings.load(),
            **{"internal_hosts": LOOPBACK, **settings},
        )
        models = await stack.enter_async_context(
            Models(model_settings(scripted, max_attempts=1), telemetry)
        )
        server = await stack.enter_async_context(serve(loaded, telemetry, models=models))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Mail(AgentServiceStub(channel), scripted, imap, smtp)

    return start
