"""Accounts, passwords and sessions, over gRPC and real PostgreSQL."""

import asyncio
from contextlib import suppress
from typing import Any

import jwt
import pytest
from identity_harness import CHEAP, PASSWORD, Caller, Starter, locked, refused, sql

from bos.identity.v1 import ChangePasswordRequest
from bos_chassis.settings import AuthSettings
from bos_errors import (
    AlreadyExists,
    BosError,
    InvalidArgument,
    ResourceExhausted,
    Unauthenticated,
)
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.names import clean_name
from bos_identity.opaque_tokens import digest
from bos_identity.passwords.weak import weakness
from bos_postgres import connect

pytestmark = pytest.mark.requirement("O-01", "O-02")


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


async def test_names_and_addresses_are_case_insensitive_and_unique(identity: Caller) -> None:
    await identity.register("Ada", email="Ada@Example.com")
    for name in ("ada", "ADA", "ada@example.COM"):
        assert (await identity.log_in(name)).user.username == "Ada"
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
        ({"password": "1234567890"}, "password"),
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


async def test_hash_of_an_old_cost_is_replaced_at_login(start: Starter, postgres_dsn: str) -> None:
    composed, decomposed = "p\u00e4ssw\u00f6rter", "pa\u0308sswo\u0308rter"
    await (await start()).register(password=composed)
    dearer = await start(**{**CHEAP, "argon2_time_cost": 2})
    await dearer.log_in(password=decomposed)  # as another keyboard sends it
    assert ",t=2," in await sql(postgres_dsn, "SELECT password FROM users")
    await dearer.log_in(password=composed)


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
    lost = await identity.refresh(tokens.refresh_token)
    arrived = await identity.refresh(tokens.refresh_token)
    assert await identity.me(arrived.access_token)
    newest = await identity.refresh(arrived.refresh_token)
    assert identity.metric("bos_identity_refreshes_total", outcome="repeated") == 1
    # If two clients hold tokens of one session, one of them must have stolen it.
    await refused(identity.refresh(lost.refresh_token))
    await refused(identity.refresh(newest.refresh_token))
    assert identity.metric("bos_identity_refreshes_total", outcome="reused") == 1


async def test_a_refresh_cannot_be_repeated_after_a_while(
    identity: Caller, postgres_dsn: str
) -> None:
    await identity.register()
    tokens = (await identity.log_in()).tokens
    newest = await identity.refresh(tokens.refresh_token)
    late = "UPDATE refresh_tokens SET used_at = used_at - interval '31 seconds'"
    await sql(postgres_dsn, late)
    await refused(identity.refresh(tokens.refresh_token))
    await refused(identity.refresh(newest.refresh_token))


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
    assert not await sql(postgres_dsn, "SELECT is_active FROM sessions")
    assert await sql(postgres_dsn, "SELECT end_reason FROM sessions") == "token_reused"


async def test_session_expires_unused_and_at_its_maximum_age(
    start: Starter, postgres_dsn: str
) -> None:
    idle = await start(session_idle_s=0.001)
    await idle.register()
    await refused(idle.refresh((await idle.log_in()).tokens.refresh_token))
    identity = await start(session_max_s=3600)
    login = await identity.log_in()
    tokens = await identity.refresh(login.tokens.refresh_token)
    assert tokens.refresh_token_expire_time == login.session.expire_time
    await sql(postgres_dsn, "UPDATE sessions SET started_at = now() - interval '2 hours'")
    late = await identity.refresh(tokens.refresh_token)  # not expired yet, and not for longer
    await refused(identity.refresh(late.refresh_token))


