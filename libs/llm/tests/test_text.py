import asyncio
from contextlib import suppress
from email.utils import formatdate
from time import time

import pytest
from rig import Rig

from bos_chassis import deadlines
from bos_errors import DeadlineExceeded, InvalidArgument
from bos_llm import (
    ModelNotConfigured,
    ModelOutputInvalid,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRejected,
    ModelUnavailable,
    assistant,
    system,
    user,
)
from bos_testkit.waiting import eventually

HELLO = [user("hello")]


async def test_text_returns_the_reply_and_its_usage(rig: Rig) -> None:
    model = await rig.model()
    completion = await model.text([system("be kind"), user("hello"), assistant("hi")])
    assert completion.text == "Good day to you, dear reader."
    assert not completion.truncated
    usage = completion.usage
    assert (usage.model, usage.calls, usage.output_tokens) == ("scripted", 1, 8)
    assert usage.input_tokens > 0
    request = rig.server.requests[-1]
    assert [message["role"] for message in request.messages] == ["system", "user", "assistant"]
    assert request.body["temperature"] == 0.0


async def test_the_token_limit_marks_a_text_as_truncated(rig: Rig) -> None:
    completion = await (await rig.model()).text(HELLO, max_tokens=3)
    assert completion.truncated
    assert completion.text == "Good day to"
    assert rig.server.requests[-1].body["max_tokens"] == 3


async def test_azure_is_called_at_its_v1_endpoint_with_its_own_key(rig: Rig) -> None:
    model = await rig.model(
        provider="azure",
        model="my-deployment",
        azure_endpoint=rig.server.azure_endpoint,
        azure_api_key="azure-key-0123456789",
    )
    assert (await model.text(HELLO)).usage.model == "my-deployment"
    request = rig.server.requests[-1]
    assert request.path == "/openai/v1/chat/completions"
    assert (request.body["model"], request.key_end) == ("my-deployment", "6789")


async def test_an_older_azure_interface_is_called_by_deployment(rig: Rig) -> None:
    model = await rig.model(
        provider="azure",
        model="my-deployment",
        azure_endpoint=rig.server.azure_endpoint,
        azure_api_key="azure-key-0123456789",
        azure_api_version="2024-10-21",
    )
    await model.text(HELLO)
    request = rig.server.requests[-1]
    assert request.path == "/openai/deployments/my-deployment/chat/completions"
    assert request.headers["api-key"] == "***"


@pytest.mark.parametrize("status", [408, 429, 503, 529])
async def test_a_transient_status_is_retried_until_success(rig: Rig, status: int) -> None:
    rig.server.knobs.fail_next(status=status)
    completion = await (await rig.model()).text(HELLO)
    assert completion.usage.calls == 1
    assert rig.server.calls == 2
    assert rig.slept == [0.5]


@pytest.mark.parametrize("status", [429, 500])
async def test_an_endpoint_that_says_nothing_is_asked_twice_at_most(rig: Rig, status: int) -> None:
    rig.server.knobs.fail_next(9, status=status)
    with pytest.raises(ModelUnavailable if status != 429 else ModelRateLimited) as caught:
        await (await rig.model()).text(HELLO)
    assert caught.value.metadata == {"http_status": str(status)}
    assert rig.server.calls == 2


@pytest.mark.parametrize(("failures", "calls"), [(2, 3), (3, 3)])
async def test_an_endpoint_that_says_when_is_asked_as_often_as_allowed(
    rig: Rig, failures: int, calls: int
) -> None:
    rig.server.knobs.fail_next(failures, status=429, retry_after=1)
    model = await rig.model(max_attempts=3)
    if failures < 3:
        await model.text(HELLO)
    else:
        with pytest.raises(ModelRateLimited):
            await model.text(HELLO)
    assert rig.server.calls == calls
    assert rig.slept == [1.0, 1.0]


async def test_backoff_is_capped(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=500)
    await (await rig.model(retry_base_s=5.0, retry_cap_s=2.0)).text(HELLO)
    assert rig.slept == [2.0]


async def test_retry_after_as_a_date_is_honoured(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=503, retry_after=formatdate(time() + 10, usegmt=True))
    await (await rig.model()).text(HELLO)
    assert rig.slept == [pytest.approx(9.5, abs=1.0)]


@pytest.mark.parametrize("header", ["soon", "nan"])
async def test_an_unreadable_retry_after_falls_back_to_the_backoff(rig: Rig, header: str) -> None:
    rig.server.knobs.fail_next(status=429, retry_after=header)
    await (await rig.model()).text(HELLO)
    assert rig.slept == [0.5]


