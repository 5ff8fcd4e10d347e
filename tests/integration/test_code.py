"""The code agent in the whole product: proposed, approved, run, its figure fetched."""

import asyncio
import hashlib
import json
import os
import sys
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import Artefact
from bos.gateway.v1 import Approval, OrchestratorResponse, RunEvent, RunStatus
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.dialogues import load_approved
from bos_demo.expectations import mentions
from bos_demo.generators.generate import generate
from bos_demo.periods import named_periods

from .rest_harness import BOS, RestHarness

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.requirement("F-08"),
]

(QUESTION,) = load_approved()
SKIPPED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED


def connection(rest_product: RestHarness) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (rest_product.folder / ".data/standalone.json").read_text()
    )
    return content


async def decided(rest_product: RestHarness, decide: str) -> tuple[Approval, OrchestratorResponse]:
    """Ask the demo question, and decide about the program once it is proposed."""
    known = connection(rest_product)
    async with BosClient(known["target"], api_key=rest_product.key) as bos:
        approval, event = None, RunEvent()
        async for event in bos.ask_stream(QUESTION.question, context=known["context"]):
            if event.HasField("approval_requested"):
                approval = event.approval_requested.approval
                await getattr(bos, decide)(approval.approval_id)
    assert approval is not None
    return approval, event.run_finished.response


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def approved(rest_product: RestHarness) -> tuple[Approval, OrchestratorResponse]:
    return await decided(rest_product, "approve")


def monthly_revenue() -> dict[int, Decimal]:
    """Added up from the generated rows, without any of the services."""
    rows = generate(DEFAULT_TODAY)
    start, end = named_periods(DEFAULT_TODAY)["last_year"]
    days = {invoice.invoice_id: invoice.invoice_date for invoice in rows.invoices}
    months: dict[int, Decimal] = defaultdict(Decimal)
    for line in rows.invoice_lines:
        if start <= days[line.invoice_id] < end:
            months[days[line.invoice_id].month] += line.line_amount
    return months


def figure_of(response: OrchestratorResponse) -> Artefact:
    (figure,) = response.agent_results[1].files
    return figure


async def test_what_was_shown_is_what_ran_and_its_figures_are_right(
    approved: tuple[Approval, OrchestratorResponse],
) -> None:
    approval, response = approved
    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    (action,) = approval.actions
    shown = from_value_map(action.arguments)
    ran = from_value_map(response.agent_results[1].data)
    assert ran["code"] == shown["code"]
    assert QUESTION.steps[1].agent == "code"
    assert shown["code"].endswith(QUESTION.steps[1].program)
    assert (ran["exit_code"], ran["files"]) == (0, list(QUESTION.steps[1].files))
    months = monthly_revenue()
    facts = (sum(months.values()), max(months.values()))
    assert len(months) == 12
    assert set(ran["result"].values()) == set(facts)
    assert all(mentions(response.answer, fact) for fact in facts)
    assert figure_of(response).name in response.answer


async def test_figure_is_the_same_over_grpc_rest_and_command_line(
    rest_product: RestHarness, approved: tuple[Approval, OrchestratorResponse], tmp_path: Path
) -> None:
    _, response = approved
    figure = figure_of(response)
    async with BosClient(connection(rest_product)["target"], api_key=rest_product.key) as bos:
        content = await bos.download_file(response.run_id, figure.digest)
    assert content.startswith(b"\x89PNG")
    assert len(content) == figure.size_bytes
    assert figure.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"

    path = f"/v1/runs/{response.run_id}/files/{figure.digest.removeprefix('sha256:')}"
    headers = {"Authorization": f"Bearer {rest_product.key}"}
    async with (
        aiohttp.ClientSession(rest_product.url) as session,
        session.get(path, headers=headers) as reply,
    ):
        assert reply.status == 200
        assert await reply.read() == content
        assert reply.content_type == "image/png"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Content-Disposition"] == ("attachment; filename=revenue-by-month.png")
        assert "sandbox" in reply.headers["Content-Security-Policy"]

    process = await asyncio.create_subprocess_exec(
        *(BOS, "runs", "files", response.run_id, "--output", str(tmp_path)),
        cwd=rest_product.folder,
        env={"PATH": os.environ["PATH"], "HOME": str(rest_product.folder)},
        stdout=sys.stderr,
    )
    assert await process.wait() == 0
    assert (tmp_path / figure.name).read_bytes() == content


async def test_denied_nothing_runs_and_the_rest_is_answered(rest_product: RestHarness) -> None:
    _, response = await decided(rest_product, "deny")
    assert response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    drawing = response.agent_results[1]
    assert (drawing.status, drawing.error.type) == (SKIPPED, "denied_by_user")
    assert list(drawing.files) == []
