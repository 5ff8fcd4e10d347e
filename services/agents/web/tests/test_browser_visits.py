"""What a page shown in a browser may load; decided by the agent, so without a browser here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bos_agentkit import AgentFailure
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_http import HttpClient, HttpResponse
from bos_web.pages.browser.visit import Asked, Visit, VisitLimits
from bos_web.pages.reader import open_reader

from .web_servers import Site, html, serving_site, settings_of

ANYWHERE = "https://pages.example.org/a"


@asynccontextmanager
async def visiting(
    site: Site, at: str = "", *, requests: int = 50, total_bytes: int = 100_000
) -> AsyncIterator[Visit]:
    """A visit of the site's first page, which was fetched before."""
    settings = settings_of(site)
    async with HttpClient(settings.site_policy(), Telemetry.for_tests("web")) as http:

        async def fetch(url: str) -> HttpResponse:
            return await http.request("GET", url, follow_redirects=False)

        first = HttpResponse(200, {"Content-Type": "text/html"}, b"first", at or site.url + "/", 0)
        limits = VisitLimits(requests, total_bytes)
        yield Visit(first, http, fetch, settings.site_policy().internal_origins, limits)


@pytest.mark.requirement("H-08")
async def test_the_page_and_its_data_are_fetched_once(site: Site) -> None:
    site.add("/data.json", web.json_response({"rows": 3}))
    async with visiting(site) as visit:
        page = await visit.answer(Asked("GET", site.url + "/", "Document"))
        data = await visit.answer(Asked("GET", site.url + "/data.json", "Fetch"))
        assert visit.arrived(site.url + "/#top") == site.url + "/"
    assert page.body == b"first"
    assert data.body == b'{"rows": 3}'
    assert dict(site.paths) == {"/data.json": 1}


async def test_nothing_is_sent_but_requests_to_read(site: Site) -> None:
    async with visiting(site) as visit:
        assert await visit.answer(Asked("POST", site.url + "/data", "Fetch")) is None
        assert visit.refused == 1
    assert not site.asked


@pytest.mark.parametrize(
    ("kind", "of_page", "loaded"),
    [
        *((kind, True, True) for kind in ("Document", "Fetch")),
        *((kind, True, False) for kind in ("Image", "WebSocket", "")),
        ("Document", False, False),
        ("Script", False, True),
    ],
)
async def test_only_text_is_loaded(kind: str, of_page: bool, loaded: bool, site: Site) -> None:
    site.add("/part", "part")
    async with visiting(site) as visit:
        answer = await visit.answer(Asked("GET", site.url + "/part", kind, of_page))
    assert (answer is not None) is loaded
    assert site.paths["/part"] == int(loaded)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "data:text/html,x",
        "http://user:word@example.org/",
        "",
    ],
)
async def test_no_page_leads_where_pages_may_not_be_read(url: str, site: Site) -> None:
    async with visiting(site) as visit:
        assert await visit.answer(Asked("GET", url, "Document")) is None
        assert visit.failure.type == "PageRefused"


async def test_inside_and_outside_load_nothing_from_each_other(site: Site) -> None:
    site.add("/secret", "secret")
    async with visiting(site) as inside:
        assert await inside.answer(Asked("GET", ANYWHERE, "Fetch")) is None
    async with visiting(site, ANYWHERE) as outside:
        assert await outside.answer(Asked("GET", site.url + "/secret", "Fetch")) is None
        assert await outside.answer(Asked("GET", site.url + "/secret", "Document")) is None
    assert not site.asked


@pytest.mark.parametrize(
    ("limits", "answered"),
    [({"requests": 2}, 2), ({"total_bytes": 2_000}, 2), ({"total_bytes": 1_999}, 1)],
)
async def test_page_load_is_bounded(limits: dict[str, int], answered: int, site: Site) -> None:
    site.add("/data", b"x" * 1_000)
    async with visiting(site, **limits) as visit:
        asked = [Asked("GET", site.url + "/data", "Fetch")] * 3
        answers = [await visit.answer(each) for each in asked]
    assert sum(answer is not None for answer in answers) == answered


async def test_bytes_are_bounded_also_for_what_is_asked_at_once(site: Site) -> None:
    site.add("/data", lambda _: web.Response(body=b"x" * 1_000))
    async with visiting(site, total_bytes=5_000, requests=100) as visit:
        asked = [Asked("GET", f"{site.url}/data?{n}", "Fetch") for n in range(60)]
        answers = await asyncio.gather(*(visit.answer(each) for each in asked))
    assert sum(answer is not None for answer in answers) == 5
    # Six are fetched at once; none is begun after there was too much.
    assert site.paths["/data"] <= 11


async def test_a_page_that_leads_on_and_on_is_ended(site: Site) -> None:
    site.add("/next", "next")
    async with visiting(site) as visit:
        hops = [Asked("GET", site.url + "/next", "Document")] * 7
        answers = [await visit.answer(each) for each in hops]
        assert [answer is not None for answer in answers] == [True] * 6 + [False]
        assert visit.failure.type == "PageRefused"


async def test_cookies_do_not_reach_the_browser(site: Site) -> None:
    headers = {"Set-Cookie": "a=b", "Server": "x", "Content-Security-Policy": "default-src 'self'"}
    site.add("/data", web.Response(text="data", headers=headers))
    async with visiting(site) as visit:
        answer = await visit.answer(Asked("GET", site.url + "/data", "Fetch"))
    names = {name.lower() for name, _ in answer.headers}
    assert names == {"content-type", "content-security-policy"}


async def test_an_address_that_no_page_was_loaded_from_is_not_cited(site: Site) -> None:
    async with serving_site(Site()) as other, visiting(site) as visit:
        await visit.answer(Asked("GET", site.url + "/", "Document"))
        for url in (other.url + "/", "about:blank", "https://elsewhere.example.org/"):
            with pytest.raises(AgentFailure) as caught:
                visit.arrived(url)
            assert caught.value.type == "PageRefused"


async def test_without_a_browser_the_error_names_the_setting(site: Site) -> None:
    url = site.add("/page", html("<script>render()</script><div id='app'></div>", ""))
    async with open_reader(settings_of(site), Telemetry.for_tests("web")) as reader:
        with pytest.raises(AgentFailure, match="BOS_WEB_BROWSER") as caught:
            await reader.read(url, within_s=60)
    assert caught.value.type == "PageUnreadable"


@pytest.mark.parametrize("program", ["chromium", "/nowhere/chromium"])
async def test_a_browser_that_is_not_there_fails_the_start(program: str, site: Site) -> None:
    with pytest.raises(ConfigurationError, match="BOS_WEB_BROWSER names no program"):
        async with open_reader(settings_of(site, browser=program), Telemetry.for_tests("web")):
            pass
