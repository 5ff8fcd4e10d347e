"""Every canned reply over HTTP: a call ends as the right value or error, in few requests."""

from collections.abc import Iterable
from typing import Any

import canned_errors
import canned_json
import canned_streams
import pytest
from canned_replies import CannedReply, TableChoice, serve_canned

from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, InvalidArgument
from bos_llm import (
    Completion,
    Model,
    ModelNotConfigured,
    ModelOutputInvalid,
    ModelRateLimited,
    ModelRefused,
    ModelRequestRejected,
    Models,
    ModelSettings,
    ModelUnavailable,
    TextDelta,
    system,
    user,
)

_FOREIGN = "MODEL_REPLY_FOREIGN"
_ERRORS: dict[str, type[BosError]] = {
    "output": ModelOutputInvalid,
    "refused": ModelRefused,
    "foreign": ModelUnavailable,
    "unavailable": ModelUnavailable,
    "rate_limited": ModelRateLimited,
    "no_money": ModelRateLimited,
    "too_long": InvalidArgument,
    "unknown_model": ModelNotConfigured,
    "rejected": ModelRequestRejected,
}
_LIMIT = 4000


def _named(cases: Iterable[CannedReply]) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", _named((*canned_json.CASES, *canned_errors.CASES)))
async def test_a_structured_call_comes_to_what_is_expected(case: CannedReply) -> None:
    async def call(model: Model) -> None:
        reply = await model.structured(
            [system("Choose."), user("hello")], TableChoice, max_tokens=_LIMIT
        )
        assert case.expect.value is not None
        assert reply.value == TableChoice.model_validate(case.expect.value)

    await _check(case, call)


@pytest.mark.parametrize("case", _named(canned_streams.CASES))
async def test_a_streamed_call_shows_what_is_expected(case: CannedReply) -> None:
    async def call(model: Model) -> None:
        shown, whole = "", None
        try:
            async for item in model.stream([user("hello")]):
                if isinstance(item, TextDelta):
                    shown += item.text
                else:
                    whole = item
        finally:
            assert shown == (case.expect.shown if case.expect.text is None else case.expect.text)
        assert isinstance(whole, Completion)
        assert whole.text == case.expect.text

    await _check(case, call)


async def _check(case: CannedReply, call: Any) -> None:
    async def at_once(_seconds: float) -> None:
        pass

    async with serve_canned(case) as server:
        # OpenAI's own and others name the limit of a reply differently; each case needs its own.
        provider = "openai" if case.while_sent == "max_completion_tokens" else "compatible"
        settings = ModelSettings.load(
            base_url=server.url, model="m", provider=provider, api_key="sk-canned"
        )
        async with Models(settings, Telemetry.for_tests(), sleep=at_once) as models:
            model = models.for_agent("sql")
            if case.expect.failure is None:
                await call(model)
            else:
                with pytest.raises(BosError) as caught:
                    await call(model)
                _check_error(case, caught.value)
    assert 1 <= len(server.requests) <= case.max_requests


def _check_error(case: CannedReply, error: BosError) -> None:
    assert isinstance(error, _ERRORS[case.expect.failure or ""])
    assert (error.reason == _FOREIGN) == (case.expect.failure == "foreign")
    assert all(name in error.message for name in case.expect.names)
