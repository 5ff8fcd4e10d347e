"""The short way of a reply changes nothing about what arrives."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from serving import served

from bos_llm import user
from bos_llm.endpoints.transport import ModelHttpClient
from bos_llm.errors import ModelUnavailable
from bos_testkit.certificates import Authority

HELLO = [user("hello")]


@pytest.fixture
async def moved(rig: Any) -> AsyncIterator[str]:
    """An address whose every call is redirected to the scripted endpoint."""

    async def redirect(request: web.Request) -> web.Response:
        location = f"{rig.server.base_url}{request.path.removeprefix('/old')}"
        return web.Response(status=307, headers={"location": location})

    async with served(web.post("/old/{rest:.*}", redirect)) as url:
        yield f"{url}/old"


async def test_redirects_are_followed(rig: Any, moved: str) -> None:
    completion = await (await rig.model(base_url=moved)).text(HELLO)
    assert completion.text == "Good day to you, dear reader."
    items = [item async for item in (await rig.model(base_url=moved)).stream(HELLO)]
    assert items[-1].text == completion.text


@pytest.fixture
async def by_tls(rig: Any, tmp_path: Path) -> AsyncIterator[str]:
    """The scripted endpoint behind a certificate of ``tmp_path / "ca.pem"``."""

    async def forward(request: web.Request) -> web.Response:
        location = f"{rig.server.base_url}{request.path}"
        return web.Response(status=307, headers={"location": location})

    files = Authority(tmp_path).issue("model")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(files.cert_file), str(files.key_file))
    async with served(web.post("/{rest:.*}", forward), tls=context) as url:
        yield url


async def test_unknown_authority_is_refused_until_it_is_named(
    rig: Any, by_tls: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelUnavailable):
        await (await rig.model(base_url=by_tls, max_attempts=1)).text(HELLO)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    completion = await (await rig.model(base_url=by_tls)).text(HELLO)
    assert completion.text == "Good day to you, dear reader."
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ModelUnavailable):
        await (await rig.model(base_url=by_tls, max_attempts=1)).text(HELLO)


async def test_endpoints_share_a_context_that_checks_certificates() -> None:
    async with ModelHttpClient() as one, ModelHttpClient() as other:
        contexts = [client._transport.ssl_context for client in (one, other)]
    assert contexts[0] is contexts[1]
    assert contexts[0].verify_mode is ssl.CERT_REQUIRED
    assert contexts[0].check_hostname
