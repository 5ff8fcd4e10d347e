"""The short way of a reply changes nothing about what arrives."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bos_llm import Completion, user
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

    application = web.Application()
    application.router.add_post("/old/{rest:.*}", redirect)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}/old"
    await runner.cleanup()


async def test_redirects_are_followed(rig: Any, moved: str) -> None:
    completion = await (await rig.model(base_url=moved)).text(HELLO)
    assert completion.text == "Good day to you, dear reader."


async def test_redirects_of_streams_are_followed(rig: Any, moved: str) -> None:
    items = [item async for item in (await rig.model(base_url=moved)).stream(HELLO)]
    assert isinstance(items[-1], Completion)
    assert items[-1].text == "Good day to you, dear reader."


async def test_the_key_is_sent_with_every_call(rig: Any) -> None:
    model = await rig.model()
    await model.text(HELLO)
    await model.text(HELLO)
    assert [one.headers["authorization"] for one in rig.server.requests] == ["***", "***"]


@pytest.fixture
async def by_tls(rig: Any, tmp_path: Path) -> AsyncIterator[str]:
    """The scripted endpoint behind a certificate of ``tmp_path / "ca.pem"``."""

    async def forward(request: web.Request) -> web.Response:
        location = f"{rig.server.base_url}{request.path}"
        return web.Response(status=307, headers={"location": location})

    files = Authority(tmp_path).issue("model")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(files.cert_file), str(files.key_file))
    application = web.Application()
    application.router.add_post("/{rest:.*}", forward)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_endpoint_of_an_unknown_authority_is_refused_until_the_environment_names_it(
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


async def test_endpoints_share_a_context_that_checks_certificates_and_names() -> None:
    async with ModelHttpClient() as one, ModelHttpClient() as other:
        contexts = [client._transport.ssl_context for client in (one, other)]
    assert contexts[0] is contexts[1]
    assert contexts[0].verify_mode is ssl.CERT_REQUIRED
    assert contexts[0].check_hostname
