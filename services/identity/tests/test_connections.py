"""Connections: stored encrypted, never shown, handed to the gateway alone."""

from typing import Any

import grpc
import pytest
from identity_harness import Caller, Starter

from bos.identity.v1 import (
    Connection,
    ConnectionSecret,
    ConnectionSecretServiceStub,
    CreateApiKeyRequest,
    DeactivateUserRequest,
    DeleteConnectionRequest,
    ExportAccountRequest,
    GetConnectionSecretsRequest,
    ListConnectionsRequest,
    PutConnectionRequest,
)
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from bos_postgres import connect
from bos_testkit.audit import audit_entries

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
    request = PutConnectionRequest(**{**given, **change})
    return (await identity.call("PutConnection", request, token)).connection


async def listed(identity: Caller, token: str) -> list[Connection]:
    response = await identity.call("ListConnections", ListConnectionsRequest(), token)
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


async def test_secret_of_a_connection_is_handed_out_but_not_listed(
    start: Starter, gateway: Gateway, postgres_dsn: str
) -> None:
    identity = await start(auth=gateway.auth())
    token, user_id = await signed_in(identity)
    made = await put(identity, token)
    assert (made.kind, made.label, made.fields["host"]) == (
        "mail.imap",
        "Work",
        "mail.example.com",
    )
    (found,) = await listed(identity, token)
    assert found == made
    (handed,) = await gateway.secrets(identity, user_id)
    assert (handed.secret, handed.connection) == (SECRET, made)
    assert await gateway.secrets(identity, user_id, kinds=["mail.gmail"]) == []
    async with connect(postgres_dsn, schema="identity") as connection:
        stored = str([tuple(row) for row in await connection.fetch("SELECT * FROM connections")])
    assert SECRET not in stored
    entries = await audit_entries(postgres_dsn, "identity")
    recorded = [
        (e["action"], e["target"]) for e in entries if e["action"].startswith("connection.")
    ]
    assert recorded == [("connection.created", "mail.imap"), ("connection.handed_out", "mail.imap")]
    assert SECRET not in str(entries)
    assert entries[-1]["details"] == {"agent": "mail", "run": RUN, "user": user_id}


async def test_secret_is_not_handed_out_without_an_audit_entry(
    start: Starter, gateway: Gateway, postgres_dsn: str
) -> None:
    identity = await start(auth=gateway.auth())
    token, user_id = await signed_in(identity)
    await put(identity, token)
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'not now'; END $$; "
            "CREATE TRIGGER refused BEFORE INSERT ON audit_pending FOR EACH ROW "
            "WHEN (NEW.action = 'connection.handed_out') EXECUTE FUNCTION refuse()"
        )
    with pytest.raises(grpc.aio.AioRpcError):
        await gateway.secrets(identity, user_id)


async def test_connection_is_replaced_by_kind_and_deleted(start: Starter, gateway: Gateway) -> None:
    identity = await start(auth=gateway.auth())
    token, user_id = await signed_in(identity)
    first = await put(identity, token)
    second = await put(identity, token, secret="another one", fields={"host": "imap.example"})
    assert second.create_time == first.create_time
    (handed,) = await gateway.secrets(identity, user_id)
    assert handed.secret == "another one"
    assert dict(handed.connection.fields) == {"host": "imap.example"}
    await identity.call("DeleteConnection", DeleteConnectionRequest(kind="mail.imap"), token)
    assert await gateway.secrets(identity, user_id) == []
    with pytest.raises(NotFound):
        await identity.call("DeleteConnection", DeleteConnectionRequest(kind="mail.imap"), token)


@pytest.mark.security
async def test_no_step_no_user_and_no_token_for_others_gets_a_secret(
    start: Starter, gateway: Gateway
) -> None:
    identity = await start(auth=gateway.auth())
    token, user_id = await signed_in(identity)
    await put(identity, token)
    step = f"{RUN}/0/a"
    foreign = Gateway()
    for caller, wrong in (
        (gateway, {"step": step, "audiences": ["mail", "identity"]}),
        (gateway, {"step": step, "audiences": ["identity"]}),
        (gateway, {"audiences": ["memory"]}),
        (gateway, {"audiences": ["identity", "memory"]}),
        (foreign, {}),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await caller.secrets(identity, user_id, **wrong)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    stub = ConnectionSecretServiceStub(identity.channel)
    bearer = (("authorization", f"Bearer {token}"),)
    for metadata in ((), bearer):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetConnectionSecrets(
                GetConnectionSecretsRequest(kinds=KINDS), timeout=20, metadata=metadata
            )
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.security
async def test_users_have_their_own_connections_alone(start: Starter, gateway: Gateway) -> None:
    identity = await start(auth=gateway.auth())
    token, _ = await signed_in(identity)
    hers, her_id = await signed_in(identity, "eve")
    await put(identity, token)
    assert await listed(identity, hers) == []
    with pytest.raises(NotFound):
        await identity.call("DeleteConnection", DeleteConnectionRequest(kind="mail.imap"), hers)
    assert await gateway.secrets(identity, her_id) == []
    assert len(await listed(identity, token)) == 1


@pytest.mark.security
async def test_a_secret_copied_into_another_row_does_not_open(
    start: Starter, gateway: Gateway, postgres_dsn: str
) -> None:
    identity = await start(auth=gateway.auth())
    token, user_id = await signed_in(identity)
    hers, her_id = await signed_in(identity, "eve")
    await put(identity, token)
    await put(identity, hers, secret="of eve's mailbox")
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute(
            "UPDATE connections SET sealed_secret = (SELECT sealed_secret FROM connections "
            "WHERE user_id = $1::uuid) WHERE user_id = $2::uuid",
            user_id,
            her_id,
        )
    assert await gateway.secrets(identity, her_id) == []
    assert len(await gateway.secrets(identity, user_id)) == 1


async def test_keys_list_connections_and_neither_make_nor_delete_them(identity: Caller) -> None:
    token, _ = await signed_in(identity)
    await put(identity, token)
    request = CreateApiKeyRequest(name="ci", scopes=["account"])
    key = (await identity.call("CreateApiKey", request, token)).secret
    assert [each.kind for each in await listed(identity, key)] == ["mail.imap"]
    with pytest.raises(PermissionDenied, match="API keys cannot do this"):
        await put(identity, key)
    with pytest.raises(PermissionDenied, match="API keys cannot do this"):
        await identity.call("DeleteConnection", DeleteConnectionRequest(kind="mail.imap"), key)


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


async def test_closed_account_hands_out_no_secret(start: Starter, gateway: Gateway) -> None:
    identity = await start(auth=gateway.auth())
    token, _ = await signed_in(identity)
    hers, her_id = await signed_in(identity, "eve")
    await put(identity, hers)
    assert len(await gateway.secrets(identity, her_id)) == 1
    await identity.call("DeactivateUser", DeactivateUserRequest(user_id=her_id), token)
    assert await gateway.secrets(identity, her_id) == []


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
