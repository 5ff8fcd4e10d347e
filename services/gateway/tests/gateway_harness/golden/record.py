"""Records the golden logs of the present schema version: real runs of a real gateway.

::

    export PYTHONPATH=services/gateway/tests
    python -m gateway_harness.golden.record v1     # those that the folder lacks
    python -m gateway_harness.golden.record --pin  # what known logs mean, anew

The second is for a change that is meant to show other things of old runs; the logs themselves stay
as they are.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

from bos.agent.v1 import INSTRUCTION_MODE_ENHANCE
from bos.common.v1 import Clarification
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    ApprovalServiceStub,
    CancelRunRequest,
    RespondApprovalRequest,
)
from bos.planner.v1 import MakePlanResponse
from bos_agentkit import AgentFailure, agent_card
from bos_errors import Unavailable
from bos_gateway.run_log.reader import Runs
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import create_database, open_database
from bos_testkit.agents import EchoAgent, FailingAgent, SlowAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.postgres import embedded_server
from gateway_harness.golden.logs import NAMES, load, pin, save
from gateway_harness.harness import Harness, open_harness


async def succeeded(harness: Harness) -> str:
    """Two steps, the second with a reference to the first, and a streamed answer."""
    await harness.add_agent(EchoAgent("sales", data={"total": 120, "region": "North"}))
    await harness.add_agent(EchoAgent("sums"))
    harness.planner.steps = [
        step("a", "sales", "find the total"),
        step("b", "sums", "halve @{outputs.a.total} of @{outputs.a.region}"),
    ]
    async with harness.gateway(delta_window_s=0.0) as gateway:
        return (await gateway.events("Half of the total?", trace=True))[0].run_id


async def partially_succeeded(harness: Harness) -> str:
    """One step succeeds, one fails after another attempt."""
    error = AgentFailure("HttpError", "The other side is broken.", retryable=True)
    card = agent_card("broken", "Fails.", max_retries=1)
    await harness.add_agent(EchoAgent("echo"))
    await harness.add_agent(FailingAgent("broken", error=error, card=card))
    harness.planner.steps = [step("a", "echo"), step("b", "broken")]
    async with harness.gateway() as gateway:
        return str((await gateway.ask("Both?")).run_id)


async def failed(harness: Harness) -> str:
    """There is no plan."""
    harness.planner.error = Unavailable("The planner is resting.")
    async with harness.gateway() as gateway:
        return str((await gateway.ask("Why?")).run_id)


async def cancelled(harness: Harness) -> str:
    """Cancelled while a step is under way."""
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway() as gateway:
        asked = asyncio.create_task(gateway.events("How long?"))
        await slow.started.wait()
        (run,) = await stored_runs(harness)
        await gateway.stub.CancelRun(CancelRunRequest(run_id=run, reason="too slow"))
        await asked
        return run


async def adopted(harness: Harness) -> str:
    """The owner drains while a step is under way, and another process goes on."""
    quick, slow = EchoAgent("quick", data={"x": 1}), SlowAgent("slow")
    await harness.add_agent(quick)
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "quick"), step("b", "slow", "use @{outputs.a.x}")]
    async with harness.gateway() as gateway:
        call = gateway.stream("Go on?")
        async for message in call:
            if message.event.step_started.step_id == "b":
                break
        call.cancel()
    slow.release.set()
    (run,) = await stored_runs(harness)
    async with harness.gateway() as gateway:
        await gateway.watch(run)
    return run


async def clarification(harness: Harness) -> str:
    """The planner asks back."""
    harness.planner.answer = MakePlanResponse(clarification=Clarification())
    harness.planner.answer.clarification.questions.add(question="Which year?", options=["2024"])
    async with harness.gateway() as gateway:
        return str((await gateway.ask("The revenue?")).run_id)


async def approved(harness: Harness) -> str:
    """Somebody approves, and it is done."""
    return await _decided(harness, (APPROVAL_DECISION_APPROVE, ""))


async def instructed(harness: Harness) -> str:
    """Somebody wants another version, and approves the new proposal."""
    harness.planner.mode = INSTRUCTION_MODE_ENHANCE
    wanted = (APPROVAL_DECISION_APPROVE, "deploy shop 1.3")
    return await _decided(harness, wanted, (APPROVAL_DECISION_APPROVE, ""))


async def denied(harness: Harness) -> str:
    """Somebody denies."""
    return await _decided(harness, (APPROVAL_DECISION_DENY, ""))


async def revised(harness: Harness) -> str:
    """A step fails for good, and another plan does without it."""
    await harness.add_agent(EchoAgent("sales", data={"total": 120}))
    await harness.add_agent(FailingAgent("broken", card=agent_card("broken", "Fails.")))
    harness.planner.steps = [
        step("a", "sales", "find the total"),
        step("b", "broken", "halve @{outputs.a.total}"),
    ]
    harness.planner.revisions = [[step("c", "sales", "halve @{outputs.a.total} another way")]]
    async with harness.gateway() as gateway:
        return (await gateway.events("Half of the total?", trace=True))[0].run_id


async def not_mended(harness: Harness) -> str:
    """A step fails for good, and so does what another plan puts in its place."""
    await harness.add_agent(FailingAgent("broken", card=agent_card("broken", "Fails.")))
    harness.planner.steps = [step("a", "broken")]
    harness.planner.revisions = [[step("b", "broken", "in another way")]]
    async with harness.gateway() as gateway:
        return str((await gateway.ask("Can it be?")).run_id)


async def budgeted(harness: Harness) -> str:
    """With a budget; its owner drains while it is planned, and one with other settings goes on."""
    started, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await release.wait()

    harness.planner.before = hold
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "echo")]
    async with harness.gateway(max_run_tokens=100_000) as gateway:
        call = gateway.stream("How much?")
        run_id = str((await call.read()).event.run_id)
        await started.wait()
        call.cancel()
    release.set()
    async with harness.gateway(max_run_tokens=1) as gateway:
        await gateway.watch(run_id)
    return run_id


async def _decided(harness: Harness, *decisions: tuple[int, str]) -> str:
    await harness.add_agent(DeployAgent())
    asking = step("a", "deploy", "deploy shop 1.2")
    asking.tools.append("trigger_deployment")
    harness.planner.steps = [asking]
    left, run_id = list(decisions), ""
    async with harness.gateway() as gateway:
        async for message in gateway.stream("Deploy?", trace=True):
            event = message.event
            run_id = event.run_id
            if event.HasField("approval_requested"):
                decision, instructions = left.pop(0)
                response = RespondApprovalRequest(
                    approval_id=event.approval_requested.approval.approval_id,
                    decision=decision,
                    instructions=instructions,
                )
                await ApprovalServiceStub(gateway.channel).RespondApproval(response)
    return run_id


SCENARIOS: tuple[Callable[[Harness], Awaitable[str]], ...] = (
    succeeded,
    partially_succeeded,
    failed,
    cancelled,
    adopted,
    clarification,
    approved,
    instructed,
    denied,
    revised,
    not_mended,
    budgeted,
)


async def stored_runs(harness: Harness) -> list[str]:
    """Ids of all runs."""
    async with open_database(harness.dsn, schema=SCHEMA) as pool:
        return [str(row["run_id"]) for row in await pool.fetch("SELECT run_id FROM runs")]


async def record(version: str) -> None:
    """Run every scenario on a database of its own and keep its log; never one anew."""
    with tempfile.TemporaryDirectory() as folder, embedded_server(Path(folder) / "pg") as server:
        for scenario in SCENARIOS:
            if f"{version}/{scenario.__name__}" in NAMES:
                continue
            dsn = await create_database(server.dsn(), scenario.__name__)
            async with open_harness(dsn) as harness:
                run_id = await scenario(harness)
            async with open_database(dsn, schema=SCHEMA) as pool:
                events = await Runs(pool).log(UUID(run_id))
            save(f"{version}/{scenario.__name__}", events)
            print(f"{version}/{scenario.__name__}: {len(events)} events")


if __name__ == "__main__":
    if sys.argv[1:] == ["--pin"]:
        for name in NAMES:
            pin(name, load(name))
    elif len(sys.argv) == 2:
        asyncio.run(record(sys.argv[1]))
    else:
        sys.exit(__doc__)
