"""Approved actions under kills of gateways, agents and connections, counted where they land.

``BOS_TEST_ACTIONS`` says how many are approved (6 in the suite), ``BOS_TEST_SEED`` what is drawn.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.common.v1 import AgentError
from bos_demo.settings import DemoSettings
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import connect, create_database
from bos_standalone.stores import COMPANY_DATABASE
from bos_testkit.postgres import PostgresServer

from .effects_trial.actions import Action, Kind, Person
from .effects_trial.deployment import Stores
from .effects_trial.trial import Company, run_trial
from .effects_trial.verdict import judge

ACTIONS = int(os.environ.get("BOS_TEST_ACTIONS", "6"))
SEED = int(os.environ.get("BOS_TEST_SEED", "1"))

LABEL, CHANGED = "trial-0-end", "changed-0-end"
DONE, FAILED, SKIPPED = (
    AgentExecutionStatus.Value(f"AGENT_EXECUTION_STATUS_{name}")
    for name in ("SUCCEEDED", "FAILED", "SKIPPED")
)


@pytest.mark.e2e
@pytest.mark.process
@pytest.mark.timeout(600 + 20 * ACTIONS)
@pytest.mark.requirement("M-01", "M-10")
async def test_approved_actions_land_once_under_kills(
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


CASES: list[tuple[Kind, Person, AgentExecutionStatus | None, str, Mapping[str, int], str]] = [
    ("note", "approves", DONE, "", {LABEL: 1}, ""),
    ("note", "approves", DONE, "", {LABEL: 2}, "landed 2 times"),
    ("note", "approves", DONE, "", {}, "has not landed"),
    ("note", "approves", FAILED, "OutcomeUnknown", {LABEL: 1}, ""),
    ("ticket", "approves", FAILED, "OutcomeUnknown", {LABEL: 1}, "the other side knows"),
    ("mail", "approves", FAILED, "Unavailable", {}, "given up"),
    ("mail", "approves", FAILED, "Unavailable", {LABEL: 1}, "not done and has landed"),
    ("mail", "approves", None, "", {}, "no result"),
    ("mail", "denies", SKIPPED, "denied_by_user", {}, ""),
    ("mail", "denies", SKIPPED, "denied_by_user", {LABEL: 1}, "not approved and landed"),
    ("mail", "denies", DONE, "", {}, "not skipped"),
    ("mail", "never answers", None, "", {}, ""),
    ("mail", "never answers", DONE, "", {}, "before a decision"),
    ("mail", "sees another action", FAILED, "PermissionDenied", {}, ""),
    ("mail", "sees another action", FAILED, "PermissionDenied", {CHANGED: 1}, "landed"),
    ("mail", "sees another action", DONE, "", {}, "was changed"),
]


def test_verdict_finds_forbidden_effects() -> None:
    for kind, person, status, error, landed, breach in CASES:
        results = {}
        if status is not None:
            results[LABEL] = AgentResult(status=status, error=AgentError(type=error))
        verdict = judge([Action(0, kind, person, None)], results, landed)
        case = kind, person, status, error, landed
        assert len(verdict.breaches) == bool(breach), case
        assert breach in "".join(verdict.breaches), case
