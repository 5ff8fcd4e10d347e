"""Rules about what an agent says: its card, its health, progress, and results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import protovalidate
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from bos.agent.v1 import AgentExecutionStatus, SideEffectClass
from bos.common.v1 import ConversationMessage, LongTermMemory, MessageRole, TraceEventType
from bos_agentkit import UNTRUSTED_NOTICE, format_conversation, format_user_profile
from bos_agentkit.actions import digest_matches
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.settings import AuthSettings
from bos_testkit.agent_contract.subject import TIMEOUT_S, require, step_metadata
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from bos.agent.v1 import AgentResult, FileChunk
    from bos.common.v1 import TraceEvent
    from bos_testkit.agent_contract.subject import Subject

SERVICE = "bos.agent.v1.AgentService"
SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
SKIPPED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED
WAITS = AgentExecutionStatus.AGENT_EXECUTION_STATUS_AWAITING_APPROVAL
ASKS = AgentExecutionStatus.AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION
_MAX_CARD_BYTES = 256 * 1024
_MAX_CHUNK_BYTES = 1024 * 1024
_STEPS_AT_ONCE = 8
_TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


async def card_is_valid(subject: Subject) -> None:
    """Describe returns a card that planner and gateway can use, and always the same one."""
    async with subject.open() as agent:
        card, again = await agent.card(), await agent.card()
    _valid(card, "the card")
    require(card == again, "Describe returns the same card every time")
    require(card.name == subject.name, f"the agent calls itself {subject.name}, not {card.name}")
    require(card.typical_use_cases, "the card shows the planner examples of questions")
    require(card.ByteSize() <= _MAX_CARD_BYTES, "the gateway takes cards of up to 256 KiB")
    require(card.default_timeout.ToTimedelta(), "the card says how long a step may take")
    require(
        all(word and word == word.lower() for word in card.keywords),
        "keywords of the card are in lower case",
    )
    require(card.name not in card.aliases, "no alias of the card is its own name")
    names = [tool.name for tool in card.tools]
    require(len(names) == len(set(names)), "names of tools are unique within the card")
    for tool in card.tools:
        require(tool.description, f"the tool {tool.name} is described")
        require(
            dict(tool.input_schema).get("type") == "object",
            f"the tool {tool.name} has a JSON schema of its arguments",
        )
        require(
            tool.side_effect != SideEffectClass.SIDE_EFFECT_CLASS_UNSPECIFIED,
            f"the tool {tool.name} declares what calling it does to the world",
        )


async def health_needs_no_credentials(subject: Subject) -> None:
    """The standard health service says SERVING, to callers without credentials too."""
    _, public = generate_keypair()
    async with subject.open(auth=AuthSettings(run_token_public_keys=public)) as agent:
        health = health_pb2_grpc.HealthStub(agent.channel)
        for service in ("", SERVICE):
            try:
                answer = await health.Check(
                    health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S
                )
            except Exception as error:
                require(False, f"the health of {service!r} needs no credentials: {error}")
            require(
                answer.status == health_pb2.HealthCheckResponse.SERVING,
                f"the health of {service!r} is SERVING",
            )


async def example_has_a_valid_result(subject: Subject) -> None:
    """A step of the card's example ends with one result that fits its status."""
    async with subject.open() as agent:
        outcome = await agent.execute(subject.step())
    check_result(subject, outcome.result)
    require(
        outcome.result.status in (SUCCEEDED, WAITS, ASKS),
        f"the example of the card can be done: {outcome.result.error}",
    )
    _check_files(outcome.chunks)


