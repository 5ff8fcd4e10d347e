"""Names that the text agent and its tools answer to."""

from __future__ import annotations

import pytest

from bos_plans import canonical_step
from bos_text.agent import TextAgent
from bos_text.settings import TextSettings


@pytest.mark.requirement("A-08", "C-19")
@pytest.mark.parametrize(
    ("agent", "tool", "found"),
    [
        ("Orchestrator", "GeminiStepExecutor", ("text", "run_prompt")),
        ("GeminiStepExecutor", "", ("text", "run_prompt")),
        ("text_agent", "KeyPoints", ("text", "key_points")),
        ("Translator", "", ("text", "")),
        ("UtilityAgent", "", ("UtilityAgent", "")),  # is the computation agent's
    ],
)
def test_model_step_of_an_orchestrator_and_aliases_denote_it(
    agent: str, tool: str, found: tuple[str, str]
) -> None:
    card = TextAgent(TextSettings.load(), None).card
    assert canonical_step(agent, tool, {"text": card}) == found
