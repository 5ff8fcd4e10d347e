"""The names by which plans find the files agent."""

import pytest

from bos_files.card import files_card
from bos_plans.names import canonical_name


@pytest.mark.requirement("C-19", "J-01", "J-04")
@pytest.mark.parametrize(
    ("name", "agent"),
    [
        ("FileDownloaderTool", "files"),
        ("ExploreSearchResults", None),
    ],
)
def test_actions_of_an_orchestrator_are_found_by_alias(name: str, agent: str | None) -> None:
    assert canonical_name(name, {"files": files_card([])}) == agent
