"""The short way of a reply changes nothing about what arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from bos_llm import Completion, user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
