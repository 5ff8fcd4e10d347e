"""Tokens: where they come from, when they expire, and where they never go."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from bos_api_docs.calls.tokens import GRACE_S, Credentials, Tokens
from bos_api_docs.settings import ApiSettings
from bos_chassis.telemetry import Telemetry
from bos_http import HttpClient

from .api_under_test import ApiUnderTest, planned, policy

TASK = "Show the order PO-7"
PLAN = planned(TASK, path="/orders/7")
SIGN_IN = {"web_api_key": "wk", "email": "a@b.c", "password": "pw"}


def sent(api: ApiUnderTest) -> list[str | None]:
    """Authorization of the requests other than sign-ins."""
    return [each.headers.get("authorization") for each in api.seen if "/token" not in each.path]


@pytest.mark.requirement("E-10", "A-05")
@pytest.mark.parametrize(
    ("secrets", "expected"),
    [
        ({"api_bearer_token": "tok-one", "firebase_id_token": "tok-two"}, "tok-one"),
        ({"firebase_id_token": "tok-two", "api_token_file": "tok-three"}, "tok-two"),
        ({"api_token_file": " tok-three\n"}, "tok-three"),
        ({}, "tok-operator"),
    ],
)
async def test_a_token_is_taken_in_order(
    start: Any, api: ApiUnderTest, secrets: dict[str, str], expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("tok-operator\n")
    agent = await start(PLAN, own={"token_file": str(file)})
    done = await agent.do(TASK, secrets=secrets)
    assert sent(api) == [f"Bearer {expected}"]
    assert expected not in str(done)


@pytest.mark.requirement("E-10", "E-11")
async def test_a_token_is_made_from_email_and_password_once(start: Any, api: ApiUnderTest) -> None:
    agent = await start(PLAN, own={**SIGN_IN, "token_url": "/token"})
    await agent.do(TASK)
    await agent.do(TASK)
    assert sent(api) == ["Bearer token-1"] * 2
    (sign_in,) = [each for each in api.seen if "/token" in each.path]
    assert sign_in.path == "/token?key=wk"
    assert sign_in.method == "POST"


@pytest.mark.requirement("E-10", "A-05")
async def test_the_request_may_bring_its_own_sign_in(start: Any, api: ApiUnderTest) -> None:
    agent = await start(PLAN, own={"token_url": "/token"})
    secrets = {
        "firebase_web_api_key": "mine",
        "firebase_email": "a@b.c",
        "firebase_password": "pw",
    }
    await agent.do(TASK, secrets=secrets)
    await agent.do(TASK)  # another request has no part in it
    assert sent(api) == ["Bearer token-1", None]


@pytest.mark.requirement("E-11")
@pytest.mark.parametrize(
    ("life_s", "after_s", "times"),
    [("3600", 3600 - GRACE_S - 1, 1), ("3600", 3600 - GRACE_S + 1, 2), ("60", 0, 2), ("x", 1, 0)],
)
async def test_a_generated_token_is_cached_until_its_grace(
    api: ApiUnderTest, life_s: str, after_s: float, times: int
) -> None:
    now = [1000.0]
    api.expires_in = life_s
    settings = ApiSettings(**SIGN_IN)
    async with HttpClient(
        policy(api.base_url, methods=("POST",)), Telemetry.for_tests("x")
    ) as http:
        tokens = Tokens(http, clock=lambda: now[0])
        resolve, url = tokens.resolve, f"{api.base_url}/token"
        if not times:
            with pytest.raises(Exception, match="sign-in did not work"):
                await resolve(Credentials({}, settings), url)
            return
        first = await resolve(Credentials({}, settings), url)
        now[0] += after_s
        second = await resolve(Credentials({}, settings), url)
        origins = [each.origin for each in (first, second) if each is not None]
        assert origins == ["generated", "cached" if times == 1 else "generated"]
        assert api.signed_in == times
        assert "token-1" not in repr(first)


@pytest.mark.requirement("E-13", "E-17")
async def test_a_401_refreshes_the_token_once(start: Any, api: ApiUnderTest) -> None:
    agent = await start(PLAN, own={**SIGN_IN, "token_url": "/token"})
    await agent.do(TASK)
    api.accepted = set()  # all tokens so far are revoked
    done = await agent.do(TASK)
    assert done.data["status_code"] == 200
    assert sent(api) == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]
    assert "Refreshed the token and repeated the request" in done.messages()
    api.seen.clear()
    api.replies["/orders/7"] = JSONResponse({"detail": "no"}, status_code=401)
    done = await agent.do(TASK)
    assert done.result.error.details["status_code"].int64_value == 401
    assert sent(api) == ["Bearer token-2", "Bearer token-3"]


async def test_failed_sign_in_shows_no_credentials(start: Any, api: ApiUnderTest) -> None:
    agent = await start(PLAN, own={**SIGN_IN, "password": "wrong-pw", "token_url": "/token"})
    done = await agent.do(TASK)
    assert done.result.error.type == "HttpRequestError"
    assert "sign-in" in done.result.error.message
    assert "wrong-pw" not in str(done)
    assert "wrong-pw" not in str(agent.telemetry.logs)
    assert not done.result.error.retryable
    gone = "http://127.0.0.1:9"
    agent = await start(PLAN, own={**SIGN_IN, "token_url": f"{gone}/token"}, allowed=(gone,))
    assert (await agent.do(TASK)).result.error.retryable


@pytest.mark.requirement("E-09", "A-05")
async def test_headers_are_layered(start: Any, api: ApiUnderTest) -> None:
    headers = {"Accept": "text/csv", "Authorization": "Basic x", "X-Tenant": "n", "Prefer": "a"}
    plan = planned(TASK, path="/orders/7", headers={"Prefer": "b", "Accept-Language": "de"})
    agent = await start(plan, own={"headers": {"X-Api-Key": "operator-key"}})
    secrets = {"api_headers": json.dumps(headers), "api_bearer_token": "tok"}
    await agent.do(TASK, secrets=secrets)
    given = api.seen[0].headers
    assert given["accept"] == "application/json"
    assert given["x-tenant"] == "n"
    assert given["x-api-key"] == "operator-key"
    assert given["prefer"] == "b"  # the plan's come after the request's
    assert given["accept-language"] == "de"
    assert given["authorization"] == "Bearer tok"


FORBIDDEN = (
    *("Authorization", "Host", "Cookie", "Connection", "Transfer-Encoding", "Content-Length"),
    *("Idempotency-Key", "X-HTTP-Method-Override", "X-Forwarded-For", "Proxy-Authorization"),
    *("X-Original-URL", "bos-run-token", "X-Undocumented", "Bad Name", "X\r\nInjected"),
)


async def test_plan_sets_documented_headers_alone(start: Any, api: ApiUnderTest) -> None:
    headers = {**dict.fromkeys(FORBIDDEN, "evil"), "Prefer": "x"}
    agent = await start(planned(TASK, path="/orders/7", headers=headers))
    done = await agent.do(TASK)
    assert "evil" not in api.seen[0].headers.values()
    assert api.seen[0].headers["prefer"] == "x"
    (left_out,) = [data for said, data in done.events("MESSAGE") if "left out" in said]
    assert left_out["names"] == list(FORBIDDEN)


async def test_invalid_headers_of_a_request_are_refused(start: Any, api: ApiUnderTest) -> None:
    agent = await start(PLAN)
    for given in ("[]", '{"a": {}}', '{"a": "b\\nc"}', "[" * 9999):
        done = await agent.do(TASK, secrets={"api_headers": given})
        assert done.result.error.type == "ConfigurationError", given[:20]
        assert "api_headers" in done.result.error.message
    assert api.seen == []


async def test_credentials_keep_their_origin(start: Any, api: ApiUnderTest, serve_api: Any) -> None:
    """The operator's never go to a base URL of the request, and the request's go there."""
    other = await serve_api()
    own = {"token": "operator", "headers": {"X-Api-Key": "operator-key"}}
    agent = await start(PLAN, own=own, allowed=(other.base_url,))
    await agent.do(TASK, context={"api_base_url": other.base_url})
    await agent.do(TASK, context={"base_url": other.base_url}, secrets={"api_bearer_token": "mine"})
    assert sent(other) == [None, "Bearer mine"]
    assert "operator" not in str(other.seen)
    # The same origin named by the request is the operator's all the same.
    await agent.do(TASK, context={"api_base_url": f"{api.base_url}/"})
    assert sent(api) == ["Bearer operator"]


async def test_credentials_stay_at_their_api(start: Any, api: ApiUnderTest, serve_api: Any) -> None:
    other = await serve_api()
    task = "Show the note"
    apis = {
        name: {"openapi": f"{each.base_url}/openapi.json", "base_url": each.base_url}
        for name, each in (("first", api), ("second", other))
    }
    agent = await start(
        planned(task, path="/orders/7", api="second"),
        PLAN,
        apis=apis,
        http=policy(api.base_url, other.base_url),
    )
    other.seen.clear()
    secrets = {"api_bearer_token": "mine", "api_headers": '{"X-Key": "mine-too"}'}
    await agent.do(task, secrets=secrets)
    await agent.do(TASK, secrets=secrets)
    assert sent(other) == [None]
    assert "mine" not in str(other.seen)
    assert sent(api) == ["Bearer mine"]


@pytest.mark.requirement("E-07", "A-05")
async def test_base_urls_have_an_order(start: Any, api: ApiUnderTest, serve_api: Any) -> None:
    second, third, fourth = [await serve_api() for _ in range(3)]
    everywhere = tuple(each.base_url for each in (second, third, fourth))
    described = {"openapi": f"{api.base_url}/openapi.json"}
    context = {"api_base_url": second.base_url, "base_url": third.base_url}
    options: Any = {"apis": {"orders": described}, "allowed": everywhere}
    full = await start(
        PLAN, **options, agent_base_url=fourth.base_url, default_base_url=api.base_url
    )
    await full.do(TASK, context=context)
    assert len(second.seen) == 1
    await full.do(TASK, context={"base_url": third.base_url})
    assert len(third.seen) == 1
    await full.do(TASK)
    assert len(fourth.seen) == 1
    less = await start(PLAN, **options, default_base_url=api.base_url)
    await less.do(TASK)
    assert len(api.seen) == 1


@pytest.mark.requirement("E-07")
async def test_without_a_base_url_the_settings_are_named(start: Any, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("endpoints: [{method: GET, path: /orders/7}]")
    agent = await start(PLAN, apis={"orders": {"catalogue": str(file)}})
    done = await agent.do(TASK)
    assert done.result.error.type == "ConfigurationError"
    assert "API_AGENT_BASE_URL" in done.result.error.message
