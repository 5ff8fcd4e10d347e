"""Names that the text agent and its tools answer to."""

import pytest

from bos_plans import canonical_step
from bos_text.agent import TextAgent
from bos_text.settings import TextSettings


@pytest.mark.requirement("A-08", "C-19")
@pytest.mark.parametrize(
    ("agent", "tool", "found"),
    [
        ("Orchestrator", "GeminiStepExecutor", ("text", "run_prompt")),
        ("text_agent", "KeyPoints", ("text", "key_points")),
        ("UtilityAgent", "", ("UtilityAgent", "")),  # is the computation agent's
    ],
)
def test_aliases_denote_the_agent_and_its_tools(
    agent: str, tool: str, found: tuple[str, str]
) -> None:
    card = TextAgent(TextSettings.load(), None).card
    assert canonical_step(agent, tool, {"text": card}) == found
