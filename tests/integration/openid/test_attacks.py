"""Attacks on a sign-in by a real OpenID provider."""

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest

from bos_errors import BosError, InvalidArgument
from bos_postgres import connect

from .issuer_harness import CALLBACK
from .openid_harness import Harness

pytestmark = pytest.mark.e2e


async def refused(harness: Harness, handle: str, **came_back: str) -> str:
    with pytest.raises(BosError) as error:
        await harness.finish(handle, **came_back)
    return error.value.reason


async def came_back_from(harness: Harness, url: str, subject: str = "ada") -> dict[str, str]:
    async with harness.issuer.person(subject) as person:
        return await person.signs_in(url)


def changed(url: str, **parameters: str) -> str:
    parts = urlsplit(url)
    query = urlencode({**dict(parse_qsl(parts.query)), **parameters})
    return urlunsplit(parts._replace(query=query))


async def test_another_state_or_issuer_ends_the_flow(harness: Harness) -> None:
    for name, value in (("state", "another"), ("state", ""), ("iss", "https://evil.example")):
        begun = await harness.begin()
        came_back = await came_back_from(harness, begun.authorization_url)
        wrong = {**came_back, name: value}
        assert await refused(harness, begun.handle, **wrong) == "OPENID_REFUSED", wrong
        assert await refused(harness, begun.handle, **came_back) == "OPENID_REFUSED", wrong


async def test_a_handle_is_good_once(harness: Harness) -> None:
    begun = await harness.begin()
    came_back = await came_back_from(harness, begun.authorization_url)
    await harness.finish(begun.handle, **came_back)
    assert await refused(harness, begun.handle, **came_back) == "OPENID_REFUSED"
    again = await came_back_from(harness, begun.authorization_url)
    assert await refused(harness, begun.handle, **again) == "OPENID_REFUSED"


async def test_an_expired_sign_in_is_refused(harness: Harness, postgres_dsn: str) -> None:
    begun = await harness.begin()
    came_back = await came_back_from(harness, begun.authorization_url)
    device = await harness.begin("")
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute("UPDATE openid_flows SET expires_at = now() - interval '1 s'")
    assert await refused(harness, begun.handle, **came_back) == "OPENID_REFUSED"
    assert await refused(harness, device.handle) == "OPENID_REFUSED"


async def test_foreign_nonce_or_client_is_refused(harness: Harness) -> None:
    for parameters in ({"nonce": "another"}, {"client_id": "other"}):
        begun = await harness.begin()
        came_back = await came_back_from(harness, changed(begun.authorization_url, **parameters))
        assert await refused(harness, begun.handle, **came_back) == "OPENID_REFUSED", parameters


async def test_a_stolen_code_is_worth_nothing_without_its_verifier(harness: Harness) -> None:
    begun = await harness.begin()
    stolen = await came_back_from(harness, begun.authorization_url)
    thief = await harness.begin()
    state = dict(parse_qsl(urlsplit(thief.authorization_url).query))["state"]
    assert await refused(harness, thief.handle, **{**stolen, "state": state}) == "OPENID_REFUSED"


async def test_a_handle_of_one_kind_is_none_of_the_other(harness: Harness) -> None:
    begun, device = await harness.begin(), await harness.begin("")
    assert await refused(harness, begun.handle) == "OPENID_REFUSED"
    assert await refused(harness, device.handle, code="x", state="y") == "OPENID_REFUSED"


async def test_redirects_to_other_addresses_are_refused(harness: Harness) -> None:
    for uri in (
        "https://evil.example/callback",
        "http://127.0.0.1:80@evil.example/callback",
        "http://127.0.0.1:1234/other",
        "http://127.0.0.1.evil.example/callback",
        "http://localhost:1234/callback",
        "http://127.0.0.1:99999/callback",
    ):
        with pytest.raises(InvalidArgument) as error:
            await harness.begin(uri)
        assert error.value.violations[0].field == "redirect_uri", uri
    assert (await harness.begin(CALLBACK)).handle