def check_result(subject: Subject, result: AgentResult, *, agent_id: str = "step_1") -> None:
    """Raise unless ``result`` is well-formed, for any status.

    Raises:
        ContractBroken: names what is wrong.
    """
    _valid(result, "the result")
    require(result.agent_id == agent_id, f"the result is of {agent_id}, not {result.agent_id!r}")
    require(result.agent_name == subject.name, "the result names the agent")
    require(result.task_description, "the result says what was asked of the agent")
    require(0 <= result.confidence <= 1, f"confidence is from 0 to 1, not {result.confidence}")
    require(result.HasField("start_time"), "the result says when the step started")
    require(result.HasField("latency"), "the result says how long the step took")
    require(result.latency.ToTimedelta().total_seconds() >= 0, "no step takes less than no time")
    numbers = [value for _, value in result.usage.ListFields() if isinstance(value, int)]
    require(min(numbers, default=0) >= 0, "no usage is negative")
    require(
        result.status in (SUCCEEDED, FAILED, SKIPPED, WAITS, ASKS),
        f"a result has a final status, not {result.status}",
    )
    require(
        result.HasField("error") == (result.status in (FAILED, SKIPPED)),
        "a result has an error exactly if the step did not succeed",
    )
    require(
        bool(result.proposed_actions) == (result.status == WAITS),
        "a result proposes actions exactly if it waits for approval",
    )
    require(
        result.HasField("clarification") == (result.status == ASKS),
        "a result has questions exactly if it needs clarification",
    )
    if result.status == SUCCEEDED:
        require(result.answer or result.data.fields, "a step that succeeded says something")
    if result.status == FAILED:
        require(result.error.type, "an error has a type")
        require(result.error.message, "an error says what went wrong")
    for action in result.proposed_actions:
        require(digest_matches(action), "the digest of a proposed action is its own")
        require(action.summary, "a proposed action says what will happen")
    ids = [action.action_id for action in result.proposed_actions]
    require(len(ids) == len(set(ids)), "ids of proposed actions are unique")


async def progress_is_well_formed(subject: Subject) -> None:
    """Trace events have a kind, an agent and a time, and come in the order of their times."""
    async with subject.open() as agent:
        events = (await agent.execute(subject.step())).events
    require(events, "a step that asks a model shows progress")
    _check_events(subject, events)


def _check_events(subject: Subject, events: Sequence[TraceEvent]) -> None:
    for event in events:
        _valid(event, "a trace event")
        require(
            event.type in TraceEventType.values()
            and event.type != TraceEventType.TRACE_EVENT_TYPE_UNSPECIFIED,
            "a trace event has a known kind",
        )
        require(event.agent == subject.name, "a trace event names the agent")
        require(event.HasField("create_time"), "a trace event says when it happened")
    times = [event.create_time.ToNanoseconds() for event in events]
    require(times == sorted(times), "trace events come oldest first")


def _check_files(chunks: Sequence[FileChunk]) -> None:
    open_file = False
    for chunk in chunks:
        require(bool(chunk.name) != open_file, "the first chunk of a file, and no other, names it")
        require(len(chunk.content) <= _MAX_CHUNK_BYTES, "a chunk of a file has up to 1 MiB")
        open_file = not chunk.last
    require(not open_file, "the last chunk of a file says so")


async def same_step_twice_has_the_same_result(subject: Subject) -> None:
    """A step that is repeated under its key, also at the same time, is the same step."""
    async with subject.open() as agent:
        steps = [subject.step(metadata=step_metadata(attempt=n)) for n in (1, 2, 3)]
        first = (await agent.execute(steps[0])).result
        others = await asyncio.gather(*(agent.execute(step) for step in steps[1:]))
    for other in (each.result for each in others):
        check_result(subject, other)
        require(_essence(other) == _essence(first), "an attempt at the same step ends the same")


def _essence(result: AgentResult) -> tuple[Any, ...]:
    """What does not depend on when a step was done."""
    actions = [(action.action_id, action.digest) for action in result.proposed_actions]
    return (result.status, result.answer, result.table, actions, result.error.type)


async def taint_is_carried_on(subject: Subject) -> None:
    """What was made of content of others is marked as such: results and proposals."""
    async with subject.open() as agent:
        for step in (subject.step(), subject.step(subject.proposing)):
            step.tainted = True
            result = (await agent.execute(step)).result
            require(result.tainted, "a result of tainted input is tainted")
            require(
                all(action.tainted for action in result.proposed_actions),
                "an action that was proposed from tainted input is tainted",
            )


