"""An OpenID provider scripted by the test."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

KEY = generate_private_key(SECP256R1())


@dataclass
class ScriptedProvider:
    """Answers as the test says."""

    url: str = ""
    configuration: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, web.Response] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    token: list[dict[str, Any]] = field(default_factory=list)
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "ada"})

    def id_token(self) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "sub": "ada", "aud": "bos", "iat": now, "exp": now + 600}
        return jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": "k"})

    def granted(self) -> dict[str, Any]:
        return {"id_token": self.id_token(), "access_token": "a", "token_type": "Bearer"}

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if name in self.raw:
            return self.raw.pop(name)
        if name == "openid-configuration":
            return web.json_response(self._configuration())
        if name == "token":
            said = self.token.pop(0)
            return web.json_response(said, status=400 if "error" in said else 200)
        public = json.loads(ECAlgorithm.to_jwk(KEY.public_key()))
        said = {
            "keys": {"keys": [{**public, "kid": "k"}]},
            "me": self.person,
            "device": {
                "device_code": "secret",
                "user_code": "ABCD",
                "verification_uri": f"{self.url}/page",
                "interval": 1,
                **self.device,
            },
        }
        return web.json_response(said[name])

    def _configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/auth",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "userinfo_endpoint": f"{self.url}/me",
            "device_authorization_endpoint": f"{self.url}/device",
            **self.configuration,
        }


@asynccontextmanager
async def scripted_provider() -> AsyncIterator[ScriptedProvider]:
    """One on a free port of this machine, until the block is left."""
    scripted, app = ScriptedProvider(), web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield scripted
    finally:
        await runner.cleanup()
