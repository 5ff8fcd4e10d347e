"""Taint reaches all that text of others reaches, even if agents lie, and nothing else."""

import asyncio

import pytest
from gateway_harness.taint_harness import TaintHarness
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

pytestmark = pytest.mark.thorough

# How long it takes says how busy the machine is.
_SETTINGS = settings(
    deadline=None,
    max_examples=75,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


async def _asked(harness: TaintHarness, questions: int) -> None:
    for _ in range(questions):
        await harness.ask()


@_SETTINGS
@given(questions=st.integers(1, 4), data=st.data())
def test_no_step_downstream_of_text_of_others_is_untainted(
    questions: int, data: DataObject
) -> None:
    """Over plans, retries, revisions, approvals, replies, conversations, memory and follow-ups.

    The harness asserts it of every step that it is sent, of every proposal and every response.
    """
    asyncio.run(_asked(TaintHarness(data, sources=True), questions))


@_SETTINGS
@given(questions=st.integers(1, 4), data=st.data())
def test_nothing_is_tainted_without_foreign_content(questions: int, data: DataObject) -> None:
    harness = TaintHarness(data, sources=False)
    asyncio.run(_asked(harness, questions))
    assert not any(given.tainted for given in harness.inputs)
    assert not any(run.response.tainted for run in harness.ended)
