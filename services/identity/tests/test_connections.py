"""Connections: stored encrypted, never shown, handed to the gateway alone."""

from typing import Any

import grpc
import pytest
from identity_harness import Caller, Starter, sql

from bos.identity.v1 import (
    Connection,
    ConnectionSecret,
    ConnectionSecretServiceStub,
    ExportAccountRequest,
    GetConnectionSecretsRequest,
)
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from bos_testkit.audit import audit_entries, refused_entries

SECRET = "app password 17"
KINDS = ["mail.imap"]
RUN = "0197d1a0-0000-7000-8000-000000000001"


async def signed_in(identity: Caller, username: str = "ada") -> tuple[str, str]:
    user = await identity.register(username)
    return (await identity.log_in(username)).tokens.access_token, user.user_id


async def put(identity: Caller, token: str, **change: Any) -> Connection:
    given = {
        "kind": "mail.imap",
        "label": "Work",
        "fields": {"host": "mail.example.com", "user": "ada@example.com"},
        "secret": SECRET,
    }
    return (await identity.do("PutConnection", token, **{**given, **change})).connection


async def listed(identity: Caller, token: str) -> list[Connection]:
    response = await identity.do("ListConnections", token)
    return list(response.connections)


class Gateway:
    """A gateway whose key identity trusts."""

    def __init__(self) -> None:
        private, self.public_key = generate_keypair()
        self.signer = RunTokenSigner(private)

    def auth(self) -> AuthSettings:
        return AuthSettings.load(run_token_public_keys=self.public_key)

    async def secrets(
        self, identity: Caller, user_id: str, *, kinds: list[str] | None = None, **token: Any
    ) -> list[ConnectionSecret]:
        given = {"run": RUN, "step": "", "audiences": ["identity"], **token}
        made = self.signer.mint(user_id, given.pop("run"), given.pop("step"), ttl_s=60, **given)
        stub = ConnectionSecretServiceStub(identity.channel)
        request = GetConnectionSecretsRequest(kinds=kinds or KINDS, agent="mail")
        metadata = ((RUN_TOKEN_KEY, made),)
        return list(
            (await stub.GetConnectionSecrets(request, timeout=20, metadata=metadata)).connections
        )


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
async def identity(start: Starter, gateway: Gateway) -> Caller:
    return await start(auth=gateway.auth())


async def test_secret_is_handed_out_audited_but_not_listed(
    identity: Caller, gateway: Gateway, postgres_dsn: str
) -> None:
    token, user_id = await signed_in(identity)
    made = await put(identity, token)
    assert (made.kind, made.label, made.fields["host"]) == ("mail.imap", "Work", "mail.example.com")
    assert await listed(identity, token) == [made]
    (handed,) = await gateway.secrets(identity, user_id)
    assert (handed.secret, handed.connection) == (SECRET, made)
    assert await gateway.secrets(identity, user_id, kinds=["mail.gmail"]) == []
    stored = await sql(postgres_dsn, "SELECT json_agg(c)::text FROM connections AS c")
    assert SECRET not in stored
    entries = await audit_entries(postgres_dsn, "identity")
    recorded = [e["action"] for e in entries if e["target"] == "mail.imap"]
    assert recorded == ["connection.created", "connection.handed_out"]
    assert SECRET not in str(entries)
    assert entries[-1]["details"] == {"agent": "mail", "run": RUN, "user": user_id}
    async with refused_entries(postgres_dsn, "identity", "connection.handed_out"):
        with pytest.raises(grpc.aio.AioRpcError):
            await gateway.secrets(identity, user_id)


async def test_connection_is_replaced_by_kind_and_deleted(
    identity: Caller, gateway: Gateway
) -> None:
    token, user_id = await signed_in(identity)
    first = await put(identity, token)
    second = await put(identity, token, secret="another one", fields={"host": "imap.example"})
    assert second.create_time == first.create_time
    (handed,) = await gateway.secrets(identity, user_id)
    assert handed.secret == "another one"
    assert dict(handed.connection.fields) == {"host": "imap.example"}
    await identity.do("DeleteConnection", token, kind="mail.imap")
    assert await gateway.secrets(identity, user_id) == []
    with pytest.raises(NotFound):
        await identity.do("DeleteConnection", token, kind="mail.imap")


@pytest.mark.security
async def test_tokens_of_steps_and_of_others_get_no_secret(
    identity: Caller, gateway: Gateway
) -> None:
    token, user_id = await signed_in(identity)
    await put(identity, token)
    for caller, wrong in (
        (gateway, {"step": f"{RUN}/0/a"}),
        (gateway, {"audiences": ["identity", "memory"]}),
        (Gateway(), {}),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await caller.secrets(identity, user_id, **wrong)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.security
async def test_copied_secrets_and_closed_accounts_hand_out_nothing(
    identity: Caller, gateway: Gateway, postgres_dsn: str
) -> None:
    token, user_id = await signed_in(identity)
    hers, her_id = await signed_in(identity, "eve")
    await put(identity, token)
    await put(identity, hers, secret="of eve's mailbox")
    assert len(await gateway.secrets(identity, her_id)) == 1
    await identity.do("DeactivateUser", token, user_id=her_id)
    assert await gateway.secrets(identity, her_id) == []
    await identity.do("ReactivateUser", token, user_id=her_id)
    copied = "SELECT sealed_secret FROM connections WHERE user_id = $1::uuid"
    change = f"UPDATE connections SET sealed_secret = ({copied}) WHERE user_id = $2::uuid"
    await sql(postgres_dsn, change, user_id, her_id)
    assert await gateway.secrets(identity, her_id) == []
    assert len(await gateway.secrets(identity, user_id)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Mail"},
        {"label": "a\u202eb"},
        {"fields": {"host": "a\r\nb"}},
        {"fields": {f"f{number}": "x" for number in range(17)}},
        {"secret": "nul\0inside"},
        {"secret": "x" * 8193},
    ],
)
async def test_a_malformed_connection_is_refused(identity: Caller, change: dict[str, Any]) -> None:
    token, _ = await signed_in(identity)
    with pytest.raises(InvalidArgument):
        await put(identity, token, **change)
    assert await listed(identity, token) == []


async def test_an_account_has_a_bounded_number_of_connections(identity: Caller) -> None:
    token, _ = await signed_in(identity)
    for number in range(32):
        await put(identity, token, kind=f"kind{number}")
    with pytest.raises(ResourceExhausted, match="32 connections"):
        await put(identity, token)
    await put(identity, token, kind="kind3", label="Again")


async def test_an_export_has_connections_without_secrets(start: Starter) -> None:
    identity = await start(account_data_targets={"gateway": "127.0.0.1:1"})
    token, _ = await signed_in(identity)
    await put(identity, token)
    call = identity.begun(
        "ExportAccount", ExportAccountRequest(), ("authorization", f"Bearer {token}")
    )
    first = await call.read()
    call.cancel()
    assert first.path == "identity/account.json"
    assert b"mail.example.com" in first.content
    assert SECRET.encode() not in first.content


async def test_without_a_key_that_encrypts_no_secret_is_taken(
    start: Starter, tmp_path: Any
) -> None:
    private, _ = generate_keypair()
    file = tmp_path / "signing.pem"
    file.write_text(private)
    identity = await start(key_encryption_keys=None, signing_key_files=(file,))
    token, _ = await signed_in(identity)
    with pytest.raises(FailedPrecondition, match="BOS_IDENTITY_KEY_ENCRYPTION_KEYS"):
        await put(identity, token)
