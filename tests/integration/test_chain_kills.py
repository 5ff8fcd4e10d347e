"""Chains of real agents: cited answers and effects; kill -9 of any process costs only time.

The one exception is the mail agent while its server takes a message: the outcome is then said to be
unknown.

``BOS_TEST_KILLS`` says how often (3 in the suite), ``BOS_TEST_SEED`` where; a failure names both.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunEvent, RunStatus
from bos_errors import AgentErrorType
from bos_postgres import create_database
from bos_testkit.postgres import PostgresServer

from .chain_replies import CHAINS, MANAGER, REPORT
from .chains_harness import ChainRun, Chains, open_chains
from .harness import no_internals

KILLS = int(os.environ.get("BOS_TEST_KILLS", "3"))
SEED = int(os.environ.get("BOS_TEST_SEED", "1"))
SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
_LONGEST_DELAY_S = 0.5

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.process,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900 + 300 * KILLS),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chains(
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[Chains]:
    dsn = await create_database(postgres_server.dsn(), "chain_kills")
    folder = tmp_path_factory.mktemp("chain_kills")
    async with open_chains(dsn, folder, gateways=2) as chains:
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


async def test_branches_run_concurrently(chains: Chains) -> None:
    run = await chains.ask("parallel")
    started = [run.at("step_started", step) for step in ("documents", "index")]
    ended = [run.at("step_finished", step) for step in ("documents", "index")]
    assert max(started) < min(ended)


@dataclass(frozen=True)
class Seen:
    """What a chain comes to, without anything that differs from run to run."""

    answer: str
    cited: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, int, str], ...]
    mails: tuple[bytes, ...]

    @classmethod
    def of(cls, run: ChainRun, mails: list[dict[str, bytes]]) -> Seen:
        results = run.response.agent_results
        return cls(
            run.response.answer,
            tuple(run.cited),
            tuple((each.agent_name, each.status, each.answer) for each in results),
            tuple(each[REPORT] for each in mails),
        )


@dataclass
class Kill:
    """Kills one process a while after an event of the run, and starts it again."""

    chains: Chains
    victim: str
    event: int
    delay_s: float
    _events: int = 0
    _work: asyncio.Task[None] | None = None

    async def seen(self, _: RunEvent) -> None:
        self._events += 1
        if self._events == self.event:
            self._work = asyncio.create_task(self._kill())

    async def ended(self) -> None:
        if self._work is not None:
            await self._work

    async def _kill(self) -> None:
        await asyncio.sleep(self.delay_s)
        await self.chains.services[self.victim].restart()


async def outcome(chains: Chains, name: str, kill: Kill | None = None) -> tuple[ChainRun, Seen]:
    before = len(chains.mails())
    run = await chains.ask(name, None if kill is None else kill.seen)
    if kill is not None:
        await kill.ended()
    return run, Seen.of(run, chains.mails()[before:])


def is_unknown(run: ChainRun) -> bool:
    """Whether the agent says that it does not know if the mail was sent."""
    errors = [each.error.type for each in run.response.agent_results if each.agent_name == "mail"]
    return errors == [AgentErrorType.OUTCOME_UNKNOWN]


async def test_kill_of_any_process_at_any_event_costs_only_time(chains: Chains) -> None:
    undisturbed: dict[str, Any] = {}
    for number in range(KILLS):
        chosen = random.Random(f"{SEED}/{number}")
        name = chosen.choice(list(CHAINS))
        if name not in undisturbed:
            undisturbed[name] = await outcome(chains, name)
        usual, expected = undisturbed[name]
        kill = Kill(
            chains,
            chosen.choice(list(chains.services)),
            chosen.randint(1, len(usual.events) - 1),
            chosen.uniform(0, _LONGEST_DELAY_S),
        )
        at = f"seed {SEED}, kill {number}: {kill.victim} of {name}, event {kill.event}"
        print(f"{at}, {kill.delay_s:.2f} s")
        run, found = await outcome(chains, name, kill)
        if kill.victim == "mail" and is_unknown(run):
            # SMTP knows no repetition: between the message and the server's word for it no client
            # knows, so that is said, and nothing is sent again.
            assert len(found.mails) <= 1, at
            await chains.ready()
            continue
        assert run.response.status == RunStatus.RUN_STATUS_SUCCEEDED, f"{at}\n{run.response}"
        assert {status for _, status, _ in found.results} == {SUCCEEDED}, at
        assert found == expected, at
        no_internals(found.answer)
        await chains.ready()
