"""Validation of plans."""

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from bos.agent.v1 import AgentCard, Tool
from bos.common.v1 import Value, ValueList
from bos.planner.v1 import Plan, Step
from bos_chassis.values import MAX_DEPTH, to_value
from bos_plans import (
    MAX_TASK_CHARS,
    plan_problems,
    references_of,
    with_implied_dependencies,
    without_references,
)
from bos_plans.validation import MAX_REFERENCES

pytestmark = pytest.mark.requirement("B-19", "C-07", "C-08")

CARDS = {
    "sql": AgentCard(name="sql", description="x", tools=[Tool(name="query")]),
    "computation": AgentCard(name="computation", description="x", tools=[Tool(name="run")]),
}


def step(step_id: str, agent: str = "sql", task: str = "Do it.", **fields: object) -> Step:
    inputs = fields.pop("inputs", {})
    assert isinstance(inputs, dict)
    values = {name: to_value(value) for name, value in inputs.items()}
    return Step(step_id=step_id, agent=agent, task=task, sub_task_input=values, **fields)  # type: ignore[arg-type]


def problems(*steps: Step, max_steps: int = 20, completed: tuple[str, ...] = ()) -> list[str]:
    return plan_problems(Plan(steps=steps), CARDS, max_steps=max_steps, completed=completed)


def test_a_diamond_with_references_and_an_empty_plan_are_valid() -> None:
    assert not problems()
    assert not problems(
        step("a"),
        step("b", inputs={"rows": "@{outputs.a.table}"}),
        step("c", inputs={"nested": {"list": ["sum of @{outputs.a.data.total}"]}}),
        step("d", "computation", tool_name="run", depends_on=["b", "c"]),
    )


def test_timeout_of_a_step_must_be_a_valid_duration() -> None:
    assert not problems(step("a", timeout=Duration(seconds=315_576_000_000)))
    (problem,) = problems(step("a", timeout=Duration(seconds=315_576_000_001)))
    assert problem == 'The timeout of step "a" is not a duration.'


def test_a_step_needs_a_well_formed_id_of_its_own() -> None:
    taken = ['The id of step "a" is taken.']
    assert problems(step("a"), step("a")) == problems(step("a"), completed=("a",)) == taken
    assert not problems(step("a" * 64))
    for step_id in ("", "1st", "has space", "a" * 65, "ä", "a.b"):
        (problem,) = problems(step(step_id))
        assert problem.startswith("Step number 1 needs an id"), step_id


def test_malformed_reference_in_an_input_is_refused() -> None:
    text = "@{ outputs.a.b }"
    (problem,) = problems(step("a"), step("b", inputs={"x": ["deep", {"in": text}]}))
    assert problem == f'Step "b" has a malformed reference: {text}'


def test_references_and_dependencies_must_name_steps_that_exist() -> None:
    assert problems(step("b", inputs={"x": "@{outputs.zz.answer}"})) == [
        'Step "b" depends on the unknown step "zz".'
    ]
    assert problems(step("b", depends_on=["zz"])) == ['Step "b" depends on the unknown step "zz".']
    assert problems(step("b", task="Use @{outputs.b.answer}")) == ['Step "b" depends on itself.']


def test_references_to_completed_steps_are_valid() -> None:
    revised = step("b", inputs={"x": "@{outputs.old.table}"}, depends_on=["old"])
    assert problems(revised)
    assert not problems(revised, completed=("old",))


def test_agents_and_tools_must_be_known() -> None:
    assert problems(step("a", "mail")) == ['Step "a" names the unknown agent "mail".']
    assert problems(step("a", tool_name="run")) == [
        'Step "a" names the tool "run", which sql has not.'
    ]
    assert problems(step("a", tools=["query", "drop"])) == [
        'Step "a" names the tool "drop", which sql has not.'
    ]


def test_a_cycle_of_dependencies_or_references_is_refused() -> None:
    (problem,) = problems(
        step("a", depends_on=["c"]), step("b", depends_on=["a"]), step("c", depends_on=["b"])
    )
    assert problem.startswith("It is circular: ")
    assert problems(step("a", inputs={"x": "@{outputs.b.answer}"}), step("b", depends_on=["a"]))


def test_size_is_bounded() -> None:
    assert not problems(*(step(f"s{n}") for n in range(3)), max_steps=3)
    assert problems(*(step(f"s{n}") for n in range(4)), max_steps=3) == [
        "It has 4 steps; at most 3 are allowed."
    ]
    assert problems(step("a", task=" ")) == ['Step "a" has no task.']
    assert problems(step("a", task="x" * (MAX_TASK_CHARS + 1)))
    assert not problems(*(step(f"s{n}", task="x" * MAX_TASK_CHARS) for n in range(7)))
    assert problems(*(step(f"s{n}", task="x" * MAX_TASK_CHARS) for n in range(8))) == [
        "It is larger than 128 KiB."
    ]


def test_each_reference_becomes_one_dependency() -> None:
    plan = Plan(
        steps=[
            step("a"),
            step("b"),
            step("c", inputs={"x": "@{outputs.b.t} @{outputs.a.t}"}, depends_on=["b"]),
            step("d", inputs={"x": "@{outputs.old.t}"}),
        ]
    )
    linked = with_implied_dependencies(plan)
    assert [list(each.depends_on) for each in linked.steps] == [[], [], ["b", "a"], []]
    assert not plan.steps[2].depends_on[1:], "the given plan is left alone"


@given(st.text(alphabet="@{}outps.ab ", max_size=60))
def test_a_users_text_never_holds_a_reference(text: str) -> None:
    harmless = without_references(text)
    assert not references_of(step("x", task=harmless))
    assert not any("malformed" in problem for problem in problems(step("x", task=harmless or "-")))


def test_references_of_a_plan_are_bounded() -> None:
    def using(count: int) -> list[Step]:
        return [step("a"), step("b", inputs={"all": ["@{outputs.a.answer}"] * count})]

    assert not problems(*using(MAX_REFERENCES))
    assert problems(*using(MAX_REFERENCES + 1)) == [
        "It has 257 references; at most 256 are allowed."
    ]


def nested(depth: int) -> Value:
    value = Value(string_value="x")
    for _ in range(depth):
        value = Value(list_value=ValueList(values=[value]))
    return value


def test_depth_of_a_plan_is_bounded() -> None:
    expected = 'The input of step "a" nests lists and maps more than 24 deep.'
    for depth, fits in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False)):
        for field in ("sub_task_input", "entities"):
            deep = step("a")
            getattr(deep, field)["x"].CopyFrom(nested(depth))
            assert problems(deep) == ([] if fits else [expected])
        plan = Plan(steps=[step("a")], entities={"x": nested(depth)})
        assert bool(plan_problems(plan, CARDS, max_steps=9)) is not fits


def test_reported_problems_are_limited_in_number_and_length() -> None:
    wrong = step("a", depends_on=[f"{n}" * 1000 for n in range(10, 60)])
    found = problems(wrong)
    assert len(found) == 32
    assert max(map(len, found)) == 300


def test_plan_with_too_many_steps_is_not_checked_further() -> None:
    assert problems(*([Step()] * 60_000)) == ["It has 60000 steps; at most 20 are allowed."]
