"""A browser at the real product: signed in by a link or a password, asking, finding, judging."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .rest_harness import BOS, RestHarness, rest_harness

pytestmark = [pytest.mark.e2e, pytest.mark.rest]

SESSION = "/v1/browserSession"
QUESTION = "How many days are there between 17 January 2026 and 15 June 2026?"
PASSWORD = "a horse, a battery"


class Browser:
    """Sends what a page of the console sends; keeps cookies, has no key."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def call(
        self, verb: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        sent = {"Sec-Fetch-Site": "same-origin", **headers}
        if verb != "GET":
            sent["Bos-Browser"] = "1"
        async with self._http.request(verb, path, json=body, headers=sent) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else {}


@asynccontextmanager
async def browser(harness: RestHarness) -> AsyncIterator[Browser]:
    jar = aiohttp.CookieJar(unsafe=True)  # it keeps cookies of addresses
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(harness.url, cookie_jar=jar, timeout=timeout) as http:
        yield Browser(http)


def reason(answer: dict[str, Any]) -> str:
    return str(answer["error"]["details"][0]["reason"])


async def bos(harness: RestHarness, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(harness.folder)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        BOS, *arguments, cwd=harness.folder, env=environment, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def code_of(text: str, url: str) -> str:
    found = re.search(re.escape(url) + r"/#sign-in=(\S+)", text)
    assert found, text
    return found[1]


@pytest.mark.requirement("O-01", "O-03")
async def test_browser_signs_in_by_link_and_password(
    tmp_path: Path, started_before: Callable[[Path], Path]
) -> None:
    started_before(tmp_path / ".data")
    async with (
        rest_harness(tmp_path) as harness,
        browser(harness) as local,
        browser(harness) as ada,
    ):
        await _link(harness, local)
        run_id = await _asks_finds_and_judges(harness, local)
        await _account(ada, run_id)
        second = code_of(await bos(harness, "console"), harness.url)
        assert (await ada.call("POST", f"{SESSION}:redeem", {"code": second}))[0] == 200
        status, run = await ada.call("GET", f"/v1/runs/{run_id}")
        assert (status, run["feedback"]["note"]) == (200, "Thank you")


async def _link(harness: RestHarness, local: Browser) -> None:
    """The link that is printed at the start signs in once; nothing else does."""
    status, state = await local.call("GET", SESSION)
    assert (status, state["state"]) == (200, "SIGNED_OUT")
    assert state["sign_in"] == {"password": True, "api_key": True, "link": True}
    assert "context" not in state
    status, answer = await local.call("GET", "/v1/runs")
    assert (status, reason(answer)) == (401, "CREDENTIAL_MISSING")
    code = {"code": code_of(harness.printed, harness.url)}
    status, state = await local.call("POST", f"{SESSION}:redeem", code)
    assert (status, state["state"]) == (200, "SIGNED_IN")
    assert state["context"]["current_date"] == "2026-06-15"
    status, answer = await local.call("POST", f"{SESSION}:redeem", code)
    assert (status, reason(answer)) == (401, "LINK_INVALID")


async def _asks_finds_and_judges(harness: RestHarness, local: Browser) -> str:
    """A question, its conversation by words of it, feedback in the browser and by ``bos``."""
    request = {"question": QUESTION, "conversation_id": "days"}
    status, answer = await local.call("POST", "/v1/runs:ask", request)
    assert (status, answer["status"]) == (200, "RUN_STATUS_SUCCEEDED")
    run_id = str(answer["run_id"])

    async with asyncio.timeout(60):  # memory gets the turn behind the end of the run
        while not (await local.call("GET", "/v1/conversations"))[1]["conversations"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    for query, found in (("JANUARY days", ["days"]), ("submarine", [])):
        _, listed = await local.call("GET", f"/v1/conversations?query={query}")
        assert [each["conversation_id"] for each in listed["conversations"]] == found
    status, renamed = await local.call("PATCH", "/v1/conversations/days", {"title": "Spring"})
    assert (status, renamed["title"]) == (200, "Spring")
    _, said = await local.call("GET", "/v1/conversations/days/messages")
    assert [each["run_id"] for each in said["messages"]] == [run_id] * 2

    given = {"rating": "FEEDBACK_RATING_DOWN", "reasons": ["FEEDBACK_REASON_SPEED"], "note": "Hm."}
    status, stored = await local.call("PUT", f"/v1/runs/{run_id}/feedback", given)
    assert (status, {name: stored[name] for name in given}) == (200, given)
    assert "speed" in await bos(harness, "runs", "show", run_id)
    said = await bos(harness, "feedback", run_id, "up", "--note", "Thank you")
    assert said == "Feedback: up; Thank you\n"
    return run_id


async def _account(ada: Browser, run_id: str) -> None:
    """An account signs in, sees nothing of the local user's, and signs out."""
    person = {"username": "ada", "email": "ada@example.com", "password": PASSWORD}
    assert (await ada.call("POST", "/v1/users", person))[0] == 200
    credentials = {"username": "ada", "password": PASSWORD}
    status, state = await ada.call("POST", f"{SESSION}:logIn", credentials)
    assert (status, state["state"]) == (200, "SIGNED_IN")
    assert (await ada.call("GET", "/v1/users/me"))[1]["username"] == "ada"
    for verb, path, body in (
        ("GET", f"/v1/runs/{run_id}", None),
        ("PUT", f"/v1/runs/{run_id}/feedback", {"rating": "FEEDBACK_RATING_DOWN"}),
        ("DELETE", f"/v1/runs/{run_id}/feedback", None),
        ("GET", "/v1/conversations/days", None),
        ("DELETE", "/v1/conversations/days", None),
    ):
        assert (await ada.call(verb, path, body))[0] == 404, path
    assert (await ada.call("GET", "/v1/conversations?query=days"))[1]["conversations"] == []
    _, sessions = await ada.call("GET", "/v1/sessions")
    assert [each["client_name"].split(":")[0] for each in sessions["sessions"]] == ["Web console"]
    assert (await ada.call("POST", f"{SESSION}:logOut", {}))[1]["state"] == "SIGNED_OUT"
    status, answer = await ada.call("GET", "/v1/runs")
    assert (status, reason(answer)) == (401, "CREDENTIAL_MISSING")
