"""Registering, signing in and out, over gRPC and real PostgreSQL."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import jwt
import pytest
from identity_harness import CHEAP, PASSWORD, Caller, Starter

from bos.identity.v1 import (
    ChangePasswordRequest,
    GetOpenIdConfigurationRequest,
    LogOutRequest,
    RevokeSessionRequest,
)
from bos_chassis.settings import AuthSettings
from bos_errors import (
    AlreadyExists,
    BosError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
)
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.opaque_tokens import digest
from bos_postgres import connect

pytestmark = pytest.mark.requirement("O-01", "O-02")


async def refused(work: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(Unauthenticated) as error:
        await work
    return error.value.reason, error.value.message


async def test_a_login_opens_a_session_row_and_tokens_that_name_it(
    identity: Caller, postgres_dsn: str
) -> None:
    user = await identity.register(display_name="Ada L.")
    login = await identity.log_in()
    me = await identity.me(login.tokens.access_token)
    assert me.sign_in.start_time == login.session.start_time
    me.ClearField("sign_in")  # set for the caller only
    assert login.user == user == me
    claims = jwt.decode(login.tokens.access_token, options={"verify_signature": False})
    assert claims["sub"] == user.user_id
    assert claims["sid"] == login.session.session_id
    assert claims["exp"] - claims["iat"] == 600 == login.tokens.access_token_lifetime.seconds
    assert (claims["iss"], claims["aud"]) == ("bos-identity", "bos")
    header = jwt.get_unverified_header(login.tokens.access_token)
    assert (header["alg"], header["typ"]) == ("EdDSA", "at+jwt")
    async with connect(postgres_dsn, schema="identity") as connection:
        row = await connection.fetchrow("SELECT * FROM sessions")
        stored = await connection.fetchval("SELECT password FROM users")
        tokens = await connection.fetchval("SELECT count(*) FROM refresh_tokens")
    assert row is not None
    assert (str(row["session_id"]), row["is_active"]) == (login.session.session_id, True)
    assert stored.startswith("$argon2id$")
    assert PASSWORD not in stored
    assert tokens == 1


async def test_name_and_address_lead_to_the_account_in_any_case(identity: Caller) -> None:
    await identity.register("Ada", email="Ada@Example.com")
    for name in ("ada", "ADA", "ada@example.COM"):
        assert (await identity.log_in(name)).user.username == "Ada"


async def test_names_and_addresses_are_unique_case_insensitively(
    identity: Caller,
) -> None:
    await identity.register("ada")
    answers = set()
    for username, email in (("ADA", "other@example.com"), ("other", "ADA@example.com")):
        with pytest.raises(AlreadyExists) as taken:
            await identity.register(username, email=email)
        answers.add((taken.value.reason, taken.value.message, *taken.value.metadata.items()))
    assert len(answers) == 1
    assert await identity.register("other", email="other@example.com")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"password": "short"}, "password"),
        ({"password": "longer.name@example.com", "email": "longer.name@example.com"}, "password"),
        ({"username": "local"}, "username"),
        ({"email": "no address"}, "email"),
        ({"display_name": "ada\u202eadmin"}, "display_name"),
    ],
)
async def test_invalid_registration_names_the_field(
    identity: Caller, fields: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidArgument) as wrong:
        await identity.register(**fields)
    assert [violation.field for violation in wrong.value.violations] == [field]


async def test_a_wrong_password_and_an_unknown_user_look_the_same(identity: Caller) -> None:
    await identity.register()
    answers = {
        await refused(identity.log_in("ada", "wrong")),
        await refused(identity.log_in("unknown", "wrong")),
        await refused(identity.log_in("unknown@example.com", "wrong")),
        await refused(identity.log_in("nob\0dy", "wrong")),
    }
    assert answers == {("LOGIN_FAILED", "The username or the password is wrong.")}
    # As many hashes were computed as there were attempts (and one at start, one to register).
    assert identity.metric("bos_identity_hash_duration_seconds_count") == 6


async def test_the_same_password_has_different_hashes(identity: Caller, postgres_dsn: str) -> None:
    await identity.register("ada")
    await identity.register("eve")
    async with connect(postgres_dsn, schema="identity") as connection:
        assert await connection.fetchval("SELECT count(DISTINCT password) FROM users") == 2


async def test_letters_may_be_entered_in_several_ways(identity: Caller) -> None:
    await identity.register(password="pässwörter")
    await identity.log_in(password="pässwörter")


async def test_a_hash_at_an_old_cost_is_replaced_at_login(
    start: Starter, postgres_dsn: str
) -> None:
    await (await start()).register()
    dearer = await start(**{**CHEAP, "argon2_time_cost": 2})
    await dearer.log_in()
    async with connect(postgres_dsn, schema="identity") as connection:
        assert ",t=2," in await connection.fetchval("SELECT password FROM users")
    await dearer.log_in()


async def test_every_refresh_token_works_once(identity: Caller) -> None:
    await identity.register()
    first = (await identity.log_in()).tokens
    second = await identity.refresh(first.refresh_token)
    third = await identity.refresh(second.refresh_token)
    assert await identity.me(third.access_token)
    assert len({first.refresh_token, second.refresh_token, third.refresh_token}) == 3


async def test_refresh_token_reuse_ends_the_session(identity: Caller) -> None:
    await identity.register()
    stolen = (await identity.log_in()).tokens
    other = (await identity.log_in()).tokens
    newest = await identity.refresh(stolen.refresh_token)
    newest = await identity.refresh(newest.refresh_token)  # so the first answer has arrived
    shapes = {
        await refused(identity.refresh(stolen.refresh_token)),
        await refused(identity.refresh(newest.refresh_token)),
        await refused(identity.refresh("bosr_made-up")),
        await refused(identity.me(newest.access_token)),
    }
    assert shapes == {("TOKEN_INVALID", "The token is not valid, or no longer. Sign in again.")}
    assert await identity.me(other.access_token)
    assert identity.metric("bos_identity_refreshes_total", outcome="reused") == 1


async def test_a_refresh_whose_answer_was_lost_can_be_repeated(identity: Caller) -> None:
    await identity.register()
    tokens = (await identity.log_in()).tokens
    for _ in range(2):
        await identity.refresh(tokens.refresh_token)  # and the answer is lost
    arrived = await identity.refresh(tokens.refresh_token)
    assert await identity.me(arrived.access_token)
    assert await identity.refresh(arrived.refresh_token)
    assert identity.metric("bos_identity_refreshes_total", outcome="repeated") == 2


async def test_a_repeated_refresh_voids_what_was_issued_before(identity: Caller) -> None:
    await identity.register()
    tokens = (await identity.log_in()).tokens
    stolen = await identity.refresh(tokens.refresh_token)
    newest = await identity.refresh(tokens.refresh_token)
    # Two clients hold tokens of one session: one of them must have stolen it.
    await refused(identity.refresh(stolen.refresh_token))
    await refused(identity.refresh(newest.refresh_token))
    assert identity.metric("bos_identity_refreshes_total", outcome="reused") == 1


async def test_a_refresh_cannot_be_repeated_after_a_while(
    identity: Caller, postgres_dsn: str
) -> None:
    await identity.register()
    tokens = (await identity.log_in()).tokens
    newest = await identity.refresh(tokens.refresh_token)
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute(
            "UPDATE refresh_tokens SET used_at = used_at - interval '31 seconds'"
        )
    await refused(identity.refresh(tokens.refresh_token))
    await refused(identity.refresh(newest.refresh_token))


async def test_repeating_a_refresh_can_be_ruled_out(start: Starter) -> None:
    identity = await start(refresh_repeat_s=0)
    await identity.register()
    tokens = (await identity.log_in()).tokens
    await identity.refresh(tokens.refresh_token)
    await refused(identity.refresh(tokens.refresh_token))


async def test_refresh_of_an_ended_session_is_not_repeated(identity: Caller) -> None:
    await identity.register()
    tokens = (await identity.log_in()).tokens
    newest = await identity.refresh(tokens.refresh_token)
    await identity.call("LogOut", LogOutRequest(refresh_token=newest.refresh_token))
    await refused(identity.refresh(tokens.refresh_token))


async def test_of_refreshes_at_once_one_has_the_token_that_counts(
    start: Starter, postgres_dsn: str
) -> None:
    replicas = [await start(), await start()]
    await replicas[0].register()
    tokens = (await replicas[0].log_in()).tokens
    answers = await asyncio.gather(
        *(replicas[number % 2].refresh(tokens.refresh_token) for number in range(8))
    )
    async with connect(postgres_dsn, schema="identity") as connection:
        good = await connection.fetch(
            "SELECT token_digest FROM refresh_tokens WHERE used_at IS NULL"
        )
    (counts,) = [a for a in answers if [digest(a.refresh_token)] == [r[0] for r in good]]
    assert await replicas[0].refresh(counts.refresh_token)
    voided = next(answer for answer in answers if answer != counts)
    await refused(replicas[1].refresh(voided.refresh_token))
    await refused(replicas[0].me(counts.access_token))


async def test_replay_concurrent_with_the_successor_ends_the_session(
    start: Starter, postgres_dsn: str
) -> None:
    replicas = [await start(), await start()]
    await replicas[0].register()
    first = (await replicas[0].log_in()).tokens
    second = await replicas[0].refresh(first.refresh_token)
    answers = await asyncio.gather(
        replicas[0].refresh(second.refresh_token),
        replicas[1].refresh(first.refresh_token),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers].count(Unauthenticated) >= 1
    async with connect(postgres_dsn, schema="identity") as connection:
        assert not await connection.fetchval("SELECT is_active FROM sessions")
        assert await connection.fetchval("SELECT end_reason FROM sessions") == "token_reused"


async def test_logging_out_ends_the_session_by_any_of_its_tokens(identity: Caller) -> None:
    await identity.register()
    first = (await identity.log_in()).tokens
    second = await identity.refresh(first.refresh_token)
    await identity.call("LogOut", LogOutRequest(refresh_token=first.refresh_token))
    await identity.call("LogOut", LogOutRequest(refresh_token="bosr_made-up"))
    await refused(identity.refresh(second.refresh_token))
    await refused(identity.sessions(second.access_token))


async def test_a_session_that_is_not_used_expires(start: Starter) -> None:
    identity = await start(session_idle_s=0.001)
    await identity.register()
    login = await identity.log_in()
    await refused(identity.refresh(login.tokens.refresh_token))


async def test_session_ends_at_its_maximum_age(start: Starter, postgres_dsn: str) -> None:
    identity = await start(session_max_s=3600)
    await identity.register()
    login = await identity.log_in()
    tokens = await identity.refresh(login.tokens.refresh_token)
    assert tokens.refresh_token_expire_time == login.session.expire_time
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute("UPDATE sessions SET started_at = now() - interval '2 hours'")
    late = await identity.refresh(tokens.refresh_token)  # not expired yet, and not for longer
    await refused(identity.refresh(late.refresh_token))


async def test_sessions_can_be_seen_and_revoked_one_by_one(identity: Caller) -> None:
    await identity.register()
    here, there = await identity.log_in(), await identity.log_in()
    sessions = await identity.sessions(here.tokens.access_token)
    assert {s.session_id: s.current for s in sessions} == {
        here.session.session_id: True,
        there.session.session_id: False,
    }
    assert {(s.client_name, s.client_address) for s in sessions} == {("test", "127.0.0.1")}
    request = RevokeSessionRequest(session_id=there.session.session_id)
    revoked = await identity.call("RevokeSession", request, here.tokens.access_token)
    assert not revoked.session.active
    assert len(await identity.sessions(here.tokens.access_token)) == 1
    await refused(identity.refresh(there.tokens.refresh_token))


@pytest.mark.parametrize("made_up", ["no uuid", "theirs"])
async def test_sessions_of_others_do_not_exist(identity: Caller, made_up: str) -> None:
    await identity.register("ada")
    await identity.register("eve")
    ada, eve = await identity.log_in("ada"), await identity.log_in("eve")
    session_id = ada.session.session_id if made_up == "theirs" else made_up
    with pytest.raises(NotFound, match=r"There is no such session\."):
        await identity.call(
            "RevokeSession",
            RevokeSessionRequest(session_id=session_id),
            eve.tokens.access_token,
        )
    assert await identity.refresh(ada.tokens.refresh_token)


async def test_a_new_password_ends_all_other_sessions(identity: Caller) -> None:
    await identity.register()
    here, there = await identity.log_in(), await identity.log_in()
    request = ChangePasswordRequest(current_password=PASSWORD, new_password="another one, longer")
    await identity.call("ChangePassword", request, here.tokens.access_token)
    await refused(identity.refresh(there.tokens.refresh_token))
    await refused(identity.log_in())
    assert await identity.refresh(here.tokens.refresh_token)
    assert await identity.log_in(password="another one, longer")


@pytest.mark.parametrize(
    ("current", "new", "field"),
    [("wrong", "another one, longer", "current_password"), (PASSWORD, "short", "new_password")],
)
async def test_invalid_password_change_names_the_field(
    identity: Caller, current: str, new: str, field: str
) -> None:
    await identity.register()
    token = (await identity.log_in()).tokens.access_token
    request = ChangePasswordRequest(current_password=current, new_password=new)
    with pytest.raises(InvalidArgument) as wrong:
        await identity.call("ChangePassword", request, token)
    assert wrong.value.violations[0].field == field


async def test_a_flood_of_logins_is_refused_without_delaying_others(
    start: Starter,
) -> None:
    identity = await start(hash_queue=1, hash_threads=1, argon2_memory_kib=32768)
    await identity.register()
    answers = await asyncio.gather(*(identity.log_in() for _ in range(12)), return_exceptions=True)
    full = [a for a in answers if isinstance(a, ResourceExhausted)]
    assert full
    assert {error.reason for error in full} <= {"TOO_MANY_LOGINS", "LOGIN_THROTTLED"}
    assert all(error.retry_after_s for error in full)
    assert not [a for a in answers if isinstance(a, BosError) and a not in full]


async def test_the_holder_of_the_static_key_is_the_local_user(start: Starter) -> None:
    auth = AuthSettings.load(static_key="0123456789abcdef", static_key_user=str(LOCAL_USER_ID))
    identity = await start(auth=auth)
    again = await start(auth=auth)
    for replica in (identity, again):
        assert (await replica.me("0123456789abcdef")).username == "local"
    await refused(identity.log_in("local", "anything at all"))
    request = ChangePasswordRequest(current_password="x", new_password="another one, longer")
    with pytest.raises(BosError) as error:
        await identity.call("ChangePassword", request, "0123456789abcdef")
    assert error.value.reason == "NO_PASSWORD"


async def test_the_issuer_says_where_its_keys_are(start: Starter) -> None:
    identity = await start(issuer="https://bos.example.com/")
    found = await identity.call("GetOpenIdConfiguration", GetOpenIdConfigurationRequest())
    assert found.issuer == "https://bos.example.com/"
    assert found.jwks_uri == "https://bos.example.com/.well-known/jwks.json"


@pytest.mark.parametrize("changed", [False, True])
async def test_login_with_a_just_changed_password_opens_no_session(
    identity: Caller, postgres_dsn: str, changed: bool
) -> None:
    await identity.register()
    async with (
        connect(postgres_dsn, schema="identity") as connection,
        connect(postgres_dsn) as watcher,
    ):
        # The password has been found right, and the session is about to be stored.
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM users FOR UPDATE")
        login = asyncio.create_task(identity.log_in())
        while not await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ):
            pass
        if changed:
            await connection.execute("UPDATE users SET password_changed_at = now() + '1 s'")
        await transaction.commit()
        if changed:
            assert (await refused(login))[0] == "LOGIN_FAILED"
        else:
            await login
        assert await connection.fetchval("SELECT count(*) FROM sessions") == (0 if changed else 1)
