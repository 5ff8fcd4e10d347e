"""Planning after clarifying questions that the user has answered."""

from typing import Any

import pytest

from bos_llm.prompts import mark_untrusted

pytestmark = pytest.mark.requirement("D-04", "B-09")

TURN = {
    "asked": {"questions": [{"question": "Which measure?", "options": ["balance", "turnover"]}]},
    "reply": "the balance",
}


async def test_prompt_shows_question_and_clarifications(rig: Any) -> None:
    await rig.plan(clarifications=[TURN])
    await rig.plan()
    replied, plain = (request.messages[1]["content"] for request in rig.model.requests)
    asked = mark_untrusted("Asked: Which measure? (offered: balance; turnover)")
    settled = f"{asked}\nThe user replied: the balance"
    before, _, rest = replied.partition("\n\n### Settled with the user\n")
    assert "### Question\nWhich five customers" in before
    assert rest.startswith(f"{settled}\n\n### Instructions")
    assert "### Settled with the user" not in plain


async def test_without_a_model_replies_choose_agents_too(start: Any) -> None:
    rig = await start(models=False)

    async def chosen(question: str, *replies: str) -> list[str]:
        turns = [{**TURN, "reply": reply} for reply in replies]
        plan = await rig.plan(question, clarifications=turns)
        assert all(step.task == question for step in plan.plan.steps)
        return list(plan.decision.chosen_agents)

    # The reply says nothing that a keyword finds, the question does.
    assert await chosen("Calculate the shift", "the balance") == ["computation"]
    # Neither does: the fallback. A reply can speak for an agent, too.
    assert await chosen("The shift, please", "the balance") == ["sql"]
    assert await chosen("The shift, please", "the balance", "calculate it") == ["computation"]


@pytest.mark.requirement("D-03")
async def test_planner_asks_no_clarifying_questions(rig: Any) -> None:
    """The agents ask them, as they need metadata that the planner does not have."""
    reply = await rig.plan()
    assert not reply.HasField("clarification")
    assert "the agent that knows the data asks the user" in rig.model.requests[0].prompt
