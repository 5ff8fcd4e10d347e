"""Approvers in the random crash test: they decide, or do not, at any gateway and any moment.

The answers they got are compared with what is stored, and both with the effects, counted where they
land: exactly one per approval, and none without one. An approver who is asked about an unknown
outcome may allow one more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_DECISION_DENY,
    APPROVAL_KIND_OUTCOME_UNKNOWN,
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_CANCELLED,
    APPROVAL_STATUS_DENIED,
    RUN_STATUS_CANCELLED,
    Approval,
    ApprovalStatus,
    RespondApprovalRequest,
)
from bos_errors import AgentErrorType
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from gateway_harness.crash.harness import (
    ASKS,
    AskedAgent,
    CrashHarness,
    cancel_anywhere,
    follow_anywhere,
    may_be_away,
)
from gateway_harness.harness import Client
from gateway_harness.run_contract import Seen, StoredRun, stored_runs

TIMEOUT_S = 5.0
"""Time for deciding; who waits longer is too late."""
_THINKS_S = 2.0
_TRIES = 2000
_BETWEEN_S = 0.05
_DECISIONS = {
    APPROVAL_DECISION_APPROVE: APPROVAL_STATUS_APPROVED,
    APPROVAL_DECISION_DENY: APPROVAL_STATUS_DENIED,
}


@dataclass
class Approvers:
    """Everybody who is asked in a round.

    Args:
        where: Clients of the gateways that there are, a drawn one first.
        random: Draws what they do.
    """

    where: Callable[[], Sequence[Client]]
    random: random.Random
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    """Statuses that approvers got in reply to their decisions, by request."""

    async def ask(self, question: str, seen: Seen, *, cancel: bool) -> None:
        """Ask for something that needs approval, decide about it, and follow to the end."""
        following = asyncio.create_task(follow_anywhere(self.where, f"{question}, {ASKS}?", seen))
        deciding: dict[str, asyncio.Task[None]] = {}
        try:
            while not following.done():
                for approval in requests_in(seen):
                    if approval.approval_id not in deciding:
                        task = asyncio.create_task(self._decide(approval, seen, cancel=cancel))
                        deciding[approval.approval_id] = task
                await asyncio.wait([following], timeout=_BETWEEN_S)
            await following
            await asyncio.gather(*deciding.values())
        finally:
            for each in (following, *deciding.values()):
                each.cancel()

    async def _decide(self, approval: Approval, seen: Seen, *, cancel: bool) -> None:
        """One or two approvers, agreeing or not, or none; or the run is cancelled meanwhile."""
        (mind,) = self.random.choices(("approve", "deny", "both", "instruct", "none"),
                                      (50, 15, 15, 10, 10))  # fmt: skip
        await asyncio.sleep(self.random.uniform(0, _THINKS_S))
        async with asyncio.TaskGroup() as group:
            if cancel:
                group.create_task(self._cancel(seen))
            if mind in ("approve", "both"):
                group.create_task(self.respond(approval, APPROVAL_DECISION_APPROVE))
            if mind in ("deny", "both"):
                group.create_task(self.respond(approval, APPROVAL_DECISION_DENY))
            if mind == "instruct":
                instructed = (
                    "Instructions" in approval.task_description
                    or approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN
                )
                text = "" if instructed else "deploy it 2"
                group.create_task(self.respond(approval, APPROVAL_DECISION_APPROVE, text))

    async def _cancel(self, seen: Seen) -> None:
        """The run may well end first, by what is decided about it."""
        await cancel_anywhere(self.where, seen)
        seen.cancelled = False

    async def respond(self, approval: Approval, decision: int, instructions: str = "") -> None:
        request = RespondApprovalRequest(
            approval_id=approval.approval_id, decision=decision, instructions=instructions
        )
        for _ in range(_TRIES):
            clients = self.where()
            if clients:
                try:
                    with may_be_away():
                        answer = (await clients[0].call(request, timeout_s=10)).approval
                        assert answer.status == _DECISIONS[decision]
                        statuses = self.acknowledged.setdefault(approval.approval_id, set())
                        statuses.add(answer.status)
                        return
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.ALREADY_EXISTS:
                        raise
                    return
            await asyncio.sleep(_BETWEEN_S)
        raise AssertionError("no decision was taken")


def requests_in(seen: Seen) -> list[Approval]:
    kind = "approval_requested"
    return [e.approval_requested.approval for e in seen.events if e.HasField(kind)]


@dataclass
class Decided:
    """What became of the requests of a round."""

    statuses: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    asked_again: int = 0
    """Requests about an unknown outcome."""
    unknown: int = 0
    lost: list[str] = field(default_factory=list)
    """Decisions that were acknowledged and had no consequence, or another one."""
    doubled: list[str] = field(default_factory=list)
    """Effects that were not allowed, or happened twice."""


async def check_decisions(crash: CrashHarness, people: Approvers) -> Decided:
    """Compare replies to approvers, stored decisions, and effects."""
    decided = Decided()
    async with connect(crash.harness.dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch("SELECT approval_id, status FROM approvals")
        # A decision that crossed with the end of its run is harmless, and removed a minute later.
        left = await connection.fetch(
            "SELECT run_id FROM run_inputs JOIN approvals USING (run_id) "
            "WHERE kind = 'approval' AND input_key = approval_id::text AND status <> $1",
            APPROVAL_STATUS_CANCELLED,
        )
    stored = {str(row["approval_id"]): row["status"] for row in rows}
    decided.lost += [f"{row['run_id']}: a decision that no approver took" for row in left]
    for status in stored.values():
        name = ApprovalStatus.Name(status).removeprefix("APPROVAL_STATUS_").lower()
        decided.statuses[name] += 1
    for approval_id, statuses in people.acknowledged.items():
        _check_acknowledged(approval_id, statuses, stored.get(approval_id), decided)
    runs = await stored_runs(crash.harness.dsn)
    for agent in (crash.asks_keyed, crash.asks_once):
        _check_effects(agent, runs, stored, decided)
    return decided


def _check_acknowledged(
    approval_id: str, statuses: set[int], status: int | None, decided: Decided
) -> None:
    if len(statuses) > 1:
        decided.doubled.append(f"{approval_id}: approved and denied")
    # A decision that crossed with a request to cancel was never acted on.
    if status not in statuses and status != APPROVAL_STATUS_CANCELLED:
        decided.lost.append(f"{approval_id}: {statuses} were acknowledged, {status} is stored")


def _check_effects(
    agent: AskedAgent, runs: dict[str, StoredRun], stored: dict[str, int], decided: Decided
) -> None:
    """Of each step that asked: what was allowed happened once, and nothing else did."""
    keys = [effect.idempotency_key for effect in agent.effects]
    landed = Counter(key.rsplit("/", 1)[0] for key in (set(keys) if agent.repeatable else keys))
    decided.effects += landed.total()
    for run in runs.values():
        cancelled = run.events[-1].run_finished.response.status == RUN_STATUS_CANCELLED
        asked: dict[str, dict[str, Approval]] = defaultdict(dict)
        intended: Counter[str] = Counter()
        for event in run.events:
            if event.HasField("approval_requested"):
                requested = event.approval_requested
                approval = requested.approval
                if approval.agent_name == agent.card.name:
                    key = f"{run.run_id}/{requested.revision}/{approval.step_id}"
                    asked[key][approval.approval_id] = approval
            elif event.HasField("approval_resolved"):
                approval = event.approval_resolved.approval
                for requests in asked.values():
                    if approval.approval_id in requests:
                        requests[approval.approval_id] = approval
                status = stored.get(approval.approval_id)
                if status != approval.status:
                    decided.lost.append(
                        f"{approval.approval_id}: {status} is stored, {approval.status} in the log"
                    )
            elif event.HasField("effect_intended"):
                intended[event.effect_intended.step_id] += 1
        for key, requests in asked.items():
            # More than one if it was not known whether the first had its effect.
            allowed = sum(
                each.status == APPROVAL_STATUS_APPROVED and not each.user_instructions
                for each in requests.values()
            )
            step_id = key.rsplit("/", 1)[1]
            times = landed.pop(key, 0)
            unknown = _error_of(run, step_id) == AgentErrorType.OUTCOME_UNKNOWN
            decided.unknown += unknown
            decided.asked_again += sum(
                each.kind == APPROVAL_KIND_OUTCOME_UNKNOWN for each in requests.values()
            )
            if times > allowed:
                decided.doubled.append(f"{key}: {times} effects, allowed: {allowed}")
            elif allowed and not times and not cancelled and not (unknown and not agent.repeatable):
                decided.lost.append(f"{key}: approved, and nothing happened")
            if intended[step_id] > allowed:
                decided.doubled.append(f"{key}: about to happen without an approval")
    decided.doubled += [f"{key}: {n} effects without an approval" for key, n in landed.items()]


def _error_of(run: StoredRun, step_id: str) -> str:
    """Type of the step's error; empty if there is none, or the step has no end."""
    for event in run.events:
        if event.step_finished.step_id == step_id:
            return event.step_finished.result.error.type
    return ""
