"""Asks the assembled product the demo's questions, one after another."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from bos.gateway.v1 import OrchestratorResponse, RunEvent, RunStatus
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY, load_postgres
from bos_demo.expectations import expected_facts
from bos_demo.questions import Question
from bos_errors import BosError
from bos_llm import ModelOutputInvalid
from bos_postgres import EmbeddedPostgres, create_database
from bos_standalone.service import Standalone
from bos_testkit.runs import SeenRun

from .calls import calls_of
from .judge import (
    Judgement,
    Outcome,
    broken_wire,
    judge,
    stages_of,
    written_by_model,
)

_MICROS = 1_000_000
_UNPRICED = "no price is known"


async def facts_of(questions: Sequence[Question], folder: Path) -> dict[str, list[Any]]:
    """What each answer must state, from a copy of the sample company that Bos never touches."""
    if all(isinstance(each.facts, tuple) and each.facts for each in questions):
        return {each.id: list(each.facts) for each in questions}
    async with EmbeddedPostgres(folder) as postgres:
        dsn = await create_database(postgres.dsn(), "reference_company")
        await load_postgres(dsn)
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            dsn, server_settings={"search_path": "company"}
        )
        try:
            return {
                each.id: await expected_facts(connection, each, DEFAULT_TODAY) for each in questions
            }
        finally:
            await connection.close()


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks, judges, and collects what the calls behind it were."""

    client: BosClient
    product: Standalone
    telemetry: Telemetry

    @classmethod
    @asynccontextmanager
    async def of(cls, product: Standalone, telemetry: Telemetry) -> AsyncIterator[Asker]:
        """One that asks ``product``."""
        async with BosClient(product.target, api_key=product.api_key) as client:
            yield cls(client, product, telemetry)

    async def ask(self, question: Question, facts: list[Any]) -> Outcome:
        """Ask one question and wait for its end; a failure is an outcome like any other."""
        logged, started, since_ns = len(self.telemetry.logs), time.monotonic(), time.time_ns()
        events: list[RunEvent] = []
        person = False
        try:
            async for event in self.client.ask_stream(
                question.question, context=dict(self.product.context), trace=True
            ):
                events.append(event)
                if event.HasField("approval_requested"):
                    # No approver is here to look at the action.
                    person = True
                    await self.client.deny(event.approval_requested.approval.approval_id)
        except BosError as error:
            took = time.monotonic() - started
            return Outcome(question.id, Judgement("failed", error.message), took, since_ns=since_ns)
        took = time.monotonic() - started
        if not events or not events[-1].HasField("run_finished"):
            broken = ("the stream ended before the run",)
            return Outcome(
                question.id, Judgement("failed", broken[0]), took, broken=broken, since_ns=since_ns
            )
        run = SeenRun(events)
        calls = calls_of(self.telemetry.spans, since_ns)
        exceptions = _exceptions(self.telemetry, logged)
        return Outcome(
            question_id=question.id,
            judgement=judge(question, facts, run, person=person),
            seconds=took,
            answer=run.response.answer,
            status=RunStatus.Name(run.response.status).removeprefix("RUN_STATUS_"),
            plan=_plan(run),
            by_model=written_by_model(run.response),
            cost=_cost(run.response, self.telemetry),
            stages=stages_of(events),
            calls=calls,
            since_ns=since_ns,
            broken=tuple(broken_wire(run, calls, exceptions)),
        )


def _exceptions(telemetry: Telemetry, since: int) -> list[str]:
    """Unexpected exceptions in the log; that a reply could not be used is no surprise here."""
    return [
        str(entry.get("event", ""))
        for entry in telemetry.logs[since:]
        if entry.get("log_level") == "error"
        and (entry.get("exc_info") or entry.get("exception"))
        and not isinstance(entry.get("exc_info"), ModelOutputInvalid)
    ]


def _plan(run: SeenRun) -> str:
    """Where each plan came from, the first one first, and the agents of the last."""
    plans = [event.planned.plan for event in run.events if event.HasField("planned")]
    if not plans:
        return "none"
    agents = ", ".join(step.agent for step in plans[-1].steps) or "no agent"
    return f"{' then '.join(plan.origin or 'unknown' for plan in plans)}: {agents}"


def _cost(response: OrchestratorResponse, telemetry: Telemetry) -> float | None:
    unknown = any(str(entry.get("event", "")).startswith(_UNPRICED) for entry in telemetry.logs)
    return None if unknown else response.metadata.usage.cost_micros / _MICROS
