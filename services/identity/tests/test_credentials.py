"""What other services do with the credentials that they are sent, against a real identity."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from identity_harness import Caller, refused

from bos.identity.v1 import RevokeApiKeyRequest, RevokeSessionRequest
from bos_chassis.auth.callers import Principal, set_caller
from bos_chassis.auth.session_check import SessionCheck
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.channels import Channels
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import Unavailable
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.credentials.callers import Callers


@asynccontextmanager
async def session_check(address: str) -> AsyncIterator[SessionCheck]:
    async with Channels(Telemetry.for_tests("gateway")) as channels:
        yield SessionCheck(channels, address)


async def key(identity: Caller, token: str, *scopes: str) -> Any:
    return await identity.do("CreateApiKey", token, name="ci", scopes=scopes)


async def test_key_has_its_users_rights_within_its_scopes(identity: Caller) -> None:
    await identity.register("ada")
    token = (await identity.log_in("ada")).tokens.access_token
    made = await key(identity, token, "runs.ask", "memory")
    settings = AuthSettings.load(issuer="bos-identity", identity_target=identity.address)
    async with open_authenticator(settings, "gateway", Telemetry.for_tests("gateway")) as door:
        assert door is not None
        principal = await door.authenticate({"authorization": f"Bearer {made.secret}"})
        assert principal is not None
        assert (principal.kind, principal.session_id) == ("api_key", made.api_key.key_id)
        assert principal.user_id == made.api_key.user_id
        assert principal.scopes == {"runs.ask", "memory"}
        person = await door.authenticate({"authorization": f"Bearer {token}"})
        assert person is not None
        assert (person.kind, person.scopes) == ("user_token", None)
        flipped = made.secret[:-1] + ("A" if made.secret[-1] != "A" else "B")
        await refused(door.authenticate({"authorization": f"Bearer {flipped}"}))


async def test_ended_sessions_and_keys_are_reported_to_services(identity: Caller) -> None:
    await identity.register("ada")
    mine, other = await identity.log_in("ada"), await identity.log_in("ada")
    made = await key(identity, mine.tokens.access_token, "approvals.respond")
    async with session_check(identity.address) as check:
        for credential in (other.tokens.access_token, made.secret):
            roles, groups = await check.require_open(f"Bearer {credential}")
            assert (roles, groups) == ({"user", "administrator"}, frozenset())
        for method, request in (
            ("RevokeSession", RevokeSessionRequest(session_id=other.session.session_id)),
            ("RevokeApiKey", RevokeApiKeyRequest(key_id=made.api_key.key_id)),
        ):
            await identity.call(method, request, mine.tokens.access_token)
        for credential in (other.tokens.access_token, made.secret, "nonsense"):
            await refused(check.require_open(f"Bearer {credential}"))
        assert await check.require_open(f"Bearer {mine.tokens.access_token}")


async def test_that_identity_is_away_is_no_yes(identity: Caller) -> None:
    await identity.register("ada")
    token = (await identity.log_in("ada")).tokens.access_token
    async with session_check("127.0.0.1:1") as check:
        with pytest.raises(Unavailable):
            await check.require_open(f"Bearer {token}")


@pytest.mark.security
async def test_servicers_refuse_a_run_token_themselves() -> None:
    callers = Callers(None, None)  # type: ignore[arg-type]  it gets to neither
    set_caller(Principal(str(LOCAL_USER_ID), "run", "run/0/a", "run_token"), None)
    await refused(callers.caller())
    assert await callers.rights() is None
