"""Two gateways on one run log, behind REST: what `services/console/e2e/failures.spec.ts` breaks.

Gateways, REST and PostgreSQL are real; planner, composer and agents do as the question says. In the
log are a run of 200 steps and a conversation of 150 questions and answers::

    PYTHONPATH=services/gateway/tests python tests/integration/console/harness.py

Prints a line of JSON once it is up. A line on its standard input is an order, answered by a line:
``kill`` ends the gateway in use by SIGKILL; ``release`` lets the answer that is held go on;
``hold`` has plans made with a step that is held; ``go on`` lets that step go on. It ends with its
standard input.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from gateway_harness import run_logs as logs
from gateway_harness.harness import ComposerDouble, Harness, gateway_process
from gateway_harness.harness import open_harness as open_gateway_harness

from bos.agent.v1 import AgentResult
from bos.common.v1 import TRACE_EVENT_TYPE_TOOL, TraceEvent
from bos.composer.v1 import ComposeRequest, ComposeResponse, ComposerOutput
from bos.gateway.v1 import (
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    OrchestratorResponse,
)
from bos.runlog.v1 import (
    LogEvent,
    RunAccepted,
    RunFinished,
    StepDispatched,
    StepProgressed,
    SubTask,
)
from bos_agentkit import AgentTask
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_gateway.api import LOCAL_USER
from bos_gateway.run_log.records import Append
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.statements import SCHEMA_VERSION
from bos_gateway.service import migrate_store, new_run_id
from bos_postgres import connect, create_database
from bos_standalone.rest import find_binary, serve_rest
from bos_testkit.agents import EchoAgent, RecordingAgent
from bos_testkit.forked import ForkedProcess
from bos_testkit.plans import step
from bos_testkit.postgres import embedded_server, memory_folder
from bos_testkit.processes import free_port

REVISIONS = 4
STEPS = 50
"""Of each plan."""
WIDTH = 10
"""Steps that run at the same time."""
TURNS = 150
AT_ONCE = 12
CONVERSATION = "long-conversation"
HELD = "Write an answer and hold it in the middle"
PIECES = [f"word{number} " for number in range(60)]
PLAN = [step("only", "echo", "say it")]
HELD_PLAN = [step("first", "held", "wait"), step("second", "echo", "say it", "first")]


class Composer(ComposerDouble):
    """Answers at once, in texts of several lengths; one question is held in the middle."""

    async def Compose(
        self, request: ComposeRequest, context: Any
    ) -> AsyncIterator[ComposeResponse]:
        if request.question != HELD:
            number = sum(map(ord, request.question))
            text = f"The answer to “{request.question}”." + "\n\nIt has a reason." * (number % 9)
            yield ComposeResponse(output=ComposerOutput(answer=text))
            return
        assert self.release is not None
        half = len(PIECES) // 2
        for piece in PIECES[:half]:
            yield ComposeResponse(delta=piece)
        await self.release.wait()
        for piece in PIECES[half:]:
            yield ComposeResponse(delta=piece)
        yield ComposeResponse(output=ComposerOutput(answer="".join(PIECES)))


class HeldAgent(RecordingAgent):
    """Succeeds once it is released."""

    def __init__(self) -> None:
        super().__init__("held")
        self.release = asyncio.Event()

    async def behave(self, task: AgentTask) -> AgentResult:
        """Wait, then succeed with the task as answer."""
        await self.release.wait()
        return await super().behave(task)


@dataclass
class Balancer:
    """Passes connections on to the first gateway that takes them, as a load balancer does."""

    ports: list[int]
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its address, until the block is left."""
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()[:2]
            yield f"{host}:{port}"
            for task in self._tasks:
                task.cancel()

    async def _join(self, near: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            for port in self.ports:
                with suppress(OSError):
                    far, sender = await asyncio.open_connection("127.0.0.1", port)
                    break
            else:
                return
            with suppress(OSError):
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copy(near, sender))
                    both.create_task(_copy(far, writer))
        finally:
            self._tasks.discard(task)
            writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while content := await source.read(65536):
            target.write(content)
            await target.drain()
    finally:
        target.close()


@dataclass
class Breaker:
    """The running gateways, and the orders that break them."""

    gateways: list[ForkedProcess]
    harness: Harness
    agent: HeldAgent

    async def obey(self, order: str) -> None:
        """Do what a line says."""
        if order == "kill":
            first = self.gateways.pop(0)
            first.kill()
            await first.wait()
        elif order == "release":
            release = self.harness.composer.release
            assert release is not None
            release.set()
        elif order == "hold":
            self.harness.planner.steps = HELD_PLAN
        elif order == "go on":
            self.harness.planner.steps = PLAN
            self.agent.release.set()


