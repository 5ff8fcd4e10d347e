"""Endpoints that are down, slow, or loading: how often they are asked."""

import pytest
from aiohttp import web
from pydantic import BaseModel
from rig import Clock, Rig
from serving import endpoint_of

from bos_llm import ModelRequestRejected, ModelUnavailable, user
from bos_llm.endpoints.breaker import CircuitBreaker

HELLO = [user("hello")]


class Plan(BaseModel):
    steps: list[str]


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(open_s=5.0, max_open_s=12.0, clock=clock)
    started = breaker.now()
    clock.now += 1
    breaker.failed(started, 1)
    assert not breaker.blocked_s(), "a single failure may be bad luck"
    breaker.failed(started, 2)
    return breaker


def test_a_success_of_another_call_meanwhile_keeps_it_closed() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock=clock)
    started = breaker.now()
    clock.now += 1
    breaker.failed(started, 1)
    breaker.succeeded()
    breaker.failed(started, 2)
    assert not breaker.blocked_s()


def test_one_call_after_the_pause_may_close_the_circuit() -> None:
    clock = Clock()
    breaker = opened(clock)
    assert breaker.blocked_s() == 5.0
    clock.now += 5
    assert breaker.blocked_s() == 0
    assert breaker.blocked_s() == 5.0, "one at a time"
    clock.now += 5
    assert breaker.blocked_s() == 0, "an unreported probe blocks for one pause"
    breaker.succeeded()
    assert breaker.blocked_s() == 0


def test_pause_doubles_up_to_its_bound_while_endpoint_is_down() -> None:
    clock = Clock()
    breaker = opened(clock)
    for pause in (10.0, 12.0, 12.0):
        clock.now += 13
        assert breaker.blocked_s() == 0
        breaker.failed(breaker.now(), 1)
        assert breaker.blocked_s() == pause


@pytest.mark.parametrize(("failures", "open_"), [(19, False), (20, True)])
def test_many_failures_in_a_row_open_it_whosever_they_are(failures: int, open_: bool) -> None:
    breaker = CircuitBreaker(clock=Clock())
    for _ in range(failures):
        breaker.failed(breaker.now(), 1)
    assert bool(breaker.blocked_s()) is open_


async def test_endpoint_that_is_down_is_called_twice_by_all_callers(rig: Rig) -> None:
    rig.server.knobs.fail_next(99, status=500)
    models = await rig.models()
    for agent in ("planner", "sql", "composer", "memory"):
        with pytest.raises(ModelUnavailable) as caught:
            await models.for_agent(agent).text(HELLO)
    assert rig.server.calls == 2
    assert caught.value.reason == "MODEL_CIRCUIT_OPEN"
    assert caught.value.retry_after_s


@pytest.mark.parametrize(("patient", "calls"), [(True, 2), (False, 1)])
async def test_a_call_of_little_weight_is_tried_once(rig: Rig, patient: bool, calls: int) -> None:
    rig.server.knobs.fail_next(9, status=500)
    model = await rig.model()
    with pytest.raises(ModelUnavailable):
        await model.structured(HELLO, Plan, patient=patient)
    assert rig.server.calls == calls
    rig.server.calls = 0
    with pytest.raises(ModelUnavailable):
        async for _ in (await rig.model("other")).stream(HELLO, patient=patient):
            pass
    assert rig.server.calls == calls


async def test_a_probe_that_is_refused_shows_that_the_endpoint_is_up(rig: Rig) -> None:
    models = await rig.models(breaker_s=0.000_001)
    model = models.for_agent("sql")
    rig.server.knobs.fail_next(2, status=500)
    with pytest.raises(ModelUnavailable):
        await model.text(HELLO)
    rig.server.knobs.fail_next(status=400)
    with pytest.raises(ModelRequestRejected):
        await model.text(HELLO)
    breaker = models.endpoint_of("sql").breaker
    assert breaker.blocked_s() == 0
    assert breaker.blocked_s() == 0


def test_a_probe_that_was_never_sent_leaves_room_for_the_next() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 5
    assert breaker.blocked_s() == 0
    breaker.not_asked()
    assert breaker.blocked_s() == 0


async def test_endpoints_fail_each_for_themselves(rig: Rig, unused_port: int) -> None:
    models = await rig.models(
        variables={
            "SQL_MODEL_PROVIDER": "other",
            "OTHER_BASE_URL": f"http://127.0.0.1:{unused_port}/v1",
        }
    )
    with pytest.raises(ModelUnavailable):
        await models.for_agent("sql").text(HELLO)
    assert (await models.for_agent("planner").text(HELLO)).text


async def test_loading_model_is_waited_for_without_calls(rig: Rig) -> None:
    looks, calls = 0, 0

    async def look(request: web.Request) -> web.Response:
        nonlocal looks
        looks += 1
        return loading() if looks < 4 else web.json_response({"data": []})

    async def answer(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        if looks < 4:
            return loading()
        choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    def loading() -> web.Response:
        error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
        return web.json_response({"error": error}, status=503)

    async with endpoint_of(answer, web.get("/health", look)) as url:
        model = await rig.model(base_url=url)
        assert (await model.text(HELLO)).text == "hi"
    assert (looks, calls) == (4, 2)
    assert rig.slept == [1.0, 1.0, 1.0]