async def test_a_wait_longer_than_allowed_is_the_callers_decision(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=429, retry_after=3600)
    with pytest.raises(ModelRateLimited) as caught:
        await (await rig.model()).text(HELLO)
    assert caught.value.retry_after_s == 3600
    assert rig.slept == []


@pytest.mark.parametrize(
    ("status", "code", "expected", "reason"),
    [
        (401, None, ModelNotConfigured, "MODEL_KEY_REJECTED"),
        (404, None, ModelNotConfigured, "MODEL_NOT_FOUND"),
        (400, None, ModelRequestRejected, "MODEL_REQUEST_REJECTED"),
        (400, "context_length_exceeded", InvalidArgument, "INVALID_ARGUMENT"),
        (402, None, ModelRateLimited, "MODEL_RATE_LIMITED"),
        (429, "insufficient_quota", ModelRateLimited, "MODEL_RATE_LIMITED"),
        (400, "content_filter", ModelRefused, "MODEL_REFUSED"),
    ],
)
async def test_a_permanent_status_is_not_retried(
    rig: Rig, status: int, code: str | None, expected: type[Exception], reason: str
) -> None:
    rig.server.knobs.fail_next(status=status, code=code)
    with pytest.raises(expected) as caught:
        await (await rig.model()).text(HELLO)
    assert getattr(caught.value, "reason", None) == reason
    assert rig.server.calls == 1


async def test_no_retry_is_started_past_deadline_of_current_call(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=429, retry_after=20)
    model = await rig.model()
    deadlines.set_remaining(10)
    with pytest.raises(ModelRateLimited):
        await model.text(HELLO)
    assert rig.slept == []


async def test_a_call_without_time_left_is_not_made(rig: Rig) -> None:
    model = await rig.model()
    deadlines.set_remaining(0)
    with pytest.raises(DeadlineExceeded):
        await model.text(HELLO)
    assert rig.server.calls == 0


async def test_a_slow_reply_ends_at_the_deadline_of_the_current_call(rig: Rig) -> None:
    rig.server.knobs.latency_s = 60
    model = await rig.model()
    deadlines.set_remaining(1.0)
    with pytest.raises(DeadlineExceeded):
        await model.text(HELLO)
    await eventually(lambda: rig.server.abandoned == 1)


async def test_slow_reply_without_deadline_ends_by_attempts_timeout(rig: Rig) -> None:
    model = await rig.model(timeout_s=1)
    with suppress(ModelUnavailable):  # the connection is there, so that the slow call arrives
        await model.text(HELLO)
    rig.slept.clear()
    before = rig.server.calls
    rig.server.knobs.latency_s = 60
    with pytest.raises(ModelUnavailable) as caught:
        await model.text(HELLO)
    assert caught.value.reason == "MODEL_TIMEOUT"
    await eventually(lambda: rig.server.abandoned >= 1)
    assert rig.server.calls == before + 1
    assert rig.slept == []


@pytest.mark.parametrize("spoil", ["html_next", "malformed_json_next"])
async def test_what_is_no_api_reply_is_retried_and_then_unavailable(rig: Rig, spoil: str) -> None:
    model = await rig.model(max_attempts=2)
    getattr(rig.server.knobs, spoil)()
    assert (await model.text(HELLO)).text.startswith("Good day")
    getattr(rig.server.knobs, spoil)(2)
    with pytest.raises(ModelUnavailable) as caught:
        await model.text(HELLO)
    assert caught.value.reason == "MODEL_REPLY_FOREIGN"
    assert "OPENAI_BASE_URL" in caught.value.message


async def test_an_empty_reply_is_invalid(rig: Rig) -> None:
    rig.server.knobs.empty_next()
    with pytest.raises(ModelOutputInvalid) as caught:
        await (await rig.model()).text(HELLO)
    assert caught.value.usage.calls == 1


async def test_absurd_prompts_are_refused_before_the_call(rig: Rig) -> None:
    model = await rig.model(max_prompt_chars=100)
    assert (await model.text([user("hello" + "x" * 95)])).text
    with pytest.raises(InvalidArgument) as caught:
        await model.text([user("hello" + "x" * 96)])
    assert caught.value.violations[0].field == "messages"
    with pytest.raises(InvalidArgument):
        await model.text([])
    assert rig.server.calls == 1


async def test_cancelling_a_call_ends_its_request(rig: Rig) -> None:
    rig.server.knobs.latency_s = 60
    call = asyncio.create_task((await rig.model()).text(HELLO))
    await eventually(lambda: rig.server.in_flight == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: rig.server.abandoned == 1)
    assert (
        rig.metric("bos_model_calls_total", agent="sql", model="scripted", outcome="cancelled") == 1
    )
