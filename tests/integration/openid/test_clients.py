"""``bos``, curl, pages and the own account of users who sign in by a real OpenID provider."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest

from bos.identity.v1 import DeleteAccountRequest
from bos.identity.v1 import RefreshSessionRequest as Refresh
from bos_errors import BosError
from bos_postgres import connect

from .issuer_harness import CALLBACK, ROOT
from .openid_harness import Harness

pytestmark = pytest.mark.e2e
GATEWAY = "127.0.0.1:1"
LONG_AGO = "UPDATE sessions SET started_at = now() - interval '1 hour'"


@asynccontextmanager
async def bos(
    folder: Path, harness: Harness, *words: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command line, whose user has this folder as a home."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from bos_cli.entry import main; main()"),
        *("--target", GATEWAY, "--identity-target", harness.address, *words),
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUNBUFFERED": "1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def says(process: asyncio.subprocess.Process, pattern: str) -> str:
    """What it prints first that looks like this."""
    assert process.stdout is not None
    printed = ""
    async with asyncio.timeout(120):
        while not (found := re.search(pattern, printed)):
            line = (await process.stdout.readline()).decode()
            assert line, printed
            printed += line
    return found[1]


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(120):
        printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def kept_by(folder: Path, harness: Harness) -> str:
    """The name of the user of the stored tokens, as identity knows it."""
    kept = json.loads((folder / "bos/tokens.json").read_text(encoding="utf-8"))[GATEWAY]
    return (await harness.me(kept["access_token"])).username


async def test_in_a_browser_on_this_machine(tmp_path: Path, harness: Harness) -> None:
    async with bos(tmp_path, harness, "login", "--openid", "--no-browser") as process:
        url = await says(process, r"(http\S+)")
        callback = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
        async with harness.issuer.person("ada") as person:
            came_back = await person.signs_in(url, callback)
        async with aiohttp.ClientSession() as browser:
            for lie in ({"code": "x", "state": "made-up"}, {"code": "x"}, {}):
                async with browser.get(callback, params=lie) as response:
                    assert response.status == 400, lie
            async with browser.get(callback, params=came_back) as response:
                assert response.status == 200
        assert await ended(process) == (0, f"\nSigned in to {GATEWAY} as ada.\n")
    assert await kept_by(tmp_path, harness) == "ada"


async def test_who_gives_up_in_the_browser_is_not_signed_in(
    tmp_path: Path, harness: Harness
) -> None:
    async with bos(tmp_path, harness, "login", "--openid", "--no-browser") as process:
        url = await says(process, r"(http\S+)")
        sent = dict(parse_qsl(urlsplit(url).query))
        given_up = {"error": "access_denied", "state": sent["state"]}
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(sent["redirect_uri"], params=given_up) as response,
        ):
            assert response.status == 200
        code, printed = await ended(process)
    assert code == 2
    assert "refused or given up" in printed
    assert not (tmp_path / "bos/tokens.json").exists()


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


async def test_in_a_browser_over_rest(rest: str, harness: Harness) -> None:
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
        assert me["sign_in"]["open_id_issuer"] == harness.issuer.url
        async with web.post(f"{session}:logOut", json={}) as answer:
            assert (await answer.json())["state"] == "SIGNED_OUT"
        async with web.get("/v1/users/me") as answer:
            assert answer.status == 401


async def sql(dsn: str, statement: str) -> Any:
    async with connect(dsn, schema="identity") as connection:
        return await connection.fetchval(statement)


async def removed(harness: Harness, token: str, password: str = "") -> str:
    """Why the account is not deleted; empty if it is."""
    try:
        await harness.call("DeleteAccount", DeleteAccountRequest(current_password=password), token)
    except BosError as error:
        return error.reason
    return ""


async def test_new_sign_in_replaces_the_password_and_old_does_not(
    harness: Harness, postgres_dsn: str
) -> None:
    old = (await harness.signed_in("ada")).tokens
    await sql(postgres_dsn, LONG_AGO)
    assert await removed(harness, old.access_token) == "SIGN_IN_NOT_FRESH"
    kept = (await harness.call("RefreshSession", Refresh(refresh_token=old.refresh_token))).tokens
    assert await removed(harness, kept.access_token) == "SIGN_IN_NOT_FRESH"
    new = (await harness.signed_in("ada")).tokens
    assert await removed(harness, kept.access_token) == "SIGN_IN_NOT_FRESH", "it is of this session"
    assert await removed(harness, new.access_token) == ""
    with pytest.raises(BosError):
        await harness.me(new.access_token)
    assert await sql(postgres_dsn, "SELECT count(*) FROM external_identities") == 0


async def signs_in(folder: Path, harness: Harness) -> None:
    async with bos(folder, harness, "login", "--openid", "--device") as process:
        url = await says(process, r"or open (http\S+)")
        async with harness.issuer.person("ada") as person:
            await person.types_the_code(url)
        assert await ended(process) == (0, f"Signed in to {GATEWAY} as ada.\n")
    assert await kept_by(folder, harness) == "ada"


async def test_command_line_deletes_account_without_password(
    tmp_path: Path, harness: Harness, postgres_dsn: str
) -> None:
    await signs_in(tmp_path, harness)
    async with bos(tmp_path, harness, "whoami") as process:
        assert await says(process, rf"Signed in by OpenID \({harness.issuer.url}\), (until 20\d\d)")
    await sql(postgres_dsn, LONG_AGO)
    async with bos(tmp_path, harness, "account", "rm", "--yes") as process:
        code, printed = await ended(process)
    assert code != 0
    assert "bos login --openid" in printed
    await signs_in(tmp_path, harness)
    async with bos(tmp_path, harness, "account", "rm", "--yes") as process:
        code, printed = await ended(process)
    assert (code, "account is closed" in printed) == (0, True), printed
    assert GATEWAY not in json.loads((tmp_path / "bos/tokens.json").read_text(encoding="utf-8"))
