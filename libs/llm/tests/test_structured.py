from typing import Any

import pytest
from pydantic import BaseModel
from rig import Rig

from bos_llm import ModelOutputInvalid, ModelRefused, ModelUnavailable, Usage, user
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import UNPREPARED

ASK = [user("the top five customers")]
SPOILERS = ["prose", "html", "malformed", "half", "half_length", "empty"]


class Plan(BaseModel):
    steps: list[str]
    note: str | None = None


def spoil(rig: Rig, how: str, n: int = 1) -> None:
    knobs = rig.server.knobs
    {
        "prose": lambda: knobs.prose_next(n),
        "html": lambda: knobs.html_next(n, as_content=True),
        "malformed": lambda: knobs.malformed_json_next(n),
        "half": lambda: knobs.half_json_next(n, finish_reason="stop"),
        "half_length": lambda: knobs.half_json_next(n),
        "empty": lambda: knobs.empty_next(n),
    }[how]()


@pytest.mark.requirement("N-10")
async def test_a_structured_reply_is_a_validated_value(rig: Rig) -> None:
    reply = await (await rig.model()).structured(ASK, Plan)
    assert reply.value == Plan(steps=["query", "share"])
    assert not reply.repaired
    assert reply.usage.calls == 1
    sent = rig.server.requests[-1].body["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["name"] == "Plan"
    assert sent["json_schema"]["strict"] is True


@pytest.mark.parametrize("how", SPOILERS)
@pytest.mark.requirement("N-10")
async def test_an_unusable_reply_is_repaired_once(rig: Rig, how: str) -> None:
    spoil(rig, how)
    reply = await (await rig.model()).structured(ASK, Plan)
    assert reply.value.steps == ["query", "share"]
    assert reply.repaired
    assert reply.usage.calls == 2


@pytest.mark.parametrize("how", ["prose", "half_length", "empty"])
@pytest.mark.requirement("N-10")
async def test_two_unusable_replies_are_an_error(rig: Rig, how: str) -> None:
    spoil(rig, how, n=2)
    with pytest.raises(ModelOutputInvalid) as caught:
        await (await rig.model()).structured(ASK, Plan)
    assert rig.server.calls == 2, "exactly one repair attempt"
    assert caught.value.usage.calls == 2
    assert caught.value.metadata == {"schema": "Plan", "model": "scripted"}
    assert rig.slept == [], "a repair is no retry"


async def test_the_repair_shows_the_model_its_reply_and_what_is_wrong(
    scripted_model: ScriptedModelFactory, rig: Rig
) -> None:
    server = await scripted_model(
        fixture("bad", ["top five"], schema="Plan", json={"steps": {"a": 1}, "note": [7]}),
        fixture(
            "good", ["top five", "not a valid plan"], schema="Plan", json={"steps": ["mended"]}
        ),
    )
    model = await rig.model(base_url=server.base_url)
    reply = await model.structured(ASK, Plan)
    assert reply.value.steps == ["mended"]
    shown, complaint = server.requests[-1].messages[-2:]
    assert shown == {"role": "assistant", "content": '{"steps": {"a": 1}, "note": [7]}'}
    assert "steps: Input should be a valid array" in complaint["content"]
    assert "note: Input should be a valid string" in complaint["content"]


@pytest.mark.parametrize(("temperature", "second"), [(0.0, 0.4), ("none", None)])
async def test_endless_reply_is_repaired_less_strictly(
    scripted_model: ScriptedModelFactory, rig: Rig, temperature: Any, second: float | None
) -> None:
    server = await scripted_model(
        fixture("loop", ["top five"], schema="Plan", text='{"steps": [' + '"again", ' * 400),
        fixture("good", ["top five", "at most 5 items"], schema="Plan", json={"steps": ["once"]}),
    )
    model = await rig.model(base_url=server.base_url, temperature=temperature)
    reply = await model.structured(ASK, Plan, max_tokens=700)
    assert reply.value.steps == ["once"]
    shown = server.requests[-1].messages[-2]["content"]
    assert len(shown) <= 300
    assert server.requests[-1].body.get("temperature") == second


async def test_a_refusal_is_an_error_of_its_own_and_never_repaired(rig: Rig) -> None:
    with pytest.raises(ModelRefused) as caught:
        await (await rig.model()).structured([user("something unprepared")], Plan)
    assert UNPREPARED in caught.value.message
    assert caught.value.usage is not None
    assert rig.server.calls == 1


async def test_retry_comes_before_repair_and_both_succeed(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=503)
    rig.server.knobs.prose_next()
    rig.server.knobs.fail_next(status=429, retry_after=3)
    reply = await (await rig.model()).structured(ASK, Plan)
    assert reply.repaired
    assert rig.slept == [0.5, 3.0]
    assert rig.server.calls == 4


@pytest.mark.parametrize("how", ["html_next", "broken_stream_next"])
async def test_a_broken_endpoint_is_retried_not_repaired(rig: Rig, how: str) -> None:
    getattr(rig.server.knobs, how)()
    reply = await (await rig.model()).structured(ASK, Plan)
    assert not reply.repaired
    getattr(rig.server.knobs, how)(2)
    with pytest.raises(ModelUnavailable):
        await (await rig.model(max_attempts=2)).structured(ASK, Plan)


async def test_usage_adds_over_calls_models_and_costs() -> None:
    total = Usage("a", 1, 2, 1, 0.5) + Usage("b", 10, 20, 1, None) + Usage("a", 1, 1, 1, 0.25)
    assert total == Usage("a, b", 12, 23, 3, 0.75)
    assert total.models == ("a", "b")
    assert total.cost_micros == 750_000
    assert sum([Usage("a", 1, 1, 1)], start=Usage()) == Usage("a", 1, 1, 1)
    assert Usage().models == ()
