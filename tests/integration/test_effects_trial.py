"""Approved actions under kills of gateways, agents and connections, counted where they land.

``BOS_TEST_ACTIONS`` says how many are approved (6 in the suite), ``BOS_TEST_SEED`` what is drawn.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bos_demo.settings import DemoSettings
from bos_postgres import connect, create_database
from bos_standalone.stores import COMPANY_DATABASE

from .effects_trial.deployment import Stores
from .effects_trial.trial import Company, run_trial

if TYPE_CHECKING:
    from pathlib import Path

    from bos_mcp_db.settings import DatabaseSettings
    from bos_testkit.postgres import PostgresServer

ACTIONS = int(os.environ.get("BOS_TEST_ACTIONS", "6"))
SEED = int(os.environ.get("BOS_TEST_SEED", "1"))

pytestmark = [pytest.mark.e2e, pytest.mark.process, pytest.mark.timeout(600 + 20 * ACTIONS)]


@pytest.mark.requirement("M-07")
async def test_no_approved_action_lands_twice_or_is_given_up_whatever_is_killed(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    clean_environment: None,
    tmp_path: Path,
) -> None:
    dsn, schema = (
        postgres_server.dsn(COMPANY_DATABASE),
        DemoSettings.model_fields["database_schema"],
    )
    async with connect(dsn, schema=schema.default) as session:
        customer = await session.fetchval(
            "SELECT customer_name FROM customers ORDER BY customer_id LIMIT 1"
        )
    stores = {
        name: await create_database(postgres_server.dsn(), f"effects_{name}")
        for name in ("gateway", "identity", "files")
    }
    outcome = await run_trial(
        ACTIONS, SEED, Stores(**stores), Company(dsn, schema.default, customer), tmp_path
    )
    print("", *outcome.lines(SEED), sep="\n")
    assert outcome.verdict.breaches == []
    assert sum(each.approved for each in outcome.verdict.figures.values()) == ACTIONS
    assert outcome.kills.total() >= 2
