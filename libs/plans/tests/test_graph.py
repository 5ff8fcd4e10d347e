"""Stages and order of plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from bos.planner.v1 import Plan, Step
from bos_plans import dependencies, execution_order, stages
from bos_testkit.plans import step


@pytest.mark.requirement("C-10", "T-15")
def test_stages_of_plans() -> None:
    rag, web = step("rag", "e"), step("web", "e")
    code, mail = step("code", "e", "x", "rag"), step("mail", "e", "x", "code")
    both, by_reference = (
        step("code", "e", "x", "rag", "web"),
        step("b", "e", "use @{outputs.rag.x}"),
    )
    for steps, expected in (
        ([], []),
        ([rag, web], [["rag", "web"]]),
        ([rag, code, mail], [["rag"], ["code"], ["mail"]]),
        ([both, rag, web], [["rag", "web"], ["code"]]),
        ([by_reference, rag], [["rag"], ["b"]]),
    ):
        assert stages(Plan(steps=steps)) == expected


@pytest.mark.requirement("C-08")
def test_circular_plan_is_a_value_error() -> None:
    plan = Plan(steps=[step("a", "e", "x", "b"), step("b", "e", "x", "a")])
    with pytest.raises(ValueError, match="cycle"):
        stages(plan)


@st.composite
def acyclic_plans(draw: DrawFn) -> Plan:
    """Acyclic plans whose steps are listed in any order."""
    made: list[Step] = []
    for n in range(draw(st.integers(1, 8))):
        earlier = [one.step_id for one in made]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else []
        made.append(step(f"s{n}", "echo", "x", *needs))
    return Plan(steps=draw(st.permutations(made)))


@given(acyclic_plans())
@pytest.mark.requirement("C-11")
def test_order_respects_dependencies_and_otherwise_planner_order(plan: Plan) -> None:
    order = execution_order(plan)
    position = {step_id: index for index, step_id in enumerate(order)}
    planned = [s.step_id for s in plan.steps]
    needs = {s.step_id: dependencies(s) for s in plan.steps}
    assert sorted(order) == sorted(planned)
    assert all(position[n] < position[s] for s, wanted in needs.items() for n in wanted)
    # At every point the first planned step that is ready comes next.
    for index, chosen in enumerate(order):
        done = set(order[:index])
        ready = [s for s in planned if s not in done and needs[s] <= done]
        assert chosen == ready[0]


@given(acyclic_plans())
@pytest.mark.requirement("C-07")
def test_stages_hold_each_step_once_after_its_dependencies(plan: Plan) -> None:
    found = stages(plan)
    level = {step_id: n for n, stage in enumerate(found) for step_id in stage}
    assert sorted(level) == sorted(s.step_id for s in plan.steps)
    for s in plan.steps:
        needed = [level[n] for n in dependencies(s)]
        assert level[s.step_id] == (max(needed) + 1 if needed else 0)
