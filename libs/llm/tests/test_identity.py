"""Azure OpenAI by a managed identity: real token endpoints on loopback, a scripted Azure."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from rig import Rig
from serving import served

from bos_chassis import deadlines
from bos_errors import ConfigurationError, DeadlineExceeded
from bos_llm import Completion, Model, ModelNotConfigured, ModelUnavailable, user
from bos_testkit.waiting import eventually

HELLO = [user("hello")]
HEADER = "identity-header-0123456789"
PLATFORM = (
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "IMDS_ENDPOINT",
    "MSI_ENDPOINT",
    "MSI_SECRET",
    "AZURE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
)


@dataclass
class TokenEndpoint:
    """Answers as App Service does, and as a virtual machine's metadata service does."""

    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    life_s: int = 3600
    status: int = 200
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def app_service(self, request: web.Request) -> web.Response:
        if request.headers.get("X-IDENTITY-HEADER") != HEADER:
            return web.json_response({"message": "secret text of the platform"}, status=401)
        return await self._token(request)

    async def metadata_service(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata") != "true":
            return web.json_response({}, status=400)
        return await self._token(request)

    async def _token(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        number = len(self.asked)
        await self.gate.wait()
        if self.status != 200:
            return web.json_response({"error": "secret text of the platform"}, status=self.status)
        return web.json_response(
            {
                "access_token": f"token-of-the-identity-{number:04}",
                "expires_on": str(int(time.time()) + self.life_s),
                "expires_in": str(self.life_s),
                "resource": request.query["resource"],
                "token_type": "Bearer",
            }
        )


@pytest.fixture
async def tokens(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TokenEndpoint]:
    endpoint = TokenEndpoint()
    endpoint.gate.set()
    for name in PLATFORM:
        monkeypatch.delenv(name, raising=False)
    async with served(
        web.get("/msi/token", endpoint.app_service),
        web.get("/metadata/identity/oauth2/token", endpoint.metadata_service),
    ) as endpoint.url:
        yield endpoint
        endpoint.gate.set()


@pytest.fixture
def app_service(tokens: TokenEndpoint, monkeypatch: pytest.MonkeyPatch) -> TokenEndpoint:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{tokens.url}/msi/token")
    monkeypatch.setenv("IDENTITY_HEADER", HEADER)
    return tokens


async def azure(rig: Rig, **overrides: Any) -> Model:
    return await rig.model(
        provider="azure",
        model="my-deployment",
        api_key=None,
        azure_endpoint=rig.server.azure_endpoint,
        azure_auth="managed_identity",
        **overrides,
    )


@pytest.mark.requirement("N-04")
async def test_calls_carry_the_token_of_the_identity_and_no_key(
    rig: Rig, app_service: TokenEndpoint
) -> None:
    model = await azure(rig)
    assert model.configured
    await model.text(HELLO)
    async with aclosing(model.stream(HELLO)) as stream:
        assert isinstance([item async for item in stream][-1], Completion)
    assert rig.keys_sent == ["0001", "0001"]
    assert "api-key" not in rig.server.requests[-1].headers
    assert "authorization" in rig.server.requests[-1].headers
    assert rig.server.requests[-1].path == "/openai/v1/chat/completions"
    (asked,) = app_service.asked
    assert asked["resource"] == "https://cognitiveservices.azure.com"


@pytest.mark.requirement("N-04")
async def test_one_of_several_identities_can_be_chosen(
    rig: Rig, app_service: TokenEndpoint
) -> None:
    await (await azure(rig, azure_client_id="11111111-2222")).text(HELLO)
    assert app_service.asked[0]["client_id"] == "11111111-2222"


@pytest.mark.requirement("N-04")
async def test_virtual_machine_uses_the_metadata_service(
    rig: Rig, tokens: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", tokens.url)
    await (await azure(rig)).text(HELLO)
    assert rig.keys_sent == [f"{len(tokens.asked):04}"]


async def test_calls_side_by_side_wait_for_one_request(
    rig: Rig, app_service: TokenEndpoint
) -> None:
    app_service.gate.clear()
    model = await azure(rig)
    calls = [asyncio.create_task(model.text(HELLO)) for _ in range(10)]
    await eventually(lambda: len(app_service.asked) == 1)
    calls[0].cancel()  # who asked first may leave; the others still get their token
    app_service.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, Completion) for result in results[1:]] == [True] * 9
    assert len(app_service.asked) == 1


async def test_token_is_renewed_without_delaying_calls(
    rig: Rig, app_service: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package lets half a minute pass between two requests; here they follow at once.
    monkeypatch.setattr("azure.identity._internal.utils.DEFAULT_TOKEN_REFRESH_RETRY_DELAY", -1)
    app_service.life_s = 100
    model = await azure(rig)
    await model.text(HELLO)
    app_service.gate.clear()
    app_service.life_s = 3600
    await model.text(HELLO)
    await eventually(lambda: len(app_service.asked) == 2)
    await model.text(HELLO)
    assert rig.keys_sent == ["0001", "0001", "0001"]
    app_service.gate.set()
    while rig.keys_sent[-1] != "0002":
        await model.text(HELLO)
    assert len(app_service.asked) == 2


async def test_waiting_for_token_ends_at_deadline(rig: Rig, app_service: TokenEndpoint) -> None:
    app_service.gate.clear()
    model = await azure(rig)
    deadlines.set_remaining(1.0)
    with pytest.raises(DeadlineExceeded):
        await model.text(HELLO)
    assert rig.server.calls == 0


async def test_refusing_token_endpoint_is_unavailable(rig: Rig, app_service: TokenEndpoint) -> None:
    app_service.status = 400
    with pytest.raises(ModelUnavailable) as caught:
        await (await azure(rig)).text(HELLO)
    assert caught.value.reason == "MODEL_IDENTITY_UNAVAILABLE"
    assert "secret" not in str(caught.value) + repr(caught.value.__context__)
    assert "secret" not in str(rig.telemetry.logs)
    assert rig.server.calls == 0


async def test_error_for_an_identity_without_the_role_names_it(
    rig: Rig, app_service: TokenEndpoint
) -> None:
    rig.server.knobs.fail_next(status=403)
    with pytest.raises(ModelNotConfigured, match="Cognitive Services OpenAI User"):
        await (await azure(rig)).text(HELLO)


async def test_without_the_extra_the_package_is_named(
    rig: Rig, app_service: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(ConfigurationError, match=r"bos-llm\[azure\]"):
        await (await azure(rig)).text(HELLO)
