"""Validated plans from replies of the model."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos.agent.v1 import AgentCard, Tool
from bos.planner.v1 import Intent, Plan, Step
from bos_chassis.values import from_value, to_value
from bos_planner.draft import (
    Bounds,
    Draft,
    PlanInvalid,
    clamp,
    draft_from_reply,
    heuristic_draft,
    same_work,
)
from bos_planner.reply import PlannerReply
from bos_plans import Selection, plan_problems

pytestmark = pytest.mark.requirement("B-08", "B-09", "B-19", "D-02")

QUESTION = "Which five customers brought the most revenue?"
CARDS = {
    "sql": AgentCard(name="sql", description="x", capabilities=["database lookup"]),
    "computation": AgentCard(name="computation", description="x"),
    "rag": AgentCard(name="rag", description="x"),
}


def bounds(**changes: Any) -> Bounds:
    return Bounds(**{"cards": CARDS, "disabled": (), "max_steps": 20, **changes})


def draft(reply: dict[str, Any], **changes: Any) -> Draft:
    full = {"intent": "DATA_QA", "confidence": 0.9, **reply}
    return draft_from_reply(
        PlannerReply.model_validate(full), QUESTION, Selection(("sql",)), bounds(**changes),
        origin="model",
    )  # fmt: skip


def planned(step_id: str, agent: str = "sql", **fields: Any) -> dict[str, Any]:
    return {"step_id": step_id, "agent": agent, "task": "Do it.", **fields}


@pytest.mark.requirement("B-13", "B-16")
def test_a_reply_becomes_a_plan_with_typed_inputs() -> None:
    made = draft(
        {
            "rationale": "Data, then arithmetic.",
            "entities": [{"name": "metric", "value": "revenue"}],
            "steps": [
                planned("top"),
                planned(
                    "share",
                    "computation",
                    sub_task_input=[
                        {"name": "rows", "value": "@{outputs.top.table}"},
                        {"name": "digits", "value": "2"},
                        {"name": "names", "value": '["a", null]'},
                    ],
                    is_final_answer=True,
                ),
            ],
        }
    )
    share = made.plan.steps[1]
    assert made.plan.origin == "model"
    assert from_value(made.plan.entities["metric"]) == "revenue"
    assert {k: from_value(v) for k, v in share.sub_task_input.items()} == {
        "rows": "@{outputs.top.table}",
        "digits": 2,
        "names": ["a", None],
    }
    assert share.is_final_answer
    assert list(share.depends_on) == ["top"], "a reference implies the dependency"
    assert made.decision.rationale == "Data, then arithmetic."
    assert list(made.decision.chosen_agents) == ["sql", "computation"]
    assert made.intent.intent == Intent.INTENT_DATA_QA
    assert made.intent.suggested_next_agent == "sql"
    assert made.intent.confidence == made.decision.confidence == 0.9


@pytest.mark.requirement("B-08", "B-16", "A-08")
def test_names_are_normalised_and_agents_derived_from_steps() -> None:
    rag = AgentCard(name="rag", description="x", tools=[Tool(name="fetch_url")])
    steps = [planned("a", "RAG agent", tool_name="FetchUrl"), planned("b", " Sql ")]
    reply = {"agents": ["sql", "computation"], "steps": steps}
    made = draft(reply, cards={**CARDS, "rag": rag})
    assert [step.agent for step in made.plan.steps] == ["rag", "sql"]
    assert made.plan.steps[0].tool_name == "fetch_url"
    assert list(made.decision.chosen_agents) == ["rag", "sql"]


def test_missing_or_numeric_step_ids_are_generated() -> None:
    steps = [
        {"agent": "sql", "task": "Do it."},
        {"step_id": 2, "agent": "sql", "task": "Do that."},
        {
            "step_id": "3",
            "agent": "rag",
            "task": "Use @{outputs.2.answer}",
            "sub_task_input": {"rows": "@{outputs.step_1.table}"},
            "depends_on": 2,
        },
    ]
    made = draft({"steps": steps})
    assert [step.step_id for step in made.plan.steps] == ["step_1", "step_2", "step_3"]
    last = made.plan.steps[2]
    assert last.task == "Use @{outputs.step_2.answer}"
    assert list(last.depends_on) == ["step_2", "step_1"]
    assert from_value(last.sub_task_input["rows"]) == "@{outputs.step_1.table}"


def test_missing_task_is_the_whole_question() -> None:
    made = draft({"steps": [planned("a"), {"step_id": "b", "agent": "rag"}]})
    assert [step.task for step in made.plan.steps] == ["Do it.", QUESTION]
    with pytest.raises(PlanInvalid, match="no task"):
        draft({"steps": [{**planned("a"), "task": " "}]})


def test_final_answer_depends_on_every_step() -> None:
    for needs, flags, final in (
        (["a"], (False, True), (False, True)),
        ([], (False, True), (False, False)),
        (["a"], (True, False), (False, False)),
        (["a"], (True, True), (False, True)),
    ):
        first = planned("a", is_final_answer=flags[0])
        second = planned("b", is_final_answer=flags[1], depends_on=needs)
        made = draft({"steps": [first, second]}).plan.steps
        assert tuple(step.is_final_answer for step in made) == final, (needs, flags)


def test_final_answer_of_a_revision_needs_earlier_results() -> None:
    earlier = {
        "first": Step(step_id="first", agent="sql", task="x"),
        "second": Step(step_id="second", agent="sql", task="y", depends_on=["first"]),
        "failed": Step(step_id="failed", agent="sql", task="z"),
    }
    completed = ("first", "second", "other")  # the last one of a plan before that
    for needs, final in (
        ([], False),
        (["second"], False),
        (["first", "other"], False),
        (["second", "other"], True),
    ):
        steps = [planned("again", is_final_answer=True, depends_on=needs)]
        made = draft({"steps": steps}, earlier=earlier, completed=completed)
        assert made.plan.steps[0].is_final_answer is final, needs


def test_confidence_is_normalised() -> None:
    expected = {1.7: 1.0, -3.0: 0.0, 0.55: 0.55, math.inf: 1.0}
    assert {given: clamp(given) for given in expected} == expected
    assert clamp(math.nan) == 0.0


def test_reply_with_agents_only_is_a_plan_of_independent_steps() -> None:
    made = draft({"agents": ["sql", "rag", "mail"]}, disabled=("rag",))
    assert [(s.step_id, s.agent, s.task) for s in made.plan.steps] == [("sql", "sql", QUESTION)]
    assert from_value(made.decision.guardrails["removed_steps"]) == ["rag"]


def test_steps_of_disabled_agents_are_removed() -> None:
    made = draft(
        {"agents": ["sql"], "steps": [planned("a", "rag"), planned("b", depends_on=["a"])]},
        disabled=("rag",),
    )
    assert [step.step_id for step in made.plan.steps] == ["b"]
    assert not made.plan.steps[0].depends_on
    assert from_value(made.decision.guardrails["removed_steps"]) == ["a"]


def test_reference_to_a_disabled_agent_is_invalid() -> None:
    steps = [planned("a", "rag"), planned("b", task="Sum up @{outputs.a.answer}")]
    with pytest.raises(PlanInvalid, match='Step "b" refers to "a"'):
        draft({"steps": steps}, disabled=("rag",))
    assert draft({"steps": steps}).plan.steps[1].depends_on == ["a"]


def test_invalid_plans_are_refused() -> None:
    for steps, problem in (
        ([planned("a", "wizard")], "unknown agent"),
        ([planned(f"s{n}") for n in range(21)], "at most 20"),
        ([], "It has no steps"),
    ):
        with pytest.raises(PlanInvalid, match=problem):
            draft({"steps": steps})


@pytest.mark.requirement("D-02", "C-03")
def test_out_of_scope_plan_has_no_steps() -> None:
    made = draft({"intent": "OUT_OF_SCOPE", "agents": ["sql"], "steps": [planned("a")]})
    assert not made.plan.steps
    assert not made.decision.chosen_agents
    assert made.intent.intent == Intent.INTENT_OUT_OF_SCOPE


def test_general_qa_runs_without_databases() -> None:
    made = draft({"intent": "GENERAL_QA", "steps": [planned("a"), planned("b", "computation")]})
    assert [step.agent for step in made.plan.steps] == ["computation"]
    assert not draft({"intent": "GENERAL_QA", "agents": ["sql"]}).plan.steps


@pytest.mark.requirement("M-02")
def test_protected_tool_is_for_the_step_that_names_it() -> None:
    tools = [Tool(name="read"), Tool(name="send", requires_approval=True), Tool(name="list")]
    cards = {
        "mail": AgentCard(name="mail", description="x", tools=tools),
        "code": AgentCard(name="code", description="x", tools=tools[1:2]),
    }
    steps = [
        planned("a", "mail", tool_name="send"),
        planned("b", "mail", tool_name="read"),
        planned("c", "mail"),
        planned("d", "code"),  # has no other tools
    ]
    made = draft({"steps": steps}, cards=cards)
    allowed = [list(step.tools) for step in made.plan.steps]
    assert allowed == [["read", "send", "list"], [], [], ["send"]]


def test_the_heuristic_plans_one_step_per_agent_in_order() -> None:
    made = heuristic_draft(
        "Say @{outputs.x.y}",
        Selection(("rag", "sql"), {"disabled_agents": ["web"]}),
        bounds(),
        why="No model is configured.",
    )
    assert [(s.step_id, s.agent, list(s.depends_on)) for s in made.plan.steps] == [
        ("rag", "rag", []),
        ("sql", "sql", []),
    ]
    assert made.plan.steps[0].task == "Say @ {outputs.x.y}"
    assert made.decision.confidence == 0.4
    assert "No model is configured." in made.decision.rationale
    assert from_value(made.decision.guardrails["disabled_agents"]) == ["web"]
    assert made.intent.intent == Intent.INTENT_UNSPECIFIED


def test_heuristic_respects_the_step_limit_and_may_plan_no_steps() -> None:
    selection = Selection(("rag", "sql"))
    assert len(heuristic_draft("q", selection, bounds(max_steps=1), why="").plan.steps) == 1
    nothing = heuristic_draft("q", Selection(()), bounds(), why="")
    assert not nothing.plan.steps
    assert nothing.decision.rationale == "No available agent fits the question."


@pytest.mark.requirement("B-20")
def test_a_revision_may_not_redefine_completed_steps() -> None:
    old = {"top": Step(step_id="top", agent="sql", task="Do  it.")}
    use = planned("share", task="Use @{outputs.top.table}")
    made = draft({"steps": [planned("top"), use]}, earlier=old, completed={"top"})
    assert [step.step_id for step in made.plan.steps] == ["share"]
    with pytest.raises(PlanInvalid, match="taken"):
        draft({"steps": [planned("top", "rag"), use]}, earlier=old, completed={"top"})


@pytest.mark.requirement("C-23")
def test_revision_does_not_repeat_blocked_steps() -> None:
    limits: dict[str, Any] = {
        "earlier": {"sent": Step(step_id="sent", agent="sql", task="Do  it.")},
        "blocked": {"sent"},
    }
    for reply, problem in (
        (planned("again", task="Do it."), 'repeats the work of "sent"'),
        (planned("sent", task="Something else."), "taken"),
        (planned("other", task="Use @{outputs.sent.x}"), "unknown step"),
    ):
        with pytest.raises(PlanInvalid, match=problem):
            draft({"steps": [reply]}, **limits)
    behind = planned("other", task="Something else.", depends_on=["sent"])
    (made,) = draft({"steps": [behind]}, **limits).plan.steps
    assert list(made.depends_on) == []


def test_plans_that_differ_only_in_step_ids_are_the_same_work() -> None:
    def plan(*steps: Step) -> Plan:
        return Plan(steps=steps)

    first = Step(step_id="a", agent="sql", task="Do it.", sub_task_input={"x": to_value(1)})
    second = Step(step_id="b", agent="sql", task="And then.", depends_on=["a"])
    renamed = Step(step_id="z", agent="sql", task="Do  it.", sub_task_input={"x": to_value(1)})
    after = Step(step_id="y", agent="sql", task="And then.", depends_on=["z"])
    assert same_work(plan(first, second), plan(renamed, after))
    changed = Step(step_id="y", agent="sql", task="And then.")
    assert not same_work(plan(first, second), plan(renamed, changed))


names = st.sampled_from(["a", "b", "c", "", "1x"])
texts = st.sampled_from(["x", "@{outputs.a.answer}", "@{outputs.b.rows} end", "@{bad", ""])
steps = st.fixed_dictionaries(
    {
        "step_id": names,
        "agent": st.sampled_from(["sql", "rag", "computation", "RAG_agent", "wizard"]),
        "task": texts,
        "depends_on": st.lists(names, max_size=3),
        "sub_task_input": st.lists(
            st.fixed_dictionaries({"name": names, "value": st.one_of(texts, st.lists(texts))}),
            max_size=2,
        ),
    }
)


@given(
    st.fixed_dictionaries(
        {
            "intent": st.sampled_from(["DATA_QA", "GENERAL_QA", "OUT_OF_SCOPE"]),
            "agents": st.lists(st.sampled_from(["sql", "rag", "wizard", ""]), max_size=4),
            "confidence": st.floats(),
            "steps": st.lists(steps, max_size=5),
        }
    )
)
def test_any_reply_yields_a_valid_plan_or_is_refused(reply: dict[str, Any]) -> None:
    """No invalid plan and no disabled agent is accepted."""
    try:
        made = draft(reply, disabled=("rag",))
    except PlanInvalid:
        return
    assert not plan_problems(made.plan, CARDS, max_steps=20)
    agents = {step.agent for step in made.plan.steps}
    assert "rag" not in agents
    assert set(made.decision.chosen_agents) == agents
    assert 0.0 <= made.decision.confidence <= 1.0