def long_run() -> Iterable[LogEvent]:
    """Events of a run of 200 steps in four plans, each of which fails but the last."""
    start = logs.accepted(request={"trace": True})
    start.run_accepted.request.question = "A run of 200 steps"
    yield start
    results = []
    moment = logs.START
    for revision in range(REVISIONS):
        if revision:
            yield logs.revising(f"last{revision - 1}", revision=revision)
        names = [f"s{revision}_{number}" for number in range(STEPS - 1)] + [f"last{revision}"]
        needs = [names[max(0, at - WIDTH)] if at >= WIDTH else "" for at in range(STEPS)]
        steps = [
            step(name, "echo", f"do {name}", *filter(None, [need]))
            for name, need in zip(names, needs, strict=True)
        ]
        yield logs.planned(*steps, revision=revision)
        for name in names:
            moment += timedelta(milliseconds=250)
            yield logs.event(moment, step_dispatched=_dispatched(name, revision))
            yield logs.event(moment, step_progressed=_progressed(name, revision))
            fails = name == f"last{revision}" and revision < REVISIONS - 1
            ended = (logs.failed if fails else logs.finished)(name)
            ended.step_finished.revision = revision
            ended.create_time.FromDatetime(moment + timedelta(milliseconds=200))
            yield ended
            results.append(ended.step_finished.result)
    response = OrchestratorResponse(
        status=RUN_STATUS_PARTIALLY_SUCCEEDED, answer="200 steps.", agent_results=results[-STEPS:]
    )
    yield logs.event(moment + timedelta(seconds=1), run_finished=RunFinished(response=response))


def _dispatched(name: str, revision: int) -> StepDispatched:
    task = SubTask(assigned_agent_role="echo", task=f"do {name}")
    task.sub_task_input["name"].CopyFrom(to_value(name))
    return StepDispatched(
        revision=revision, step_id=name, agent_id="echo_1", sub_task=task, attempt=1
    )


def _progressed(name: str, revision: int) -> StepProgressed:
    said = TraceEvent(type=TRACE_EVENT_TYPE_TOOL, agent="echo", message=f"called for {name}")
    return StepProgressed(revision=revision, step_id=name, events=[said])


async def store(dsn: str, events: list[LogEvent]) -> UUID:
    """Put a log of a run that has ended into the store."""
    await migrate_store(dsn)
    run_id = new_run_id()
    accepted = events[0].run_accepted
    accepted.user_id, accepted.cards_digest = LOCAL_USER, uuid4().bytes
    rows = Append(run_id, 1, 1, events).rows
    async with connect(dsn, schema=SCHEMA) as connection:
        await connection.execute(
            "INSERT INTO cards VALUES ($1, $2)",
            accepted.cards_digest,
            RunAccepted(cards=accepted.cards).SerializeToString(deterministic=True),
        )
        await connection.execute(
            "INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, "
            "last_sequence, finished_at) VALUES ($1, $2, $3, '', $4, $5, $6, now())",
            *(run_id, LOCAL_USER, str(run_id), accepted.request.question),
            *(RUN_STATUS_PARTIALLY_SUCCEEDED, len(rows)),
        )
        await connection.executemany(
            "INSERT INTO run_events VALUES ($1, $2, $3, 1, $4, $5, $6, now())",
            [
                (run_id, row.sequence, row.event_id, row.kind, SCHEMA_VERSION, row.payload)
                for row in rows
            ],
        )
    return run_id


async def converse(harness: Harness) -> None:
    """Ask the questions of the long conversation, and wait until they are answered."""
    async with harness.gateway() as client:
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(number: int) -> None:
            async with places:
                await client.ask(f"Question number {number}?", conversation_id=CONVERSATION)

        async with asyncio.TaskGroup() as asking:
            for number in range(1, TURNS + 1):
                asking.create_task(ask(number))


async def serve(dsn: str) -> None:
    """Serve the gateways until standard input ends."""
    binary = find_binary(None)
    assert binary is not None, "build it first: make rest"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        harness = await enter(open_gateway_harness(dsn, Composer(release=asyncio.Event())))
        harness.planner.steps = PLAN
        held = HeldAgent()
        for agent in (EchoAgent(), held):
            await harness.add_agent(agent)
        run_id = await store(dsn, list(long_run()))
        await converse(harness)
        ports = [free_port(), free_port()]
        started = [await enter(gateway_process(harness, server__port=port)) for port in ports]
        target = await enter(Balancer(ports).serving())
        rest = await enter(
            serve_rest(
                binary,
                gateway_target=target,
                ports=(0,),
                grace_s=0.2,
                log=Telemetry.for_tests("rest").logger("bos.rest"),
            )
        )
        breaker = Breaker([process for process, _ in started], harness, held)
        said = {"rest_url": rest.url, "long_run": str(run_id), "conversation": CONVERSATION}
        print(json.dumps({**said, "held": HELD, "answer": "".join(PIECES)}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await breaker.obey(line.strip())
            print(json.dumps({"done": line.strip()}), flush=True)


def main() -> None:
    """Run the gateways on a PostgreSQL of its own."""
    with ExitStack() as stack:
        folder = stack.enter_context(memory_folder()) or Path(
            stack.enter_context(tempfile.TemporaryDirectory())
        )
        server = stack.enter_context(embedded_server(folder))
        dsn = asyncio.run(create_database(server.dsn(), "console_harness"))
        asyncio.run(serve(dsn))


if __name__ == "__main__":
    main()
