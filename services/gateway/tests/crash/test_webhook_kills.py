"""Ends of runs reach their webhook at least once, under one id, in order, over kills of gateways.

The receiver is down to begin with. The first kill comes while it is; the second one at the moment
at which the receiver has an event that the gateway has not marked as delivered yet.

``BOS_TEST_RUNS`` says how many runs (12 in the suite), ``BOS_TEST_SEED`` when the kills come and
which runs wait for approvals, ``BOS_TEST_DOWN_S`` how long the receiver is down at least.
"""

import asyncio
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from gateway_harness.crash.harness import ASKS, CrashHarness, Gateway, crashing_gateway, may_be_away
from gateway_harness.receiver import LOOPBACK, Received, Receiver, accept, open_receiver
from gateway_harness.stored import fetch, until
from standardwebhooks.webhooks import Webhook as Verifier

from bos.gateway import v1 as gateway

RUNS = int(os.environ.get("BOS_TEST_RUNS", "12"))
SEED = int(os.environ.get("BOS_TEST_SEED", "1"))
DOWN_S = float(os.environ.get("BOS_TEST_DOWN_S", "0"))
_AT_ONCE = 16
_CALL_S = 30.0
_PAUSE_S = 0.02

LONG_S = 600 + 2 * RUNS

pytestmark = [pytest.mark.crash, pytest.mark.process, pytest.mark.timeout(LONG_S)]


@dataclass
class Lives:
    """One gateway after the other; where one was killed, the next starts."""

    crash: CrashHarness
    settings: dict[str, Any]
    here: Gateway | None = None
    kills: int = 0
    _born: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self) -> None:
        while True:
            async with crashing_gateway(self.crash, **self.settings) as self.here:
                self._born.set()
                await self.here.process.wait()
                self._born.clear()
                self.here = None

    async def kill(self) -> None:
        await self._born.wait()
        self.kills += 1
        self.here.process.kill()

    async def call(self, request: Any) -> Any:
        """Call until a gateway answers."""
        while True:
            await self._born.wait()
            if self.here is not None:
                try:
                    with may_be_away():
                        return await self.here.client.call(request, timeout_s=_CALL_S)
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():
                        raise
                    # Only the call was: its channel was closed when its gateway had died.
            await asyncio.sleep(_PAUSE_S)


@asynccontextmanager
async def lives(crash: CrashHarness, receiver: Receiver) -> AsyncIterator[Lives]:
    settings = receiver.settings(
        webhook_internal_origins=json.dumps({receiver.origin: LOOPBACK}),
        webhook_timeout_s=5,
        webhook_backoff_cap_s=1,
        max_active_runs_per_user=0,
        max_waiting_runs_per_user=0,
        approval_timeout_s=3600,
    )
    found = Lives(crash, settings)
    living = asyncio.create_task(found.live())
    try:
        yield found
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


async def submit(there: Lives, number: int, question: str) -> str:
    request = gateway.SubmitRunRequest(
        request=gateway.AgentRequest(question=question, request_id=f"run-{number}")
    )
    return (await there.call(request)).run.run_id


async def deny_all(there: Lives) -> None:
    pending = gateway.ListApprovalsRequest(page_size=200, status=gateway.APPROVAL_STATUS_PENDING)
    while True:
        for approval in (await there.call(pending)).approvals:
            request = gateway.RespondApprovalRequest(
                approval_id=approval.approval_id, decision=gateway.APPROVAL_DECISION_DENY
            )
            await there.call(request)
        await asyncio.sleep(_PAUSE_S)


async def test_every_end_arrives_under_one_id_and_in_order_over_kills(crash: CrashHarness) -> None:
    chosen = random.Random(SEED)
    asking = [chosen.random() < 0.5 for _ in range(RUNS)]
    first_kill, second_kill = chosen.randint(1, RUNS), chosen.randint(1, RUNS)
    print(f"seed {SEED}: {RUNS} runs, kills at end {first_kill} and request {second_kill}")
    started, dsn = time.monotonic(), crash.harness.dsn
    async with open_receiver() as receiver, lives(crash, receiver) as there:
        made = await there.call(gateway.CreateWebhookRequest(url=receiver.url()))
        await receiver.stop()
        requests = 0

        async def kill_once(request: web.Request) -> web.StreamResponse:
            """Has the event; the gateway that sent it never hears so."""
            nonlocal requests
            requests += 1
            if requests == second_kill:
                await there.kill()
            return await accept(request)

        receiver.answers["/hook"] = kill_once
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ask(number: int) -> str:
            async with turns:
                question = f"{ASKS} {number}" if asking[number] else f"question {number}"
                return await submit(there, number, question)

        async with asyncio.TaskGroup() as tasks:
            denying = tasks.create_task(deny_all(there))
            asked = [tasks.create_task(ask(number)) for number in range(RUNS)]
            await until(
                dsn,
                f"count(*) >= {first_kill} FROM runs WHERE finished_at IS NOT NULL",
                within_s=LONG_S,
            )
            await there.kill()
            await asyncio.sleep(max(0.0, DOWN_S - (time.monotonic() - started)))
            await receiver.start()
            await until(
                dsn, f"count(*) >= {RUNS} FROM runs WHERE finished_at IS NOT NULL", within_s=LONG_S
            )
            run_ids = [await each for each in asked]
            ended = f"count(*) >= {RUNS} FROM webhook_deliveries WHERE event = 1 AND state = 2"
            await until(dsn, ended, within_s=LONG_S)
            denying.cancel()
        accepted = list(receiver.accepted)
        assert there.kills == 2
    assert not await fetch(dsn, "SELECT FROM webhook_deliveries WHERE state <> 2")
    check(accepted, run_ids, asking, made.secret)
    print(f"{len(accepted)} events accepted of {len({each.delivery_id for each in accepted})}")


def check(accepted: list[Received], run_ids: list[str], asking: list[bool], secret: str) -> None:
    verifier = Verifier(secret)
    events: dict[str, list[tuple[str, str]]] = defaultdict(list)
    ids: dict[tuple[str, ...], set[str]] = defaultdict(set)
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for each in accepted:
        event = verifier.verify(each.body, each.headers)
        data = event["data"]
        about = data["approval"]["approval_id"] if "approval" in data else ""
        events[data["run_id"]].append((event["type"], about))
        ids[data["run_id"], event["type"], about].add(each.delivery_id)
        bodies[each.delivery_id].add(each.body)
    assert all(len(found) == 1 for found in ids.values()), "one event, one id"
    assert all(len(found) == 1 for found in bodies.values()), "one id, one body"
    assert events.keys() == set(run_ids)
    for run_id, asks in zip(run_ids, asking, strict=True):
        kinds = [kind for kind, _ in dict.fromkeys(events[run_id])]
        assert kinds == ["approval.requested"] * (2 * asks) + ["run.finished"], kinds
        in_order = [kind for kind, _ in events[run_id]]
        assert in_order == sorted(in_order), "nothing comes behind the end of its run"
