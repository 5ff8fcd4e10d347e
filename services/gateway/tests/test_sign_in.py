"""Runs belong to whoever an access token names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bos.gateway.v1 import AgentRequest, AskRequest, GetRunRequest
from bos_chassis.settings import AuthSettings
from bos_testkit.agents import EchoAgent

if TYPE_CHECKING:
    from pathlib import Path

    from gateway_house import House

KEY = Ed25519PrivateKey.generate()
ISSUER = "https://login.example.com"


def token(user: str) -> Any:
    claims = {"iss": ISSUER, "aud": "bos", "sub": user, "iat": 0, "exp": 2**40}
    signed = jwt.encode(claims, KEY, algorithm="EdDSA", headers={"kid": "k1"})
    return (("authorization", f"Bearer {signed}"),)


async def test_tokens_of_an_openid_issuer_say_whose_a_run_is(house: House, tmp_path: Path) -> None:
    """Identity plays no part: another issuer takes its place by configuration alone."""
    jwk = json.loads(jwt.get_algorithm_by_name("EdDSA").to_jwk(KEY.public_key()))
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{**jwk, "kid": "k1", "alg": "EdDSA"}]}))
    await house.add_agent(EchoAgent("echo"))
    auth = AuthSettings.load(issuer=ISSUER, jwks_file=keys)
    async with house.gateway(auth=auth) as gateway:
        ask = AskRequest(request=AgentRequest(question="What is new?"))
        answer = await gateway.stub.Ask(ask, timeout=30, metadata=token("auth0|ada"))
        get = GetRunRequest(run_id=answer.response.run_id)
        run = (await gateway.stub.GetRun(get, metadata=token("auth0|ada"))).run
        assert run.user_id == "auth0|ada"
        with pytest.raises(grpc.aio.AioRpcError) as hidden:
            await gateway.stub.GetRun(get, metadata=token("auth0|eve"))
    assert hidden.value.code() is grpc.StatusCode.NOT_FOUND
