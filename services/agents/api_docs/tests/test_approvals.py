"""Calls that may change something: proposed exactly, performed once, unknown outcomes."""

import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

from bos.agent.v1 import SideEffectClass
from bos_testkit.fixtures.agent_harness import AWAITING, FAILED, SUCCEEDED
from bos_testkit.scripted_model.replies import fixture

from .api_under_test import ApiUnderTest, planned

TICKET, NOTE = "Open a ticket about pumps", "Leave a note"
SEARCH = "Search the orders"
BODY = {"topic": "pumps", "text": "Grüße", "priority": 2}
OPEN = planned(TICKET, "POST", "/tickets", json_body=BODY, query_params={"notify": "yes"})
LEAVE = planned(NOTE, "POST", "/notes", json_body={"text": "x"})


@pytest.mark.requirement("E-18")
async def test_a_write_is_shown_exactly_and_performed_once(start: Any, api: ApiUnderTest) -> None:
    agent = await start(OPEN, own={"token": "op-secret"})
    waiting = await agent.do(TICKET)

    assert waiting.result.status == AWAITING
    assert api.seen == []
    assert waiting.arguments == {
        "api": "orders",
        "method": "POST",
        "url": f"{api.base_url}/tickets?notify=yes",
        "headers": {"Accept": "application/json", "Content-Type": "application/json"},
        "body": json.dumps(BODY, indent=2, ensure_ascii=False),
    }
    assert "op-secret" not in str(waiting.result)
    done = await agent.do(TICKET, approved=waiting.action)

    assert done.result.status == SUCCEEDED, done.result.error
    (sent,) = api.seen
    assert f"{sent.method} {api.base_url}{sent.path}" == f"POST {waiting.arguments['url']}"
    assert sent.body == waiting.arguments["body"]
    for name, value in waiting.arguments["headers"].items():
        assert sent.headers[name.lower()] == value
    assert sent.headers["authorization"] == "Bearer op-secret"
    key = f"run-1/0/step_1/{waiting.action.action_id}"
    assert sent.headers["idempotency-key"] == key
    assert api.effects == [key]
    assert done.data["status_code"] == 201
    assert done.data["body"] == {"made": BODY}
    assert [each.outcome_unknown for each in done.result.performed_actions] == [False]


async def test_every_method_that_may_change_something_waits(start: Any, api: ApiUnderTest) -> None:
    methods = ("DELETE", "PUT", "PATCH")
    tasks = [f"{NOTE} by {method}" for method in methods]
    plans = zip(tasks, methods, strict=True)
    agent = await start(*(planned(task, method, "/orders/7") for task, method in plans))
    for task in tasks:
        assert (await agent.do(task)).result.status == AWAITING, task
    assert api.seen == []


@pytest.mark.parametrize(("path", "waits"), [("/search", False), ("/notes", True)])
async def test_post_that_only_reads(start: Any, api: ApiUnderTest, path: str, waits: bool) -> None:
    agent = await start(planned(SEARCH, "POST", path, json_body={"text": "x"}))
    done = await agent.do(SEARCH, tools=("call_api_read", "call_api_write"))
    assert done.result.status == (AWAITING if waits else SUCCEEDED)
    assert len(api.seen) == (0 if waits else 1)


@pytest.mark.requirement("E-18")
async def test_the_operator_may_have_reads_approved_too(start: Any, api: ApiUnderTest) -> None:
    task = "Show the orders"
    agent = await start(planned(task), requires_approval="all")
    card = await agent.card()
    assert all(tool.requires_approval for tool in card.tools)
    waiting = await agent.do(task)
    assert waiting.result.status == AWAITING
    assert waiting.action.tool == "call_api_read"
    assert api.seen == []
    done = await agent.do(task, approved=waiting.action)
    assert done.result.status == SUCCEEDED
    assert len(done.rows) == 6


async def test_instructions_lead_to_another_proposal(start: Any) -> None:
    other = fixture(
        "urgent",
        ["make it urgent"],
        schema="ApiCallPlan",
        json={"make_request": True, "method": "POST", "path": "/tickets", "json_body": '{"p": 1}'},
    )
    agent = await start(OPEN, other)
    first = await agent.do(TICKET)
    context = {"approval_id": "a", "user_instructions": "make it urgent"}
    second = await agent.do(TICKET, approval_context=context)
    assert second.result.status == AWAITING
    assert second.action.digest != first.action.digest


