"""Traces of runs as a real collector has them: one root, no dangling parent, the expected edges."""

import asyncio
import json
import urllib.request
from typing import Any

import pytest
from gateway_harness.traced import EXECUTE, OWN, RUN, attempts

from bos_demo.questions import load_every_question
from bos_testkit.otlp.spans import Trace
from bos_testkit.waiting import eventually

from .traced_harness import TracedHarness

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

QUESTION = "How many active customers do we have in each region?"
MODEL = "standalone: chat scripted"
EVERY = {
    (f"gateway: {RUN}", f"gateway: {OWN}"),
    (f"gateway: {RUN}", "gateway: plan"),
    ("gateway: plan", "planner: bos.planner.v1.PlannerService/MakePlan"),
    ("planner: bos.planner.v1.PlannerService/MakePlan", MODEL),
    (f"gateway: {RUN}", "gateway: compose"),
    ("gateway: compose", "composer: bos.composer.v1.ComposerService/Compose"),
    ("composer: bos.composer.v1.ComposerService/Compose", MODEL),
    (f"gateway: {RUN}", "memory: bos.memory.v1.MemoryTurnService/OpenTurn"),
    ("memory: bos.memory.v1.MemoryTurnService/OpenTurn", "memory: SELECT"),
}
SANDBOX = "bos.sandbox.v1.SandboxService/RunProgram"
BELOW = {
    "sql": {
        ("sql: invoke_agent sql", MODEL),
        ("sql: invoke_agent sql", "sql: execute_tool mcp_db_query"),
        ("sql: execute_tool mcp_db_query", "mcp_db: mcp_db query"),
    },
    "computation": {
        ("computation: invoke_agent computation", "computation: execute_tool run_program"),
        ("computation: execute_tool run_program", f"computation: {SANDBOX}"),
        (f"computation: {SANDBOX}", f"sandbox: {SANDBOX}"),
    },
    "code": {
        ("code: execute_tool execute_code", f"code: {SANDBOX}"),
        (f"gateway: {RUN}", "gateway: approval"),
    },
    "rag": {
        (
            "rag: bos.documents.v1.DocumentsService/SearchDocuments",
            "documents: bos.documents.v1.DocumentsService/SearchDocuments",
        ),
    },
    "web": {("web: execute_tool web_search_deep", "web: POST")},
}
"""Edges of a run with a step of that agent, beside those of every step."""


def of_step(agent: str) -> set[tuple[str, str]]:
    """Edges that a step of an agent has, whichever it is."""
    return {
        (f"gateway: {RUN}", f"gateway: invoke_agent {agent}"),
        (f"gateway: invoke_agent {agent}", f"{agent}: {EXECUTE}"),
        (f"{agent}: {EXECUTE}", f"{agent}: invoke_agent {agent}"),
    }


def agents_of(trace: Trace) -> frozenset[str]:
    return frozenset(each.name.rpartition(" ")[2] for each in attempts(trace))


async def whole(traced_harness: TracedHarness) -> list[Trace]:
    """Traces of all runs so far, once they have arrived whole."""

    def runs() -> list[Trace]:
        return [
            each for each in Trace.all_of(traced_harness.traces.spans).values() if each.named(RUN)
        ]

    def complete() -> bool:
        found = runs()
        return len(found) >= traced_harness.asked and all(
            each.named("bos.memory.v1.MemoryTurnService/RecordTurn")
            and each.named("bos.memory.v1.MemoryTurnService/ExtractFacts")
            for each in found
        )

    # What is remembered of a run is written after its end.
    await eventually(complete, within_s=120)
    return runs()


async def test_traces_have_one_root_and_no_orphan_spans(
    traced_harness: TracedHarness,
) -> None:
    found = await whole(traced_harness)
    assert len(found) > 20
    for trace in found:
        trace.check()
        assert trace.edges() >= EVERY
        for agent in agents_of(trace):
            assert of_step(agent) <= trace.edges()


@pytest.mark.parametrize("agent", BELOW)
async def test_each_agent_has_below_it_what_it_calls(
    traced_harness: TracedHarness, agent: str
) -> None:
    found = [trace for trace in await whole(traced_harness) if agent in agents_of(trace)]
    assert found
    edges = set().union(*(trace.edges() for trace in found))
    assert BELOW[agent] <= edges


async def test_shapes_of_the_demo_are_all_there(traced_harness: TracedHarness) -> None:
    shapes = {agents_of(trace) for trace in await whole(traced_harness)}
    asked = {frozenset(each.agents) for each in load_every_question()}
    available = {shape for shape in asked if shape <= frozenset().union(*shapes)}
    assert frozenset() in shapes
    assert frozenset({"sql"}) in shapes
    assert any(len(shape) > 1 for shape in shapes)
    assert len(shapes & available) > 10


async def test_an_approval_links_what_proposed_and_who_decided(
    traced_harness: TracedHarness,
) -> None:
    (trace,) = [each for each in await whole(traced_harness) if "code" in agents_of(each)]
    waited = trace.one("approval")
    assert [what for _, what in waited.links] == ["proposed by", "decided by"]
    proposing, performing = attempts(trace, "code")
    assert waited.links[0][0] == proposing.span_id
    assert performing.links == ((waited.span_id, "approval"),)
    (decided,) = [s for s in traced_harness.traces.spans if s.span_id == waited.links[1][0]]
    assert decided.name == "bos.gateway.v1.ApprovalService/RespondApproval"


@pytest.mark.requirement("P-11")
async def test_question_over_http_is_one_trace_to_the_database(
    traced_harness: TracedHarness,
) -> None:
    def ask() -> Any:
        body = {"question": QUESTION, "context": dict(traced_harness.standalone.context)}
        request = urllib.request.Request(
            traced_harness.standalone.rest_url + "/v1/runs:ask",
            json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {traced_harness.standalone.api_key}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=240) as reply:
            return json.load(reply)

    run_id = (await asyncio.to_thread(ask))["run_id"]

    def arrived() -> bool:
        named = [s for s in traced_harness.traces.spans if s.attributes.get("bos.run.id") == run_id]
        return any(s.name == RUN for s in named)

    await eventually(arrived, within_s=120)
    await eventually(
        lambda: any(s.name == "POST /v1/runs:ask" for s in traced_harness.traces.spans),
        within_s=120,
    )
    (trace,) = [each for each in await whole(traced_harness) if each.named("POST /v1/runs:ask")]
    trace.check()
    call = "bos.gateway.v1.OrchestratorService/Ask"
    assert {
        ("rest: POST /v1/runs:ask", f"rest: {call}"),
        (f"rest: {call}", f"gateway: {call}"),
        (f"rest: {call}", f"gateway: {RUN}"),
    } | EVERY | of_step("sql") | BELOW["sql"] <= trace.edges()


async def test_no_question_answer_or_credential_is_in_any_span(
    traced_harness: TracedHarness,
) -> None:
    spans = repr(traced_harness.traces.spans)
    assert traced_harness.standalone.api_key not in spans
    for each in load_every_question():
        assert each.question not in spans
