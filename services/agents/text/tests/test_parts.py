"""Cutting long texts into parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos_plans import canonical_step
from bos_text.agent import TextAgent
from bos_text.parts import split_text
from bos_text.settings import TextSettings


@given(st.text(max_size=400), st.integers(1, 60))
def test_parts_joined_are_the_text_and_keep_the_limit(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert "".join(parts) == text
    assert all(0 < len(part) <= limit for part in parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One two.\n\nThree four.", ["One two.\n\n", "Three four."]),
        ("One. Two. Three four.", ["One. Two. ", "Three four."]),
        ("पहला वाक्य। दूसरा वाक्य", ["पहला वाक्य। ", "दूसरा वाक्य"]),
        ("一句话说完了。下一句也说完了。", ["一句话说完了。", "下一句也说完了。"]),
        ("x" * 14, ["x" * 12, "xx"]),
        ("", []),
    ],
)
def test_parts_end_where_the_text_pauses(text: str, parts: list[str]) -> None:
    assert split_text(text, 12) == parts


@pytest.mark.requirement("A-08", "C-19")
@pytest.mark.parametrize(
    ("agent", "tool", "found"),
    [
        ("Orchestrator", "GeminiStepExecutor", ("text", "run_prompt")),
        ("text_agent", "KeyPoints", ("text", "key_points")),
        ("UtilityAgent", "", ("UtilityAgent", "")),  # is the computation agent's
    ],
)
def test_aliases_denote_agent_and_tools(agent: str, tool: str, found: tuple[str, str]) -> None:
    card = TextAgent(TextSettings.load(), None).card
    assert canonical_step(agent, tool, {"text": card}) == found
