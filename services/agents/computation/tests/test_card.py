"""Names that the computation agent answers to."""

import pytest

from bos.agent.v1 import AgentCard
from bos_computation.card import computation_card
from bos_plans import canonical_name


@pytest.mark.parametrize(
    "written",
    ["computation_agent", "Utility Agent", "CALCULATOR"],
)
@pytest.mark.requirement("A-08")
def test_aliases_denote_it_case_insensitively(written: str) -> None:
    cards = {"computation": computation_card([]), "code": AgentCard(name="code")}
    assert canonical_name(written, cards) == "computation"


def test_other_roles_are_not_its_own() -> None:
    assert canonical_name("Orchestrator", {"computation": computation_card([])}) is None
