"""The agent that the rules are tried on, and one client of it."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from bos.agent.v1 import (
    AgentInput,
    AgentServiceStub,
    DescribeRequest,
    ExecuteRequest,
    TaskMetadata,
)
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from bos.agent.v1 import AgentCard, AgentResult, FileChunk
    from bos.common.v1 import TraceEvent
    from bos_agentkit import AgentServiceSettings
    from bos_chassis.server import GrpcServer
    from bos_testkit.scripted_model.replies import Fixture

    Headers = Sequence[tuple[str, str]]

USER, RUN, STEP = "asha", "run-1", "run-1/0/step_1"
TIMEOUT_S = 120.0
"""Of calls that end by themselves; far more than any takes."""
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024


class ContractBroken(AssertionError):
    """An agent does not keep a rule of the contract; the message says which and how."""


def require(holds: object, what: str) -> None:
    """Raise unless ``holds``.

    Raises:
        ContractBroken: says ``what`` must hold.
    """
    if not holds:
        raise ContractBroken(what)


@dataclass(frozen=True)
class Process:
    """How the agent is started as a process of its own."""

    module: str
    """What ``python -m`` runs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    forked: bool = False
    """Whether it is forked from a process that has imported what agents of this repository do."""


@dataclass(frozen=True)
class Subject:
    """An agent, what it stands on, and a step that it can do."""

    name: str
    """Canonical name."""
    example: AgentInput
    """A step such as its card's example: it asks the model at least once, and does not fail."""
    model: ScriptedModel
    """The model that it asks: what stands below every agent."""
    serve: Callable[..., AbstractAsyncContextManager[str]]
    """``serve(auth=…, max_concurrent_steps=…)``: serves it on port 0 and yields its address. Keeps
    its telemetry in ``telemetry``."""
    telemetry: Telemetry
    """Where spans and log events of the agent end up."""
    process: Process
    """The same agent as a process; its model and services below are those of this subject."""
    proposing: AgentInput | None = None
    """A step that needs an approval; must be given if the card has a protected tool."""
    performed: Callable[[], int] | None = None
    """How many effects of protected tools there were so far; must be given with ``proposing``."""
    patience_s: float = 20.0
    """How long to wait for what an agent that keeps the contract does at once."""

    def step(self, example: AgentInput | None = None, /, **changes: Any) -> AgentInput:
        """The example, or another input, as a step of its own with these fields changed."""
        chosen = AgentInput(agent_id="step_1", agent_name=self.name, metadata=step_metadata())
        chosen.MergeFrom(example or self.example)
        for name, value in changes.items():
            chosen.ClearField(name)
            chosen.MergeFrom(AgentInput(**{name: value}))
        return chosen

    @asynccontextmanager
    async def open(
        self, *, auth: AuthSettings | None = None, max_concurrent_steps: int = 64
    ) -> AsyncIterator[Client]:
        """The agent served and called; open to all without ``auth``."""
        serving = self.serve(auth=auth or AuthSettings(), max_concurrent_steps=max_concurrent_steps)
        async with serving as address, connected(address) as client:
            yield client

    @contextmanager
    def held_model(self) -> Iterator[None]:
        """The model answers nothing until the block ends."""
        self.model.knobs.hold()
        try:
            yield
        finally:
            self.model.knobs.clear()

    async def is_asked(self, times: int = 1) -> None:
        """Wait until the held model has that many calls in flight."""
        await eventually(lambda: self.model.in_flight >= times, within_s=TIMEOUT_S)


def serving(
    serve: Callable[..., AbstractAsyncContextManager[GrpcServer]],
    settings: type[AgentServiceSettings],
    telemetry: Telemetry,
    models: Models,
    **own: Any,
) -> Callable[..., AbstractAsyncContextManager[str]]:
    """What ``Subject.serve`` is for the ``serve`` of an agent's ``service.py``.

    Args:
        serve: Builds and serves it.
        settings: Class of its settings.
        telemetry: That of the subject.
        models: What asks the subject's model.
        own: Settings of its own, such as where the services below it are.
    """

    @asynccontextmanager
    async def start(**changes: Any) -> AsyncIterator[str]:
        loaded = settings.load(server=ServerSettings(port=0, grace_s=1.0), **own, **changes)
        async with serve(loaded, telemetry, models=models) as server:
            yield server.address

    return start


