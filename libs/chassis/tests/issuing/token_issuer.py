"""An issuer of access tokens for tests, and a service that accepts them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry

ISSUER = "https://login.example.com"


class Issuer:
    """Signs tokens with a key of a kind, and publishes that key."""

    def __init__(self, algorithm: str = "EdDSA", key_id: str = "k1") -> None:
        makers = {
            "EdDSA": Ed25519PrivateKey.generate,
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
        }
        self.algorithm, self.key_id = algorithm, key_id
        self.key: Any = makers[algorithm]()

    @property
    def jwk(self) -> dict[str, Any]:
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        text = algorithm.to_jwk(self.key.public_key())
        return {**json.loads(text), "kid": self.key_id, "use": "sig", "alg": self.algorithm}

    def token(self, *, header: dict[str, Any] | None = None, **changes: Any) -> str:
        now = time.time()
        claims = {"iss": ISSUER, "sub": "u1", "aud": "bos", "iat": int(now), "exp": now + 60}
        claims = {k: v for k, v in {**claims, **changes}.items() if v is not None}
        headers = {"kid": self.key_id, **(header or {})}
        return jwt.encode(claims, self.key, algorithm=self.algorithm, headers=headers)


def key_file(folder: Path, *keys: dict[str, Any]) -> Path:
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


@asynccontextmanager
async def opened(
    issuer_document: Any = None, **settings: Any
) -> AsyncIterator[tuple[Any, Telemetry]]:
    telemetry = Telemetry.for_tests("echo")
    async with open_authenticator(
        AuthSettings.load(**{"issuer": ISSUER, **settings}),
        "echo",
        telemetry,
        issuer_document=issuer_document,
    ) as authenticator:
        yield authenticator, telemetry


async def accepts(authenticator: Any, token: str) -> Any:
    return await authenticator.authenticate({"authorization": f"Bearer {token}"})


@asynccontextmanager
async def openid_issuer(signer: Issuer, **document: str) -> AsyncIterator[str]:
    """An OpenID issuer on a real port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        content: dict[str, Any] = {"keys": [signer.jwk]}
        if b"openid-configuration" in head:
            content = {"issuer": url, "jwks_uri": f"{url}/keys", **document}
        body = json.dumps(content).encode()
        start = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(f"{start}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield url
