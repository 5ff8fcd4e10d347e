"""Several keys at the HTTP boundary: which one is sent, and what happens when one is refused."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import SecretStr
from rig import Clock, Rig

from bos_errors import ConfigurationError
from bos_llm import (
    Completion,
    ModelNotConfigured,
    ModelRateLimited,
    ModelUnavailable,
    set_key_profile,
    user,
)
from bos_llm.endpoints.keys import KeyPool

HELLO = [user("hello")]
A, B, C = "sk-first-000000-aaaa", "sk-second-00000-bbbb", "sk-third-000000-cccc"
THREE = SecretStr(f"{A},{B},{C}")
PROFILES = {"research": [A, B], "other": C}


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 401},
        {"status": 403},
        {"status": 402},
        {"status": 429, "retry_after": 20},
        {"status": 429, "retry_after": 0, "code": "insufficient_quota"},
    ],
    ids=str,
)
async def test_key_turned_away_is_followed_by_the_next(rig: Rig, fault: dict[str, Any]) -> None:
    rig.server.knobs.fail_next(key=A, **fault)
    model = await rig.model(api_key=THREE, max_attempts=1)
    await model.text(HELLO)
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa", "bbbb", "bbbb"]
    assert rig.slept == []


async def test_rotation_of_keys_is_one_attempt(rig: Rig) -> None:
    rig.server.knobs.fail_next(3, status=429)
    model = await rig.model(api_key=THREE, max_attempts=2)
    await model.text(HELLO)
    assert rig.keys_sent[:3] == ["aaaa", "bbbb", "cccc"]
    assert rig.slept == [0.5]  # as with a single key, without a Retry-After
    assert rig.server.calls == 4


async def test_when_all_keys_rest_the_shortest_wait_counts(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=429, retry_after=7, key=A)
    rig.server.knobs.fail_next(status=429, retry_after=3600, key=B)
    model = await rig.model(api_key=SecretStr(f"{A},{B}"))
    await model.text(HELLO)
    assert rig.slept == [pytest.approx(7, abs=1)]
    assert rig.keys_sent == ["aaaa", "bbbb", "aaaa"]


async def test_long_rest_of_all_keys_is_returned_to_the_caller(rig: Rig) -> None:
    rig.server.knobs.fail_next(9, status=429, retry_after=120)
    model = await rig.model(api_key=SecretStr(f"{A},{B}"))
    with pytest.raises(ModelRateLimited) as caught:
        await model.text(HELLO)
    assert caught.value.retry_after_s == pytest.approx(120, abs=60)
    assert rig.slept == []
    assert rig.server.calls == 2


async def test_refusal_of_all_keys_names_variable(rig: Rig) -> None:
    rig.server.knobs.fail_next(99, status=401)
    model = await rig.model(api_key=THREE)
    with pytest.raises(ModelNotConfigured, match="OPENAI_API_KEY") as caught:
        await model.text(HELLO)
    assert caught.value.reason == "MODEL_KEY_REJECTED"
    assert rig.keys_sent == ["aaaa", "bbbb", "cccc"]
    assert rig.slept == []


async def test_a_refused_key_that_was_mended_is_found_out(rig: Rig) -> None:
    rig.server.knobs.fail_next(2, status=401)
    model = await rig.model(api_key=SecretStr(f"{A},{B}"))
    with pytest.raises(ModelNotConfigured):
        await model.text(HELLO)
    await model.text(HELLO)
    await model.text(HELLO)
    assert rig.keys_sent[2:] == ["aaaa", "aaaa"]


async def test_failures_that_are_not_the_keys_change_no_key(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=500)
    await (await rig.model(api_key=THREE)).text(HELLO)
    assert rig.keys_sent == ["aaaa", "aaaa"]


async def test_streams_change_keys_before_their_first_piece(rig: Rig) -> None:
    rig.server.knobs.fail_next(status=429, retry_after=20, key=A)
    rig.server.knobs.fail_next(status=401, key=B)
    model = await rig.model(api_key=THREE, max_attempts=1)
    async with aclosing(model.stream(HELLO)) as stream:
        items = [item async for item in stream]
    assert isinstance(items[-1], Completion)
    assert items[-1].text == "Good day to you, dear reader."
    assert rig.keys_sent == ["aaaa", "bbbb", "cccc"]


async def test_calls_side_by_side_lose_a_key_once_each_and_all_succeed(rig: Rig) -> None:
    rig.server.knobs.fail_next(1000, status=401, key=A)
    rig.server.knobs.fail_next(1000, status=429, retry_after=60, key=B)
    model = await rig.model(api_key=THREE, max_attempts=1)
    replies = await asyncio.gather(*(model.text(HELLO) for _ in range(30)))
    assert len(replies) == 30
    assert rig.keys_sent.count("cccc") == 30
    calls = rig.server.calls
    await model.text(HELLO)
    assert rig.server.calls == calls + 1


@pytest.mark.requirement("N-05", "N-06")
async def test_an_agent_uses_the_profile_its_settings_choose(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQL_MODEL_KEYS", "other")
    models = await rig.models(key_profiles=PROFILES)
    await models.for_agent("sql").text(HELLO)
    await models.for_agent("planner").text(HELLO)
    assert rig.keys_sent == ["cccc", "cdef"]  # the planner's is the ordinary one


@pytest.mark.requirement("N-07")
async def test_a_task_uses_the_profile_it_names_and_no_other_key(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQL_MODEL_KEYS", "other")
    rig.server.knobs.fail_next(99, status=401, key=A)
    rig.server.knobs.fail_next(99, status=401, key=B)
    model = await rig.model(key_profiles=PROFILES)
    set_key_profile("research")
    with pytest.raises(ModelNotConfigured, match="BOS_MODEL_KEYS"):
        await model.text(HELLO)
    assert rig.keys_sent == ["aaaa", "bbbb"]
    set_key_profile("")
    await model.text(HELLO)
    assert rig.keys_sent[2:] == ["cccc"]


@pytest.mark.requirement("N-07")
async def test_tasks_side_by_side_keep_to_their_own_profiles(rig: Rig) -> None:
    model = await rig.model(key_profiles=PROFILES)

    async def task(profile: str) -> None:
        set_key_profile(profile)
        await model.text(HELLO)

    await asyncio.gather(*(task(name) for name in ("research", "other", "") * 5))
    assert {end: rig.keys_sent.count(end) for end in ("aaaa", "cccc", "cdef")} == {
        "aaaa": 5,
        "cccc": 5,
        "cdef": 5,
    }


@pytest.mark.requirement("N-07")
async def test_profile_that_is_not_here_is_error_and_nothing_is_sent(rig: Rig) -> None:
    model = await rig.model(key_profiles=PROFILES)
    set_key_profile("finance")
    assert model.configured  # so that no caller falls back to working without a model
    with pytest.raises(ConfigurationError, match=r"'finance'.*BOS_MODEL_KEYS"):
        await model.text(HELLO)
    async with aclosing(model.stream(HELLO)) as stream:
        with pytest.raises(ConfigurationError, match="BOS_MODEL_KEYS"):
            await anext(stream)
    assert rig.server.calls == 0


async def test_a_profile_may_be_all_that_a_worker_has(rig: Rig) -> None:
    model = await rig.model(
        api_key=None,
        provider="openai",
        key_profiles={"research": {"keys": [A], "base_url": rig.server.base_url}},
        base_url=None,
    )
    assert not model.configured
    set_key_profile("research")
    assert model.configured
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa"]


@pytest.mark.parametrize(
    ("provider", "profile", "is_sent"),
    [
        ("openai", "", True),
        ("openai", "research", False),
        ("compatible", "", False),
        ("azure", "", False),
    ],
)
async def test_openai_headers_of_the_environment_go_with_its_own_key(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, provider: str, profile: str, is_sent: bool
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Proxy: secret")
    model = await rig.model(
        api_key=THREE,
        provider=provider,
        azure_endpoint=rig.server.base_url.removesuffix("/v1"),
        azure_api_key=SecretStr(B),
        key_profiles=PROFILES,
    )
    set_key_profile(profile)
    await model.text(HELLO)
    sent_along = {name.lower() for name in rig.server.requests[-1].headers}
    ambient = {"openai-organization", "openai-project", "x-proxy"}
    assert sent_along & ambient == (ambient if is_sent else set())


async def test_a_profile_goes_to_its_own_address(rig: Rig, unused_port: int) -> None:
    nowhere = f"http://127.0.0.1:{unused_port}/v1"
    profiles = {"eu": {"keys": [A], "base_url": rig.server.base_url}}
    model = await rig.model(base_url=nowhere, key_profiles=profiles, max_attempts=1)
    with pytest.raises(ModelUnavailable):
        await model.text(HELLO)
    set_key_profile("eu")
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa"]


async def test_keys_of_one_provider_are_never_sent_to_another(rig: Rig) -> None:
    profiles = {"open": {"keys": [A], "provider": "openai"}}
    models = await rig.models(key_profiles=profiles)  # the provider is "compatible"
    set_key_profile("open")
    with pytest.raises(ConfigurationError, match="for openai only"):
        await models.for_agent("sql").text(HELLO)
    assert rig.server.calls == 0


async def test_keys_turned_away_are_counted_and_never_shown(rig: Rig) -> None:
    rig.server.knobs.fail_next(2, status=401)
    models = await rig.models(key_profiles=PROFILES)
    set_key_profile("research")
    with pytest.raises(ModelNotConfigured) as caught:
        await models.for_agent("sql").text(HELLO)
    for place in ("1", "2"):
        labels = {"provider": "compatible", "profile": "research", "key": place}
        assert rig.metric("bos_model_key_rests_total", **labels, reason="rejected") == 1
    assert "model key turned away" in str(rig.telemetry.logs)
    exposed = [repr(models.settings.access("compatible", "research")), repr(caught.value)]
    assert not [key for key in (A, B, C) if key in str([*exposed, rig.telemetry.logs])]


def test_a_rest_is_bounded_and_ends() -> None:
    clock = Clock()
    pool = KeyPool(2, set_aside_s=300, clock=clock)
    assert pool.turned_away(0, "rate_limited", 30) == 30
    assert pool.pick() == 1
    clock.now += 30
    assert pool.pick() == 0
    assert pool.turned_away(0, "rate_limited", 3600) == 300
    assert pool.turned_away(0, "rate_limited", None) == 5
    assert pool.turned_away(0, "rejected", 1) == 300
    clock.now += 299
    assert pool.pick() == 1
    clock.now += 1
    assert pool.pick() == 0


def test_keys_that_are_not_valid_are_not_worth_a_wait() -> None:
    clock = Clock()
    pool = KeyPool(2, set_aside_s=20, clock=clock)
    pool.turned_away(0, "rejected", None)
    pool.turned_away(1, "quota", None)
    assert pool.wait_s() is None
    pool.turned_away(1, "rate_limited", 12)
    assert pool.wait_s() == 12
    assert pool.pick({0, 1}) is None
    assert pool.pick() == 1  # its rest ends first