@asynccontextmanager
async def agent_subject(
    name: str,
    serve: Callable[..., AbstractAsyncContextManager[GrpcServer]],
    settings: type[AgentServiceSettings],
    replies: Sequence[Fixture],
    example: AgentInput,
    *,
    package: str = "",
    telemetry: Telemetry | None = None,
    environment: Mapping[str, str] | None = None,
    proposing: AgentInput | None = None,
    performed: Callable[[], int] | None = None,
    **own: Any,
) -> AsyncIterator[Subject]:
    """Subject of an agent of this repository, with a scripted model.

    Args:
        name: Canonical name.
        serve: The ``serve`` of its ``service.py``.
        settings: Class of its settings.
        replies: Replies of the model.
        example: ``Subject.example``.
        package: ``bos_`` and it is the package; by default the name.
        telemetry: Telemetry of the agent; a new one by default.
        environment: Settings of the agent as a process.
        proposing: ``Subject.proposing``.
        performed: ``Subject.performed``.
        own: Settings of the agent in this process.
    """
    telemetry = telemetry or Telemetry.for_tests(name)
    async with (
        ScriptedModel(replies) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name=name,
            example=example,
            model=model,
            serve=serving(serve, settings, telemetry, models, **own),
            telemetry=telemetry,
            process=Process(f"bos_{package or name}", environment or {}, forked=True),
            proposing=proposing,
            performed=performed,
        )


def counted(telemetry: Telemetry, metric: str) -> int:
    """Value of a counter summed over its labels, for ``Subject.performed``."""
    samples = (sample for each in telemetry.registry.collect() for sample in each.samples)
    return int(sum(sample.value for sample in samples if sample.name == metric))


def step_metadata(*, attempt: int = 1, **changes: Any) -> TaskMetadata:
    """On whose behalf the steps of the rules are done."""
    named = {"user_id": USER, "run_id": RUN, "step_key": STEP, "attempt": attempt}
    return TaskMetadata(**{**named, **changes})


@dataclass
class Outcome:
    """What one execution sent, in order."""

    result: AgentResult
    events: list[TraceEvent]
    chunks: list[FileChunk]
    sent: str
    """All messages as text."""


class Client:
    """Calls one agent."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.stub = AgentServiceStub(channel)

    async def card(self, headers: Headers = ()) -> AgentCard:
        """The agent's card."""
        answer = await self.stub.Describe(
            DescribeRequest(), timeout=TIMEOUT_S, metadata=tuple(headers)
        )
        return answer.card

    def start(self, input: AgentInput, headers: Headers = ()) -> Any:
        """The call of a step, under way."""
        request = ExecuteRequest(input=input)
        return self.stub.Execute(request, timeout=TIMEOUT_S, metadata=tuple(headers))

    async def execute(self, input: AgentInput, headers: Headers = ()) -> Outcome:
        """A step to its end."""
        return await ended(self.start(input, headers))


async def ended(call: Any) -> Outcome:
    """All that ``call`` sends, which must be events and files and then one result.

    Raises:
        ContractBroken: it is something else.
        grpc.aio.AioRpcError: the call was refused.
    """
    results: list[AgentResult] = []
    events: list[TraceEvent] = []
    chunks: list[FileChunk] = []
    sent: list[str] = []
    async for message in call:
        sent.append(str(message))
        require(not results, "nothing follows the result of a step")
        match message.WhichOneof("payload"):
            case "result":
                results.append(message.result)
            case "file":
                chunks.append(message.file)
            case "trace":
                require(message.trace.events, "a batch of trace events holds some")
                events.extend(message.trace.events)
            case _:
                raise ContractBroken("every message of a step holds something")
    require(results, "a step that was taken ends with a result")
    return Outcome(results[0], events, chunks, "\n".join(sent))


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    """A client of the agent at ``address``."""
    options = [
        (f"grpc.max_{way}_message_length", _MAX_MESSAGE_BYTES) for way in ("send", "receive")
    ]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield Client(channel)
