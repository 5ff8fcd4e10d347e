"""The own account of a user who signed in by a real OpenID provider, without a password."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bos.identity.v1 import AccountServiceStub, DeleteAccountRequest, ExportAccountRequest
from bos.identity.v1 import RefreshSessionRequest as Refresh
from bos_errors import BosError
from bos_postgres import connect

from .openid_harness import Harness
from .test_cli import GATEWAY, bos, ended, says

pytestmark = pytest.mark.e2e
LONG_AGO = "UPDATE sessions SET started_at = now() - interval '1 hour'"


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


async def test_who_has_a_password_still_gives_it(harness: Harness) -> None:
    ada = (await harness.registered("ada")).tokens.access_token
    assert await removed(harness, ada) == "PASSWORD_REQUIRED"
    assert await removed(harness, ada, "wrong") == "INVALID_ARGUMENT"
    assert (await harness.me(ada)).username == "ada"


async def test_an_export_names_the_identity_at_the_provider(harness: Harness) -> None:
    token = (await harness.signed_in("ada")).tokens.access_token
    call = AccountServiceStub(harness.channel).ExportAccount(
        ExportAccountRequest(), metadata=(("authorization", f"Bearer {token}"),), timeout=60
    )
    part = await anext(aiter(call))
    call.cancel()
    (identity,) = json.loads(part.content)["external_identities"]
    assert (identity["issuer"], identity["subject"]) == (harness.issuer.url, "ada")


async def test_over_rest(rest: str, harness: Harness) -> None:
    token = (await harness.signed_in("ada")).tokens.access_token
    bearer = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(rest, headers=bearer) as web:
        async with web.get("/v1/users/me") as answer:
            way = (await answer.json())["sign_in"]
        assert way["method"] == "SIGN_IN_METHOD_OPEN_ID"
        assert way["open_id_issuer"] == harness.issuer.url
        assert way["expire_time"] > way["start_time"]
        async with web.post("/v1/users/me:delete", json={}) as answer:
            assert answer.status == 200, await answer.text()
        async with web.get("/v1/users/me") as answer:
            assert answer.status == 401


async def signs_in(folder: Path, harness: Harness) -> None:
    async with bos(folder, harness, "login", "--openid", "--device") as process:
        url = await says(process, r"or open (http\S+)")
        async with harness.issuer.person("ada") as person:
            await person.types_the_code(url)
        assert (await ended(process))[0] == 0


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