async def test_sessions_are_listed_revoked_and_ended_by_any_token(identity: Caller) -> None:
    await identity.register()
    here, there = await identity.log_in(), await identity.log_in()
    first, second = here.tokens, await identity.refresh(here.tokens.refresh_token)
    sessions = await identity.sessions(second.access_token)
    assert {s.session_id: s.current for s in sessions} == {
        here.session.session_id: True,
        there.session.session_id: False,
    }
    assert {(s.client_name, s.client_address) for s in sessions} == {("test", "127.0.0.1")}
    revoked = await identity.do(
        "RevokeSession", second.access_token, session_id=there.session.session_id
    )
    assert not revoked.session.active
    assert len(await identity.sessions(second.access_token)) == 1
    await refused(identity.refresh(there.tokens.refresh_token))

    await identity.do("LogOut", refresh_token=first.refresh_token)
    await identity.do("LogOut", refresh_token="bosr_made-up")
    for token in (first, second):
        await refused(identity.refresh(token.refresh_token))
    await refused(identity.sessions(second.access_token))


async def test_a_new_password_ends_all_other_sessions(identity: Caller) -> None:
    await identity.register()
    here, there = await identity.log_in(), await identity.log_in()

    async def change(current: str, new: str) -> None:
        await identity.do(
            "ChangePassword", here.tokens.access_token, current_password=current, new_password=new
        )

    for current, new, field in (
        ("wrong", "another one, longer", "current_password"),
        (PASSWORD, "short", "new_password"),
        (PASSWORD, "password123", "new_password"),
    ):
        with pytest.raises(InvalidArgument) as wrong:
            await change(current, new)
        assert wrong.value.violations[0].field == field
    await change(PASSWORD, "another one, longer")
    await refused(identity.refresh(there.tokens.refresh_token))
    await refused(identity.log_in())
    assert await identity.refresh(here.tokens.refresh_token)
    assert await identity.log_in(password="another one, longer")


async def test_a_flood_of_logins_is_refused_without_delaying_others(start: Starter) -> None:
    identity = await start(hash_queue=1, hash_threads=1, argon2_memory_kib=32768)
    await identity.register()
    answers = await asyncio.gather(*(identity.log_in() for _ in range(12)), return_exceptions=True)
    full = [a for a in answers if isinstance(a, ResourceExhausted)]
    assert full
    assert {error.reason for error in full} <= {"TOO_MANY_LOGINS", "LOGIN_THROTTLED"}
    assert all(error.retry_after_s for error in full)
    assert not [a for a in answers if isinstance(a, BosError) and a not in full]


async def test_static_key_is_the_local_user_without_a_password(start: Starter) -> None:
    key = "0123456789abcdef"
    auth = AuthSettings.load(static_key=key, static_key_user=str(LOCAL_USER_ID))
    identity, again = [await start(auth=auth, issuer="https://bos.example.com/") for _ in range(2)]
    for replica in (identity, again):
        assert (await replica.me(key)).username == "local"
    await refused(identity.log_in("local", "anything at all"))
    with pytest.raises(BosError) as error:
        await identity.do(
            "ChangePassword", key, current_password="x", new_password="another one, longer"
        )
    assert error.value.reason == "NO_PASSWORD"
    found = await identity.do("GetOpenIdConfiguration")
    assert found.issuer == "https://bos.example.com/"
    assert found.jwks_uri == "https://bos.example.com/.well-known/jwks.json"


@pytest.mark.parametrize(
    "change", ["password_changed_at = now() + '1 s'", "deactivated_at = now()", ""]
)
async def test_login_during_a_change_of_the_account_opens_no_session(
    identity: Caller, postgres_dsn: str, change: str
) -> None:
    await identity.register()
    # The password has been found right, and the session is about to be stored.
    async with locked(postgres_dsn, "SELECT FROM users FOR UPDATE") as account:
        login = asyncio.create_task(identity.log_in())
        await account.until_waiting()
        if change:
            await account.connection.execute(f"UPDATE users SET {change}")
        await account.transaction.commit()
        if change:
            await refused(login)
        else:
            await login
    assert await sql(postgres_dsn, "SELECT count(*) FROM sessions") == (0 if change else 1)


