"""Many runs that wait for people on one gateway, which dies: every decision counts exactly once.

Effects are counted where they land, at the agent, which is no part of any gateway.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest
from gateway_harness.crash.harness import follow_anywhere
from gateway_harness.harness import Client, Harness, gateway_process
from gateway_harness.run_contract import Seen, check_contract, stored_runs

from bos.agent.v1 import SIDE_EFFECT_CLASS_IDEMPOTENT
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_TIMED_OUT,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Approval,
    ApprovalServiceStub,
    RespondApprovalRequest,
)
from bos.runlog.v1 import LogEvent
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

_RUNS = 60
_DECIDING = 16
_WAITING = """
SELECT count(*) FROM runs WHERE replica_id IS NULL AND status = $1 AND finished_at IS NULL
"""
_STATUSES = "SELECT status, count(*)::int AS times FROM approvals GROUP BY status"


async def decide(client: Client, approvals: Sequence[Approval], decision: int) -> int:
    """Everybody decides at once, twice; returns how many decisions were taken."""
    stub = ApprovalServiceStub(client.channel)
    turns, taken = asyncio.Semaphore(_DECIDING), 0

    async def one(approval: Approval) -> None:
        nonlocal taken
        request = RespondApprovalRequest(approval_id=approval.approval_id, decision=decision)
        async with turns:
            await asyncio.gather(*(stub.RespondApproval(request, timeout=30) for _ in range(2)))
        taken += 1

    await asyncio.gather(*(one(approval) for approval in approvals))
    return taken


@asynccontextmanager
async def changed(harness: Harness, approval: Approval) -> AsyncIterator[None]:
    """What was shown to the person is stored with another argument, for the length of the block."""
    event = "run_id = $1 AND kind = 'approval_requested'"
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        shown = await connection.fetchval(
            f"SELECT payload FROM run_events WHERE {event}", approval.run_id
        )
        other = LogEvent.FromString(shown)
        (action,) = other.approval_requested.approval.actions
        action.arguments.fields["version"].string_value = "6.6.6"
        update = f"UPDATE run_events SET payload = $2 WHERE {event}"
        await connection.execute(update, approval.run_id, other.SerializeToString())
        await connection.execute(
            "UPDATE approvals SET payload = $2 WHERE approval_id = $1",
            approval.approval_id,
            other.approval_requested.approval.SerializeToString(),
        )
        yield
        await connection.execute(update, approval.run_id, shown)


async def test_storm_of_approvals_over_the_death_of_their_gateway(harness: Harness) -> None:
    agent = DeployAgent(side_effect=SIDE_EFFECT_CLASS_IDEMPOTENT)
    await harness.add_agent(agent)
    asking = step("a", "deploy", "deploy shop 1.2")
    asking.tools.append("trigger_deployment")
    harness.planner.steps = [asking]
    limits = {
        "approval_timeout_s": 3600,
        "max_active_runs_per_user": 0,
        "max_waiting_runs_per_user": 0,
        "max_streams": 2 * _RUNS,
    }
    async with (
        gateway_process(harness, **limits) as (first, one),
        gateway_process(harness, **limits) as (_, other),
    ):
        clients = [Seen(f"r{n}") for n in range(_RUNS + 1)]
        there = [one]
        following = [
            asyncio.create_task(follow_anywhere(lambda: there, f"Deploy {n}?", seen))
            for n, seen in enumerate(clients)
        ]

        def requests() -> list[Approval]:
            return [
                event.approval_requested.approval
                for seen in clients
                for event in seen.events
                if event.HasField("approval_requested")
            ]

        await eventually(lambda: len(requests()) == _RUNS + 1, within_s=60)
        async with asyncio.timeout(60), connect(harness.dsn, schema=SCHEMA) as connection:
            waits = RUN_STATUS_WAITING_FOR_APPROVAL
            while await connection.fetchval(_WAITING, waits) < _RUNS + 1:
                await connection.execute("SELECT pg_sleep(0.02)")
        assert not agent.effects
        first.kill()
        await first.wait()
        there[:] = [other]
        *asked, tampered = requests()
        half, quarter = _RUNS // 2, _RUNS // 4
        approved, denied = asked[:half], asked[half : half + quarter]
        taken = await asyncio.gather(
            decide(other, approved, APPROVAL_DECISION_APPROVE),
            decide(other, denied, APPROVAL_DECISION_DENY),
        )
        assert taken == [half, quarter]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await decide(other, approved[:1], APPROVAL_DECISION_DENY)
        assert refused.value.code() == grpc.StatusCode.ALREADY_EXISTS
        # The time of the others is over now, however long all this took.
        async with (
            changed(harness, tampered),
            connect(harness.dsn, schema=SCHEMA) as connection,
            asyncio.timeout(90),
        ):
            assert await decide(other, [tampered], APPROVAL_DECISION_APPROVE) == 1
            await connection.execute("UPDATE approvals SET expire_at = now() WHERE status = 1")
            await asyncio.gather(*following)
            statuses = dict(await connection.fetch(_STATUSES))
    verdict = await check_contract(harness.dsn, clients, [])
    assert not verdict.broken, verdict
    timed_out = _RUNS - half - quarter
    assert statuses == {
        APPROVAL_STATUS_APPROVED: half + 1,
        APPROVAL_STATUS_DENIED: quarter,
        APPROVAL_STATUS_TIMED_OUT: timed_out,
    }
    keys = Counter(effect.idempotency_key.split("/")[0] for effect in agent.effects)
    assert keys == dict.fromkeys((approval.run_id for approval in approved), 1)
    outcomes: Counter[str] = Counter()
    for run in (await stored_runs(harness.dsn)).values():
        kinds = Counter(event.WhichOneof("event") for event in run.events)
        assert kinds["approval_requested"] == kinds["approval_resolved"] == 1
        (result,) = [e.step_finished.result for e in run.events if e.HasField("step_finished")]
        outcomes[result.error.type] += 1
        assert kinds["effect_intended"] == (result.error.type in ("", "PermissionDenied"))
        # What was changed behind the person's back is refused by the agent, and nothing happens.
        assert (run.run_id == tampered.run_id) == (result.error.type == "PermissionDenied")
    assert outcomes == {
        "": half,
        "denied_by_user": quarter,
        "hitl_timeout": timed_out,
        "PermissionDenied": 1,
    }