async def test_side_effect_class_is_that_of_the_endpoint(start: Any) -> None:
    """A documented Idempotency-Key makes repetitions harmless, and nothing else does."""
    agent = await start(OPEN, LEAVE)
    keyed, plain = await agent.do(TICKET), await agent.do(NOTE)
    assert keyed.action.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT
    assert plain.action.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE


@pytest.mark.parametrize(
    ("task", "path", "broken", "sent", "unknown", "retryable"),
    [
        (TICKET, "/tickets", 2, 3, False, False),  # repeated with the same key
        (TICKET, "/tickets", 99, 3, True, True),
        (NOTE, "/notes", 99, 1, True, False),  # which has no key
    ],
)
async def test_a_broken_connection_is_repeated_only_with_a_key(
    start: Any,
    api: ApiUnderTest,
    task: str,
    path: str,
    broken: int,
    sent: int,
    unknown: bool,
    retryable: bool,
) -> None:
    agent = await start(OPEN, LEAVE)
    waiting = await agent.do(task)
    api.replies[path] = _breaking(api, times=broken)
    done = await agent.do(task, approved=waiting.action)
    assert done.result.status == (FAILED if unknown else SUCCEEDED)
    assert done.result.error.type == ("OutcomeUnknown" if unknown else "")
    assert done.result.error.retryable is retryable
    assert [each.outcome_unknown for each in done.result.performed_actions] == [unknown]
    keys = {each.headers["idempotency-key"] for each in api.seen}
    assert (len(api.seen), len(keys), len(api.effects)) == (sent, 1, 1)


@pytest.mark.parametrize(
    ("status", "kind", "unknown"),
    [(409, "HttpError", False), (500, "OutcomeUnknown", True)],
)
async def test_a_refused_write_is_known_and_a_failed_one_unknown(
    start: Any, api: ApiUnderTest, status: int, kind: str, unknown: bool
) -> None:
    agent = await start(LEAVE)
    waiting = await agent.do(NOTE)
    api.replies["/notes"] = JSONResponse({"detail": "No."}, status_code=status)
    done = await agent.do(NOTE, approved=waiting.action)
    assert done.result.error.type == kind
    assert [each.outcome_unknown for each in done.result.performed_actions] == [True] * unknown
    assert len(api.seen) == 1


@pytest.mark.parametrize(("task", "keyed"), [(TICKET, True), (NOTE, False)])
async def test_unsent_write_is_known(start: Any, api: ApiUnderTest, task: str, keyed: bool) -> None:
    gone = "http://127.0.0.1:9"
    agent = await start(OPEN, LEAVE, own={"base_url": gone}, allowed=(gone,))
    waiting = await agent.do(task)
    done = await agent.do(task, approved=waiting.action)
    assert done.result.error.type == "HttpRequestError"
    assert done.result.error.retryable is keyed
    assert not done.result.performed_actions


async def test_redirected_write_is_not_sent(start: Any, api: ApiUnderTest, serve_api: Any) -> None:
    other = await serve_api()
    agent = await start(LEAVE, own={"token": "op-secret"}, allowed=(other.base_url,))
    waiting = await agent.do(NOTE)
    headers = {"Location": f"{other.base_url}/notes"}
    for status in (302, 307):
        api.replies["/notes"] = JSONResponse({}, status_code=status, headers=headers)
        done = await agent.do(NOTE, approved=waiting.action)
        assert done.result.error.type == "HttpError"
    assert other.seen == []


async def test_approval_is_of_one_base_url(start: Any, api: ApiUnderTest, serve_api: Any) -> None:
    """An approval made under another base URL is not performed."""
    other = await serve_api()
    agent = await start(LEAVE, allowed=(other.base_url,))
    waiting = await agent.do(NOTE, context={"api_base_url": other.base_url})
    done = await agent.do(NOTE, approved=waiting.action)
    assert done.result.error.type == "PermissionDenied"
    assert api.seen == other.seen == []


def _breaking(api: ApiUnderTest, times: int) -> Any:
    """Makes the effect once per key, and cuts the first connections off."""
    left = [times]

    def answer(request: Any) -> Any:
        key = request.headers["idempotency-key"]
        if key not in api.effects:
            api.effects.append(key)
        if left[0]:
            left[0] -= 1
            return _Cut()
        return JSONResponse({"made": True}, status_code=201)

    return answer


class _Cut(JSONResponse):
    """Announces a body and ends the connection without it."""

    def __init__(self) -> None:
        super().__init__({})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"100"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        for transport in _transports(send):
            transport.close()


def _transports(send: Any) -> list[Any]:
    cycle = getattr(send, "__self__", None)
    found = getattr(cycle, "transport", None)
    return [found] if found is not None else []
