"""Names that the computation agent answers to."""

from __future__ import annotations

import pytest

from bos.agent.v1 import AgentCard
from bos_computation.card import computation_card
from bos_plans import canonical_name


@pytest.mark.parametrize(
    "written",
    [
        "computation",
        "computation_agent",
        "UtilityAgent",
        "utilityagent",
        "Utility Agent",
        "CALCULATOR",
    ],
)
@pytest.mark.requirement("A-08")
def test_worker_role_and_aliases_denote_it_case_insensitively(written: str) -> None:
    cards = {"computation": computation_card([]), "code": AgentCard(name="code")}
    assert canonical_name(written, cards) == "computation"


@pytest.mark.parametrize("written", ["ResearchAgent", "Orchestrator", "utility"])
def test_other_roles_are_not_its_own(written: str) -> None:
    assert canonical_name(written, {"computation": computation_card([])}) is None
