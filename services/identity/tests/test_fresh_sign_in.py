"""Fresh sign-in in place of a password, and the sign-in method in GetUser."""

from dataclasses import dataclass
from typing import Any

import pytest
from identity_harness import PASSWORD, Caller, Starter, sql

from bos.identity.v1 import (
    SignInMethod,
    Tokens,
)
from bos_chassis.settings import AuthSettings
from bos_errors import BosError
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.openid.settings import OpenIdSettings

pytestmark = pytest.mark.security
ISSUER = "https://issuer.example"
KEY = "a static key of this test"


@dataclass
class Ada:
    """A user without password, whose session was opened through the OpenID provider."""

    identity: Caller
    dsn: str
    user_id: str
    tokens: Tokens

    async def sql(self, statement: str, *given: object) -> None:
        await sql(self.dsn, statement, *given)

    async def removal(self, password: str = "", token: str = "") -> str:
        """Why the account is not deleted; empty if it is."""
        try:
            await self.identity.do(
                "DeleteAccount", token or self.tokens.access_token, current_password=password
            )
        except BosError as error:
            return error.reason
        return ""


@pytest.fixture
async def ada(start: Starter, postgres_dsn: str) -> Ada:
    identity = await start(
        openid=OpenIdSettings.load(issuer=ISSUER, client_id="bos", fresh_s=300),
        account_data_targets={"gateway": "127.0.0.1:1"},  # no server listens
    )
    root = await identity.administrator()
    user = await identity.invited(root, "ada")
    found = Ada(identity, postgres_dsn, user.user_id, (await identity.log_in()).tokens)
    await found.sql(
        "UPDATE sessions SET openid_issuer = $2 WHERE user_id = $1::text::uuid",
        user.user_id,
        ISSUER,
    )
    await found.sql("UPDATE users SET password = NULL WHERE user_id = $1::text::uuid", user.user_id)
    await found.sql(
        "INSERT INTO external_identities (issuer, subject, user_id)"
        " VALUES ($2, 'ada at the provider', $1::text::uuid)",
        user.user_id,
        ISSUER,
    )
    return found


@pytest.mark.parametrize(
    "change",
    [
        "started_at = now() - interval '301 s'",
        "openid_issuer = 'https://another.example'",
    ],
)
async def test_another_session_does_not(ada: Ada, change: str) -> None:
    await ada.sql(f"UPDATE sessions SET {change}")
    assert await ada.removal() == "SIGN_IN_NOT_FRESH"
    assert await ada.removal(PASSWORD) == "SIGN_IN_NOT_FRESH"
    refreshed = await ada.identity.refresh(ada.tokens.refresh_token)
    assert await ada.removal(token=refreshed.access_token) == "SIGN_IN_NOT_FRESH", "kept alive"
    assert (await ada.identity.me(refreshed.access_token)).username == "ada"


async def test_refusal_says_how_and_until_when_to_sign_in_afresh(ada: Ada) -> None:
    sign_in = (await ada.identity.me(ada.tokens.access_token)).sign_in
    (session,) = await ada.identity.sessions(ada.tokens.access_token)
    assert (sign_in.method, sign_in.open_id_issuer) == (SignInMethod.SIGN_IN_METHOD_OPEN_ID, ISSUER)
    assert (sign_in.start_time, sign_in.expire_time) == (session.start_time, session.expire_time)
    assert session.method == sign_in.method

    root = (await ada.identity.log_in("root")).tokens.access_token
    sign_in = (await ada.identity.me(root)).sign_in
    assert (sign_in.method, sign_in.open_id_issuer) == (SignInMethod.SIGN_IN_METHOD_PASSWORD, "")
    assert sign_in.HasField("expire_time")

    made = await ada.identity.do("CreateApiKey", root, name="k", scopes=["account"])
    sign_in = (await ada.identity.me(made.secret)).sign_in
    assert sign_in.method == SignInMethod.SIGN_IN_METHOD_API_KEY
    assert (sign_in.start_time, sign_in.expire_time) == (
        made.api_key.create_time,
        made.api_key.expire_time,
    )


@pytest.mark.parametrize("is_local", [True, False])
async def test_holders_of_static_keys_are_distinguished(start: Starter, is_local: bool) -> None:
    identity = await start()
    root = await identity.administrator()
    user_id = str(LOCAL_USER_ID) if is_local else (await identity.me(root)).user_id
    auth: dict[str, Any] = {"static_key": KEY, "static_key_user": user_id}
    other = await start(auth=AuthSettings.load(**auth))
    sign_in = (await other.me(KEY)).sign_in
    local, static = (
        SignInMethod.SIGN_IN_METHOD_LOCAL_USER,
        SignInMethod.SIGN_IN_METHOD_STATIC_KEY,
    )
    assert sign_in.method == (local if is_local else static)
    assert not sign_in.HasField("expire_time")
