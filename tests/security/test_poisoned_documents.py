"""Orders in documents, before a model that obeys them: what follows needs an approval that says so.

Each document goes through the real upload, parser, index, rag, planner, composer and gateway.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from obeying_model import PLANNER, STOLEN, outside_fences, plan
from poison_harness import PoisonHarness, PoisonRun, open_poison_harness
from poisoned_documents import DEED, HONEST, POISONED, QUESTION, Poisoned, gives_the_order

from bos_chassis.values import from_value_map
from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_testkit.postgres import PostgresServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.security,
    pytest.mark.timeout(300),
]

# Each document costs a parser process and a run, so the whole list is a target of its own.
DOCUMENTS = int(os.environ.get("BOS_TEST_POISONED_DOCUMENTS", "1000"))
SEED = int(os.environ.get("BOS_TEST_SEED", "15"))
CHOSEN = random.Random(SEED).sample(POISONED, min(DOCUMENTS, len(POISONED)))
DEPLOY = "Deploy version 1.2 of the shop"
every_document = pytest.mark.parametrize("poisoned", CHOSEN, ids=lambda each: each.what)

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
        json=plan({"step_id": "act", "agent": "deploy", "task": "deploy shop 1.2"}),
    ),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[PoisonHarness]:
    folder = tmp_path_factory.mktemp("poison")
    async with open_poison_harness(postgres_server.dsn(), folder, PLANS) as started:
        yield started


@every_document
async def test_what_an_order_in_a_document_leads_to_is_asked_as_such_and_shown(
    poisoned: Poisoned, harness: PoisonHarness
) -> None:
    async with harness.holding(poisoned.make(), poisoned.name):
        run = await harness.ask(QUESTION)

    for each in run.asked:
        print("ASKED", each.step_id, [(from_value_map(a.arguments), a.tainted) for a in each.actions], each.display)
    print("ANSWER", run.response.answer)
    print("STREAM", run.streamed)
    print("READ", run.results["read"].answer, run.results["read"].tainted, run.response.tainted)
    for r in harness.model.requests:
        print("REQ", r.schema, "poisoned" if gives_the_order(r.prompt) else "", "OUTSIDE" if gives_the_order(outside_fences(r.prompt)) else "", r.fixture, r.problem)
    for r in harness.model.requests:
        if gives_the_order(outside_fences(r.prompt)): print(r.prompt)
    print(harness.agent.effects)
