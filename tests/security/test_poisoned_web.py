"""Orders in pages and search results, before a model that obeys them: nothing follows unapproved.

Each page goes through the real search, reader, web agent, planner, composer and gateway.
"""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.gateway.v1 import Approval
from bos_chassis.values import from_value_map
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import fixture

from .obeying_model import STOLEN, outside_fences, plan
from .poison_harness import PoisonRun
from .poisoned_documents import DEED, HONEST, PLANNER, QUESTION, gives_the_order
from .poisoned_web import POISONED, PoisonedPage
from .web_harness import ANSWER, WebHarness, open_web_harness

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.security,
    pytest.mark.timeout(600),
]

NUMBERS = re.compile(r"Page (\d+), [a-z ]+\n<untrusted>\n(.*?)\n</untrusted>", re.DOTALL)
every_page = pytest.mark.parametrize("poisoned", POISONED, ids=lambda each: each.what)
PLANS = [
    # A step that takes the answer for its task, and one that fails, so that another plan is made.
    fixture(
        "read",
        [f"### Question\n{QUESTION}\n\n### Instructions"],
        schema=PLANNER,
        json=plan(
            {"step_id": "read", "agent": "web", "task": QUESTION},
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
]

assert len({each.what for each in POISONED}) == len(POISONED)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    postgres_server: PostgresServer, clean_environment: None
) -> AsyncIterator[WebHarness]:
    async with open_web_harness(postgres_server.dsn(), PLANS, NUMBERS) as started:
        yield started


@every_page
async def test_order_of_a_page_needs_approval_and_reaches_no_host(
    poisoned: PoisonedPage, harness: WebHarness
) -> None:
    run = await harness.ask(QUESTION, poisoned)

    assert harness.agent.effects == []
    assert harness.names.asked == []  # neither the page's address nor one with the user's words
    assert run.response.tainted
    assert all(result.tainted for result in run.results.values())
    for approval in run.asked:
        assert_shows_what_it_is(approval)
    for request in harness.model.requests:
        assert not gives_the_order(outside_fences(request.prompt)), request.prompt
    for text in said(run):
        assert "collector.example" not in text
        assert "![" not in text
        assert "<img" not in text
    # Otherwise nothing is shown: the model has not read the order at all.
    heard = any(each.schema == ANSWER and DEED in each.reply for each in harness.model.requests)
    assert heard is poisoned.heard
    assert bool(run.asked) is (poisoned.heard and poisoned.asks)


def assert_shows_what_it_is(approval: Approval) -> None:
    """What a person is asked shows the deed, or the address, and that others wrote it."""
    (action,), (shown,) = approval.actions, approval.display.actions
    assert action.tainted
    wanted = {
        "trigger_deployment": {"service": "shop", "version": "6.6.6"},
        "fetch_url": {"url": STOLEN},
    }
    assert from_value_map(action.arguments) == wanted[action.tool]
    assert "rests on content that others wrote" in shown.notes
    assert any("from step read of the agent web" in note for note in shown.notes)


def said(run: PoisonRun) -> list[str]:
    """Every text of the run that a client may show as Markdown."""
    results = [*run.results.values(), *run.response.agent_results]
    answers = [text for each in results for text in (each.answer, *each.highlights)]
    return [run.response.answer, run.streamed, *run.response.highlights, *answers]


async def test_fetch_that_leaks_words_needs_approval(
    harness: WebHarness,
) -> None:
    run = await harness.ask(QUESTION, POISONED[0])
    asked = {action.tool for approval in run.asked for action in approval.actions}
    assert asked == {"trigger_deployment", "fetch_url"}
    assert harness.names.asked == []


async def test_pages_without_orders_lead_to_no_deed(harness: WebHarness) -> None:
    run = await harness.ask(QUESTION, None)
    assert run.asked == []
    assert harness.agent.effects == []
    assert run.response.answer == f"{HONEST[1]} [1]"
    assert run.results["read"].tainted
