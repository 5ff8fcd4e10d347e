"""Chains of real agents, each service a process: answer, citations, and the mail that landed."""

import hashlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bos.gateway.v1 import RunStatus
from bos_postgres import create_database
from bos_testkit.postgres import PostgresServer

from .chain_replies import CHAINS, MANAGER, REPORT
from .chains_harness import Chains, open_chains
from .harness import no_internals

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.process,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chains(
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[Chains]:
    dsn = await create_database(postgres_server.dsn(), "chains")
    async with open_chains(dsn, tmp_path_factory.mktemp("chains")) as chains:
        yield chains


@pytest.mark.requirement("T-15")
@pytest.mark.parametrize("name", CHAINS)
async def test_a_chain_of_agents_ends_in_a_cited_answer_and_its_effects(
    chains: Chains, name: str
) -> None:
    chain, before = CHAINS[name], len(chains.mails())
    run = await chains.ask(name)

    assert run.response.status == RunStatus.RUN_STATUS_SUCCEEDED, run.response
    assert [each.agent_name for each in run.response.agent_results] == chain.agents
    assert sorted(quote for _, quote in run.cited) == sorted(chain.cites)
    for number in range(1, len(run.response.sources) + 1):
        assert f"[{number}]" in run.response.answer
    for event in run.events:
        assert "Traceback" not in str(event)
    no_internals(run.response.answer)

    files = [file for each in run.response.agent_results for file in each.files]
    if chain.report is None:
        assert files == []
    else:
        (made,) = files
        assert (made.name, made.media_type) == (REPORT, "application/pdf")
        assert await chains.bos.download_file(run.response.run_id, made.digest) == chain.report

    mails = chains.mails()[before:]
    if "mail" not in chain.agents:
        assert mails == []
        return
    assert chain.report is not None
    assert mails == [{REPORT: chain.report}]
    shown = run.shown("send_email")
    assert shown["to"] == [MANAGER]
    assert shown["attachments"] == [
        {
            "name": REPORT,
            "content": "",
            "media_type": "application/pdf",
            "size_bytes": len(chain.report),
            "sha256": hashlib.sha256(chain.report).hexdigest(),
            "step": "analysis",
        }
    ]


async def test_branches_of_a_fan_out_and_of_a_diamond_run_concurrently(chains: Chains) -> None:
    run = await chains.ask("parallel")
    started = [run.at("step_started", step) for step in ("documents", "index")]
    ended = [run.at("step_finished", step) for step in ("documents", "index")]
    assert max(started) < min(ended)
