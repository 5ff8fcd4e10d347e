"""Signing in over REST, by a real OpenID provider: as the README of identity shows, with curl."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from .issuer_harness import CALLBACK, ROOT
from .openid_harness import Harness

pytestmark = pytest.mark.e2e


def commands() -> list[str]:
    text = (ROOT / "services/identity/README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(JSON=.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(block).splitlines()


async def shell(folder: Path, rest: str, *lines: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", "\n".join((f"REST={rest}", *lines))),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        printed, _ = await process.communicate()
    found: dict[str, Any] = json.loads(printed)
    return found


async def test_on_another_device_with_curl_alone(
    tmp_path: Path, rest: str, harness: Harness
) -> None:
    header, begin, *finish = commands()
    begun = await shell(tmp_path, rest, header, begin)
    assert "pending" in await shell(tmp_path, rest, header, *finish)
    async with harness.issuer.person("ada") as person:
        await person.types_the_code(begun["verification_uri_complete"])
    async with asyncio.timeout(120):
        while "pending" in (finished := await shell(tmp_path, rest, header, *finish)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nothing sets an event
    assert finished["log_in"]["user"]["username"] == "ada"
    assert (await harness.me(finished["log_in"]["tokens"]["access_token"])).username == "ada"


async def test_in_a_browser(rest: str, harness: Harness) -> None:
    async with aiohttp.ClientSession(rest) as web:
        async with web.get("/v1/openIdProvider") as answer:
            assert (await answer.json())["available"] is True
        async with web.post("/v1/sessions:beginOpenId", json={"redirect_uri": CALLBACK}) as answer:
            begun = await answer.json()
        async with harness.issuer.person("ada") as person:
            came_back = await person.signs_in(begun["authorization_url"])
        came_back["issuer"] = came_back.pop("iss")
        request = {"handle": begun["handle"], **came_back}
        async with web.post("/v1/sessions:finishOpenId", json=request) as answer:
            finished = await answer.json()
        assert finished["log_in"]["user"]["username"] == "ada"
        async with web.post("/v1/sessions:finishOpenId", json=request) as answer:
            assert answer.status == 401, "twice"


async def test_browser_is_signed_in_by_a_cookie_where_it_began(rest: str, harness: Harness) -> None:
    session, ours = "/v1/browserSession", {"Bos-Browser": "1"}

    def browser() -> aiohttp.ClientSession:
        jar = aiohttp.CookieJar(unsafe=True)  # it keeps cookies of addresses
        return aiohttp.ClientSession(rest, cookie_jar=jar, headers=ours)

    async with browser() as web, browser() as other:
        async with web.get(session) as answer:
            assert "open_id" in (await answer.json())["sign_in"]
        async with web.post(f"{session}:beginOpenId", json={}) as answer:
            begun = await answer.json()
        async with harness.issuer.person("ada") as person:
            came_back = await person.signs_in(begun["authorization_url"], f"{rest}/sign-in/openid")
        came_back["issuer"] = came_back.pop("iss")
        for wrong, parameters in ((other, came_back), (web, {**came_back, "state": "another"})):
            async with wrong.post(f"{session}:finishOpenId", json=parameters) as answer:
                assert answer.status == 401
        async with web.post(f"{session}:finishOpenId", json=came_back) as answer:
            assert (await answer.json())["state"] == "SIGNED_IN"
        async with web.get("/v1/users/me") as answer:
            me = await answer.json()
        assert (me["username"], me["sign_in"]["method"]) == ("ada", "SIGN_IN_METHOD_OPEN_ID")
        async with web.post(f"{session}:logOut", json={}) as answer:
            assert (await answer.json())["state"] == "SIGNED_OUT"
        async with web.get("/v1/users/me") as answer:
            assert answer.status == 401
