import logging
import traceback

import pytest
from opentelemetry.trace import SpanKind
from pydantic import BaseModel
from rig import Rig

from bos_llm import ModelNotConfigured, ModelUnavailable, user
from bos_testkit.scripted_model.pytest_fixtures import SCRIPTED_KEY


class Plan(BaseModel):
    steps: list[str]


async def test_a_call_leaves_a_span_with_genai_names_and_no_content(rig: Rig) -> None:
    await (await rig.model()).text([user("hello, my secret plan")])
    span = rig.telemetry.spans[-1]
    attributes = dict(span.attributes or {})
    assert span.name == "chat scripted"
    assert span.kind is SpanKind.CLIENT
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.agent.name"] == "sql"
    assert attributes["gen_ai.request.model"] == "scripted"
    assert attributes["gen_ai.usage.output_tokens"] == 8
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert "secret plan" not in span.to_json()
    assert "Good day" not in span.to_json()


async def test_a_call_is_a_child_of_what_is_going_on(rig: Rig) -> None:
    model = await rig.model()
    with rig.telemetry.tracer.start_as_current_span("step") as step:
        await model.text([user("hello")])
    span = rig.telemetry.spans[0]
    assert span.parent.span_id == step.get_span_context().span_id


@pytest.mark.requirement("P-11")
async def test_tokens_and_outcomes_are_counted_by_agent_and_model(rig: Rig) -> None:
    labels = {"agent": "sql", "model": "scripted"}
    model = await rig.model()
    rig.server.knobs.fail_next(status=500)
    usage = (await model.text([user("hello")])).usage
    rig.server.knobs.prose_next()
    await model.structured([user("top five")], Plan)
    rig.server.knobs.fail_next(4, status=500)
    with pytest.raises(ModelUnavailable):
        await model.text([user("hello")])
    assert rig.metric("bos_model_calls_total", **labels, outcome="ok") == 2
    assert rig.metric("bos_model_calls_total", **labels, outcome="model_output_invalid") == 1
    assert rig.metric("bos_model_calls_total", **labels, outcome="model_unavailable") == 1
    assert rig.metric("bos_model_retries_total", **labels) == 2
    assert rig.metric("bos_model_call_duration_seconds_count", **labels) == 4
    assert rig.metric("bos_model_tokens_total", **labels, direction="input") > usage.input_tokens
    assert rig.metric("bos_model_tokens_total", **labels, direction="output") > 8


@pytest.mark.requirement("N-08")
async def test_keys_appear_in_no_repr_log_span_or_error(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    models = await rig.models()
    model = models.for_agent("sql")
    rig.server.knobs.fail_next(status=500)
    await model.text([user("hello")])
    rig.server.knobs.fail_next(status=401)
    with pytest.raises(ModelNotConfigured) as caught:
        await model.text([user("hello")])
    exposed = [
        repr(models.settings),
        str(models.settings),
        models.settings.model_dump_json(),
        repr(model),
        repr(models.settings.access("compatible")),
        "".join(traceback.format_exception(caught.value)),
        repr(caught.value.__context__),
        str(rig.telemetry.logs),
        caplog.text,
        *(span.to_json() for span in rig.telemetry.spans),
        str(rig.server.requests),
    ]
    assert rig.telemetry.logs, "retries are logged"
    assert not [text for text in exposed if SCRIPTED_KEY in text]
    assert caught.value.__cause__ is None
    assert "OPENAI_API_KEY" in caught.value.message


@pytest.mark.requirement("N-09")
async def test_clients_are_made_on_first_use_shared_and_closed(rig: Rig) -> None:
    models = await rig.models()
    assert models.for_agent("sql") is models.for_agent("sql")
    assert not models._endpoints
    await models.for_agent("sql").text([user("hello")])
    await models.for_agent("planner").text([user("hello")])
    (endpoint,) = models._endpoints.values()
    await models.__aexit__(None, None, None)
    assert endpoint._transport.is_closed
