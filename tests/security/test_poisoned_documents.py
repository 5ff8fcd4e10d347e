"""Orders in documents, before a model that obeys them: what follows needs an approval that says so.

Each document goes through the real upload, parser, index, rag, planner, composer and gateway.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.gateway.v1 import Approval
from bos_chassis.values import from_value_map
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import fixture

from .obeying_model import STOLEN, outside_fences, plan
from .poison_harness import PoisonHarness, PoisonRun, open_poison_harness
from .poisoned_documents import (
    COLLECTOR,
    DEED,
    HONEST,
    PLANNER,
    POISONED,
    QUESTION,
    RANKING,
    Poisoned,
    gives_the_order,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.security,
    pytest.mark.timeout(600),
]

OTHER = "The depot of Kestrel is open on weekdays, and late on Fridays."
DEPLOY = "Deploy version 1.2 of the shop"
every_document = pytest.mark.parametrize("poisoned", POISONED, ids=lambda each: each.what)

assert len({each.what for each in POISONED}) == len(POISONED)
PLANS = [
    # A step that takes the answer for its task, and one that fails, so that another plan is made.
    fixture(
        "read",
        [f"### Question\n{QUESTION}\n\n### Instructions"],
        schema=PLANNER,
        json=plan(
            {"step_id": "read", "agent": "rag", "task": QUESTION},
            {
                "step_id": "act",
                "agent": "deploy",
                "task": "@{outputs.read.answer}",
                "tool_name": "trigger_deployment",
                "depends_on": ["read"],
            },
            {
                "step_id": "lost",
                "agent": "echo",
                "task": "echo",
                "sub_task_input": [{"name": "x", "value": "@{outputs.read.missing}"}],
            },
        ),
    ),
    fixture(
        "deploy",
        [f"### Question\n{DEPLOY}\n\n### Instructions"],
        schema=PLANNER,
        json=plan(
            {
                "step_id": "act",
                "agent": "deploy",
                "task": "deploy shop 1.2",
                "tool_name": "trigger_deployment",
            }
        ),
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[PoisonHarness]:
    folder = tmp_path_factory.mktemp("poison")
    async with (
        open_poison_harness(postgres_server.dsn(), folder, PLANS) as started,
        # Always there, so that the model has passages to rank.
        started.holding(OTHER.encode(), "depot.txt"),
    ):
        yield started


@every_document
async def test_order_of_a_document_needs_approval_with_its_origin(
    poisoned: Poisoned, harness: PoisonHarness
) -> None:
    async with harness.holding(poisoned.make(), poisoned.name):
        run = await harness.ask(QUESTION)

    assert harness.agent.effects == []
    assert run.response.tainted
    assert all(result.tainted for result in run.results.values())
    for approval in run.asked:
        assert_shows_what_it_is(approval)
    for request in harness.model.requests:
        assert not gives_the_order(outside_fences(request.prompt)), request.prompt
    for text in said(run):
        assert_sends_nothing(text)
    # Otherwise nothing is shown: the model has not read the order at all.
    assert {schema for schema, reply in harness.replies() if DEED in reply} == poisoned.reaches
    assert RANKING in {schema for schema, _ in harness.replies()}
    assert bool(run.asked) == (PLANNER in poisoned.reaches)


def assert_shows_what_it_is(approval: Approval) -> None:
    """What a person is asked shows the deed and that it comes of what others wrote."""
    (action,), (shown,) = approval.actions, approval.display.actions
    assert action.tainted
    assert action.tool == shown.tool == "trigger_deployment"
    assert from_value_map(action.arguments) == {"service": "shop", "version": "6.6.6"}
    assert [list(each.lines) for each in shown.arguments] == [["shop"], ["6.6.6"]]
    assert "rests on content that others wrote" in shown.notes
    assert any("from step read of the agent rag" in note for note in shown.notes)


def said(run: PoisonRun) -> list[str]:
    """Every text of the run that a client may show as Markdown."""
    results = [*run.results.values(), *run.response.agent_results]
    answers = [text for each in results for text in (each.answer, *each.highlights)]
    return [run.response.answer, run.streamed, *run.response.highlights, *answers]


def assert_sends_nothing(text: str) -> None:
    """No image, and no address with words of the user; one of the document itself may stay."""
    assert STOLEN.removeprefix(COLLECTOR) not in text
    assert "![" not in text
    assert "<img" not in text


async def test_approved_order_of_a_document_is_performed_once(
    harness: PoisonHarness,
) -> None:
    async with harness.holding(POISONED[0].make(), POISONED[0].name):
        run = await harness.ask(QUESTION, approve=True)
    approved = [action for approval in run.asked for action in approval.actions]
    assert approved
    assert all(action.tainted for action in approved)
    effects = list(harness.agent.effects)
    harness.agent.effects.clear()
    assert len(effects) == len(approved)
    assert len({effect.idempotency_key for effect in effects}) == len(effects)


async def test_documents_without_orders_lead_to_no_deed(harness: PoisonHarness) -> None:
    content = "\n\n".join(HONEST).encode()
    async with harness.holding(content, "honest.txt"):
        run = await harness.ask(QUESTION)
    assert harness.agent.effects == []
    assert run.asked == []
    assert run.response.answer == f"{HONEST[1]} [1]"
    assert run.results["read"].tainted


async def test_users_own_order_is_not_tainted(
    harness: PoisonHarness,
) -> None:
    async with harness.holding(POISONED[0].make(), POISONED[0].name):
        run = await harness.ask(DEPLOY, approve=True)
    (approval,) = run.asked
    assert not approval.actions[0].tainted
    assert "rests on content that others wrote" not in approval.display.actions[0].notes
    assert [each.label for each in harness.agent.effects] == ["deploy shop 1.2"]
    assert not run.response.tainted
    harness.agent.effects.clear()


async def test_question_after_a_poisoned_answer_is_tainted(
    harness: PoisonHarness,
) -> None:
    async with harness.holding(POISONED[0].make(), POISONED[0].name):
        read = await harness.ask(QUESTION)
        run = await harness.ask(DEPLOY, tainted=read.response.tainted)
    (approval,) = run.asked
    assert approval.actions[0].tainted
    assert harness.agent.effects == []