@pytest.mark.parametrize("step", ["the password", "the sessions"])
async def test_cancelled_password_change_is_atomic(
    identity: Caller, postgres_dsn: str, step: str
) -> None:
    await identity.register()
    here, thief = await identity.log_in(), await identity.log_in()
    new = "another one, longer"
    table = "users" if step == "the password" else "sessions"
    # The change waits at this step, and its client gives up.
    async with locked(postgres_dsn, f"SELECT FROM {table} FOR NO KEY UPDATE") as rows:
        request = ChangePasswordRequest(current_password=PASSWORD, new_password=new)
        call = identity.begun(
            "ChangePassword", request, ("authorization", f"Bearer {here.tokens.access_token}")
        )
        ended = asyncio.ensure_future(_end(call))
        await rows.until_waiting()
        call.cancel()
        await ended
        await rows.until_waiting(0)
        await rows.transaction.rollback()
    # Either all of it has happened, or nothing.
    outcomes = await asyncio.gather(
        identity.log_in(password=new),
        identity.refresh(thief.tokens.refresh_token),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes].count(Unauthenticated) == 1


async def _end(call: Any) -> None:
    with suppress(asyncio.CancelledError):
        await call


async def test_session_limit_ends_the_session_idle_longest(start: Starter) -> None:
    identity = await start(max_sessions=3)
    await identity.register()
    logins = [await identity.log_in() for _ in range(3)]
    logins[0].tokens.CopyFrom(await identity.refresh(logins[0].tokens.refresh_token))
    newest = await identity.log_in()
    await refused(identity.refresh(logins[1].tokens.refresh_token))
    open_ones = {s.session_id for s in await identity.sessions(newest.tokens.access_token)}
    assert open_ones == {login.session.session_id for login in (logins[0], logins[2], newest)}
    await identity.register("eve")
    assert await identity.log_in("eve")  # whose sessions are her own
    assert len(await identity.sessions(newest.tokens.access_token)) == 3


async def test_concurrent_logins_keep_the_session_limit(start: Starter, postgres_dsn: str) -> None:
    replicas = [await start(max_sessions=3, hash_queue=30, account_attempts=50) for _ in range(2)]
    await replicas[0].register()
    await asyncio.gather(*(replicas[number % 2].log_in() for number in range(16)))
    assert await sql(postgres_dsn, "SELECT count(*) FROM sessions WHERE is_active") == 3


async def test_unreadable_client_name_is_refused(identity: Caller) -> None:
    await identity.register()
    with pytest.raises(InvalidArgument):
        await identity.do("LogIn", username="ada", password=PASSWORD, client_name="a\u202eb")


NAMES = ("ada.lovelace", "ada@example.com", "Ada Lovelace")


@pytest.mark.parametrize(
    "password",
    [
        "1234567890",
        "password123",
        "P@ssw0rd2024",
        "            ",
        "abababababab",
        "qwertzuiop[]",
        "Liverpool1999",
        "xq7!xq7!xq7!",
        "Ada-Lovelace",
        "１２３４５６７８９０",
    ],
)
def test_guessable_password_is_weak(password: str) -> None:
    assert weakness(password, NAMES)


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery",
        "pässwörter",
        "kR7#mq2!xV9",
        "2 boats, 3 oars",
    ],
)
def test_other_password_is_strong(password: str) -> None:
    assert weakness(password, NAMES) is None


@pytest.mark.parametrize(("given", "kept"), [("  Ada L. ", "Ada L."), ("Žofie 李", "Žofie 李")])
def test_names_are_trimmed_and_otherwise_kept(given: str, kept: str) -> None:
    assert clean_name("name", given) == kept


@pytest.mark.parametrize(
    "name",
    ["a\x1bb", "a\u202eb", "a\u3164b", "x" * 129],
)  # fmt: skip
def test_names_that_look_like_others_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        clean_name("name", name)