async def what_is_known_of_the_user_reaches_every_prompt(subject: Subject) -> None:
    """Memory stands in every prompt, the conversation in one, as the kit formats them."""
    memory = LongTermMemory()
    memory.critical.user_name, memory.critical.company_name = "Zebedee Quill", "Quill & Sons"
    memory.critical.job_title = "controller"
    memory.critical.recent_projects.append("Project Heron")
    memory.preferences.tone, memory.preferences.detail_level = "dry", "brief"
    memory.preferences.language = "Konkani"
    history = [
        ConversationMessage(role=MessageRole.MESSAGE_ROLE_USER, content="We spoke of herons."),
        ConversationMessage(role=MessageRole.MESSAGE_ROLE_ASSISTANT, content="Of nine herons."),
    ]
    step = subject.step(long_term_memory=memory, conversation_history=history)
    before = subject.model.calls
    async with subject.open() as agent:
        check_result(subject, (await agent.execute(step)).result)
    calls = subject.model.calls - before
    require(calls, "the example asks the model")
    prompts = [request.prompt for request in list(subject.model.requests)[-calls:]]
    known, said = format_user_profile(memory), format_conversation(history)
    require(
        all(known in prompt for prompt in prompts),
        "what is known of the user stands in every prompt, as format_user_profile writes it",
    )
    require(
        any(said in prompt for prompt in prompts),
        "the conversation stands in a prompt, as format_conversation writes it",
    )
    require(
        all(UNTRUSTED_NOTICE in prompt for prompt in prompts),
        "a prompt that shows what others may have written has UNTRUSTED_NOTICE",
    )


async def metadata_and_trace_are_taken_over(subject: Subject) -> None:
    """The spans of a step belong to its caller's trace; unknown headers are no error."""
    metadata = step_metadata(attempt=3, conversation_id="talk-1")
    headers = [
        ("traceparent", f"00-{_TRACE_ID}-00f067aa0ba902b7-01"),
        ("x-header-of-a-proxy", "anything"),
    ]
    async with subject.open() as agent:
        result = (await agent.execute(subject.step(metadata=metadata), headers)).result
    check_result(subject, result)

    def belongs() -> bool:
        wanted = int(_TRACE_ID, 16)
        return any(span.context.trace_id == wanted for span in subject.telemetry.spans)

    try:
        await eventually(belongs, within_s=subject.patience_s)
    except TimeoutError:
        require(False, "the spans of a step belong to the trace of its caller")


async def steps_at_once_are_kept_apart(subject: Subject) -> None:
    """Every one of several steps gets its own result, which is that of a step alone."""
    async with subject.open() as agent:
        alone = (await agent.execute(subject.step())).result
        names = [f"step_{n}" for n in range(_STEPS_AT_ONCE)]
        steps = [
            subject.step(agent_id=name, metadata=step_metadata(step_key=f"run-1/0/{name}"))
            for name in names
        ]
        with subject.held_model():
            calls = [asyncio.ensure_future(agent.execute(step)) for step in steps]
            try:
                # All are under way before any goes on.
                await subject.is_asked(_STEPS_AT_ONCE)
                subject.model.knobs.clear()
                outcomes = await asyncio.gather(*calls)
            finally:
                for call in calls:
                    call.cancel()
    for name, outcome in zip(names, outcomes, strict=True):
        check_result(subject, outcome.result, agent_id=name)
        require(_essence(outcome.result) == _essence(alone), "a step ends beside others as alone")
        _check_events(subject, outcome.events)


def _valid(message: Message, what: str) -> None:
    try:
        protovalidate.validate(message)
    except protovalidate.ValidationError as error:
        require(False, f"{what} keeps the rules of its proto: {error.violations}")
