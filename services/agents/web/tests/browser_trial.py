"""Pages that only scripts fill, in the real Chromium: `make test-web-browser`, not `make test`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from documents_trials.machine import needs

from bos_agentkit import AgentFailure
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_testkit.waiting import eventually
from bos_web.pages.browser import process
from bos_web.pages.reader import open_reader
from bos_web.settings import WebSettings

from .conftest import LOOPBACK, Site, html, serving_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bos_web.pages.reader import Reader

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

CHROMIUM = shutil.which("chromium") or ""
TEXT = "The carrier moves orchids within five working days of the order, by rail."
LATER = "Each late day costs two percent of the price."


@pytest.fixture(autouse=True)
def chromium() -> None:
    needs(
        bool(CHROMIUM),
        "chromium is not installed: as root, `make test-web-browser` installs it on Debian",
    )


def filled(script: str, body: str = "") -> str:
    """A page whose scripts have to bring its text; ``show(words)`` adds a paragraph."""
    return (
        f"<html><head><title>Filled</title></head><body><div id=app></div>{body}<script>"
        "function show(words) { const p = document.createElement('p'); p.textContent = words;"
        " document.getElementById('app').append(p); }\n"
        f"{script}</script></body></html>"
    )


SHOW = f"show({TEXT!r});"


@asynccontextmanager
async def reading(*sites: Site, **given: Any) -> AsyncIterator[Reader]:
    settings = WebSettings.load(
        server=ServerSettings(reflection=False),
        auth=AuthSettings.load(),
        **{
            "site_origins": {site.url: LOOPBACK for site in sites},
            "host_interval_s": 0,
            "browser": CHROMIUM,
            "browser_timeout_s": 60,
            "page_timeout_s": 60,
            **given,
        },
    )
    async with open_reader(settings, Telemetry.for_tests("web")) as reader:
        yield reader


async def text_of(site: Site, page: Any, *others: Site, **given: Any) -> str:
    url = site.add("/page", page)
    async with reading(site, *others, **given) as reader:
        return (await reader.read(url, within_s=100)).text


async def failure(site: Site, page: Any, *others: Site, **given: Any) -> AgentFailure:
    with pytest.raises(AgentFailure) as caught:
        await text_of(site, page, *others, **given)
    return caught.value


@asynccontextmanager
async def another_site(**pages: Any) -> AsyncIterator[Site]:
    served = {f"/{name}": page for name, page in pages.items()}
    async with serving_site(Site(pages=served)) as site:
        yield site


def browsers() -> list[str]:
    """Command lines of living processes that belong to browsers of this machine's agents."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if "bos-browser-" in line:
            found.append(line[:200])
    return found


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("bos-browser-*"))


@pytest.fixture(autouse=True)
def nothing_is_left(chromium: None) -> Iterator[None]:
    yield
    assert browsers() == []
    assert folders() == []


@pytest.mark.requirement("H-08")
async def test_page_that_scripts_fill_is_read_and_cited_by_its_address(site: Site) -> None:
    url = site.add("/page", filled(SHOW))
    async with reading(site) as reader:
        page = await reader.read(url, within_s=100)
    assert (page.url, page.title, page.text) == (url, "Filled", TEXT)
    # It was not fetched a second time for the browser.
    assert site.paths["/page"] == 1
