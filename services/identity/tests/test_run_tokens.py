"""Run tokens are refused by identity with any configured keys."""

import grpc
import pytest
from identity_harness import Starter

from bos.identity.v1 import (
    ChangePasswordRequest,
    GetUserRequest,
    IdentityServiceStub,
    ListSessionsRequest,
    RevokeSessionRequest,
)
from bos_chassis.auth.callers import (
    RUN_TOKEN_KEY,
    Principal,
    RunTokenSigner,
    generate_keypair,
    set_caller,
)
from bos_chassis.settings import AuthSettings
from bos_errors import Unauthenticated
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.credentials.callers import Callers

pytestmark = pytest.mark.security

USER, RUN = str(LOCAL_USER_ID), "0197d1a0-0000-7000-8000-000000000001"


async def test_a_run_token_opens_nothing(start: Starter) -> None:
    private, public = generate_keypair()
    auth = AuthSettings.load(static_key=None, static_key_user=USER, run_token_public_keys=public)
    identity = await start(auth=auth)
    signer = RunTokenSigner(private)
    tokens = (
        signer.mint(USER, RUN, f"{RUN}/0/a", ["agent", "identity"], 60),
        signer.mint(USER, RUN, "", ["identity"], 60),
    )
    stub = IdentityServiceStub(identity.channel)
    change = ChangePasswordRequest(
        current_password="correct horse battery", new_password="another horse battery"
    )
    for token in tokens:
        for method, request in (
            (stub.GetUser, GetUserRequest()),
            (stub.ListSessions, ListSessionsRequest()),
            (stub.RevokeSession, RevokeSessionRequest(session_id=RUN)),
            (stub.ChangePassword, change),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(request, timeout=60, metadata=((RUN_TOKEN_KEY, token),))
            assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_servicers_refuse_a_run_token_themselves() -> None:
    callers = Callers(None, None)  # type: ignore[arg-type]  it gets to neither
    set_caller(Principal(USER, RUN, f"{RUN}/0/a", "run_token"), None)
    with pytest.raises(Unauthenticated):
        await callers.caller()
    assert await callers.rights() is None
