"""Canned errors over HTTP: a call ends as the right error, in few requests."""

from collections.abc import Iterable
from typing import Any

import canned_errors
import canned_json
import canned_streams
import pytest
from canned_replies import CannedReply, TableChoice, serve_canned

from bos_chassis.telemetry import Telemetry
from bos_errors import BosError
from bos_llm import (
    Completion,
    Model,
    ModelNotConfigured,
    ModelOutputInvalid,
    ModelRateLimited,
    ModelRefused,
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
    "unknown_model": ModelNotConfigured,
}
_LIMIT = 4000


def _named(cases: Iterable[CannedReply]) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in cases]


@pytest.mark.parametrize("case", _named((canned_json.CASES[0], *canned_errors.CASES)))
async def test_a_structured_call_comes_to_what_is_expected(case: CannedReply) -> None:
    async def call(model: Model) -> None:
        reply = await model.structured(
            [system("Choose."), user("hello")], TableChoice, max_tokens=_LIMIT
        )
        assert case.expect.value is not None
        assert reply.value == TableChoice.model_validate(case.expect.value)

    await _check(case, call)


FAILING = [case for case in canned_streams.CASES if case.expect.failure is not None]


@pytest.mark.parametrize("case", _named((canned_streams.CASES[0], *FAILING)))
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
        settings = ModelSettings.load(base_url=server.url, model="m", api_key="sk-canned")
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
