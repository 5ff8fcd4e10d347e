"""Pages read by their address: text, charset, media types, robots.txt, turns, hostile ones."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from bos_agentkit import AgentFailure
from bos_chassis.telemetry import Telemetry
from bos_web.pages.charset import decoded
from bos_web.pages.extraction import Extraction
from bos_web.pages.hosts import HostTurns, TooSlow
from bos_web.pages.reader import Reader, open_reader

from .web_servers import Site, html, serving_site, settings_of

TEXT = "The carrier moves orchids within five working days of the order, by rail."


@asynccontextmanager
async def reading(site: Site, **given: Any) -> AsyncIterator[Reader]:
    async with open_reader(settings_of(site, **given), Telemetry.for_tests("web")) as reader:
        yield reader


async def failure(reader: Reader, url: str) -> AgentFailure:
    with pytest.raises(AgentFailure) as caught:
        await reader.read(url, within_s=20)
    return caught.value


ARTICLE = html(f"<p>{TEXT}</p><h2>Delay</h2><p>Each late day costs two percent.</p>")
TABLE = html(
    "<p>Index.</p><table><tr><th>Month</th><th>Index</th></tr>"
    + "".join(f"<tr><td>2026-0{n}</td><td>{100 + n * 1.5}</td></tr>" for n in range(1, 7))
    + "</table>"
)
SOUP = (
    "<html><body><div><div class=menu><a href=x>Home</a></div><div>Konark opens a works in Nashik."
    "</div><div>It will make 40,000 pumps a year from 2027 on.</div></div></body></html>"
)
DEFINED = html("<dl><dt>Head</dt><dd>42 m</dd><dt>Power</dt><dd>7.5 kW</dd></dl>")
COMMENTED = html(f"<p>{TEXT}</p><div class='comments'><p>Buy my pills</p></div>")


@pytest.mark.requirement("H-04")
@pytest.mark.parametrize(
    ("page", "held", "left_out"),
    [
        (ARTICLE, [TEXT, "Delay", "two percent"], ["Sign in", "newsletter", "tracked"]),
        (TABLE, ["| Month | Index", "| 2026-03 | 104.5"], ["Sign in", "newsletter"]),
        (SOUP, ["Nashik", "40,000 pumps"], []),
        (DEFINED, ["42 m", "7.5 kW"], ["newsletter"]),
        (COMMENTED, [TEXT], ["Buy my pills"]),
    ],
    ids=["article", "table", "soup", "definitions", "comments"],
)
async def test_text_of_pages_is_found_without_its_surroundings(
    page: str, held: list[str], left_out: list[str], site: Site
) -> None:
    url = site.add("/page", page)
    async with reading(site) as reader:
        found = await reader.read(url, within_s=20)
    assert [words for words in held if words not in found.text] == [], found.text
    assert [words for words in left_out if words in found.text] == [], found.text


async def test_hidden_text_is_left_out(site: Site) -> None:
    hidden = (
        f"<p>{TEXT}</p><p hidden>unseen one</p><p style='display: none'>unseen two</p>"
        "<p style='font-size:0px'>unseen three</p><p style='visibility:hidden'>unseen four</p>"
        "<!-- unseen five --><script>unseen six</script><template>unseen seven</template>"
    )
    url = site.add("/page", html(hidden))
    async with reading(site) as reader:
        found = await reader.read(url, within_s=20)
    assert TEXT in found.text
    assert "unseen" not in found.text


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("Grüße".encode(), "text/html", "Grüße"),
        ("“Grüße”".encode("cp1252"), "text/html; charset=iso-8859-1", "“Grüße”"),
        (b"<meta charset=windows-1251>" + "Привет".encode("cp1251"), "text/html", "Привет"),
        ("Grüße".encode("cp1252"), "text/html", "Grüße"),
        ("Grüße".encode("utf-16"), "text/html; charset=latin-1", "Grüße"),
        (b"<meta charset=utf-16>Gr\xc3\xbc\xc3\x9fe", "text/html", "Grüße"),
        (b"\xff\xfe\x00", "text/html", "\ufffd"),
        (b"", "", ""),
    ],
)
def test_bytes_are_decoded_as_browsers_do(body: bytes, content_type: str, text: str) -> None:
    assert decoded(body, content_type).endswith(text)


@pytest.mark.parametrize(
    ("answer", "type"),
    [
        (web.Response(body=b"%PDF-1.7", content_type="application/pdf"), "PageTypeUnsupported"),
        (web.Response(status=404), "PageMissing"),
        (web.Response(status=503), "PageUnavailable"),
        (web.Response(text="", content_type="text/html"), "PageUnreadable"),
        (html("<script>render()</script><div id='app'></div>", ""), "PageUnreadable"),
    ],
)
async def test_pages_that_cannot_be_read_say_why(answer: Any, type: str, site: Site) -> None:
    url = site.add("/page", answer if isinstance(answer, str) else lambda _: answer)
    async with reading(site) as reader:
        found = await failure(reader, url)
    assert found.type == type
    assert found.message.endswith(".")
    assert site.url not in found.message


async def test_plain_text_is_read_as_it_is(site: Site) -> None:
    served = web.Response(body=b"a < b\n\n\n\nc", content_type="text/plain")
    url = site.add("/notes.txt", lambda _: served)
    async with reading(site) as reader:
        found = await reader.read(url, within_s=20)
    assert (found.title, found.text) == ("notes.txt", "a < b\n\nc")


@pytest.mark.parametrize(
    ("robots", "path", "allowed"),
    [
        ("User-agent: *\nDisallow: /private", "/private/a", False),
        ("User-agent: *\nDisallow: /private", "/public", True),
        ("User-agent: bos-web\nDisallow: /\n\nUser-agent: *\nAllow: /", "/public", False),
        ("\x00\xff not robots " * 500, "/public", True),
        (404, "/public", True),
        (500, "/public", False),
    ],
)
async def test_robots_txt_is_respected(robots: Any, path: str, allowed: bool, site: Site) -> None:
    given = {"text": robots} if isinstance(robots, str) else {"status": robots}
    site.add("/robots.txt", lambda _: web.Response(**given))
    url = site.add(path, ARTICLE)
    async with reading(site) as reader:
        if allowed:
            assert TEXT in (await reader.read(url, within_s=20)).text
        else:
            assert (await failure(reader, url)).type == "RobotsDisallow"
    assert site.paths[path] == int(allowed)


async def test_robots_txt_applies_to_the_target_of_a_redirect(site: Site) -> None:
    site.add("/robots.txt", lambda _: web.Response(text="User-agent: *\nDisallow: /private"))
    site.add("/private", ARTICLE)
    url = site.add("/open", lambda _: web.Response(status=302, headers={"Location": "/private"}))
    async with reading(site) as reader:
        assert (await failure(reader, url)).type == "RobotsDisallow"


async def test_crawl_delay_that_there_is_no_time_for_is_said(site: Site) -> None:
    site.add("/robots.txt", lambda _: web.Response(text="User-agent: *\nCrawl-delay: 3600"))
    first, second = site.add("/1", ARTICLE), site.add("/2", ARTICLE)
    async with reading(site, max_crawl_delay_s=3600) as reader:
        await reader.read(first, within_s=20)
        found = await failure(reader, second)
    assert (found.type, found.retryable) == ("PageTimedOut", True)
    assert site.paths["/2"] == 0


async def test_turns_of_a_host_are_apart_and_of_other_hosts_are_not() -> None:
    turns = HostTurns(interval_s=60, at_once=2)
    async with turns.turn("a:80", delay_s=0, within_s=1):
        pass
    with pytest.raises(TooSlow):
        async with turns.turn("a:80", delay_s=0, within_s=5):
            pass
    async with turns.turn("b:80", delay_s=0, within_s=1):
        pass


async def test_at_most_so_many_requests_reach_a_host_at_once(site: Site) -> None:
    now = peak = 0
    pair = asyncio.Barrier(2)

    async def slow(_: web.Request) -> web.Response:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await pair.wait()
        now -= 1
        return web.Response(text=ARTICLE, content_type="text/html")

    urls = [site.add(f"/{n}", slow) for n in range(8)]
    async with reading(site, host_requests=2, user_agent="acme/1") as reader:
        await asyncio.gather(*(reader.read(url, within_s=30) for url in urls))
    assert peak == 2
    assert site.paths["/robots.txt"] == 1
    assert {each.headers["User-Agent"] for each in site.asked} == {"acme/1"}


def _gzipped(_: web.Request) -> web.Response:
    bomb = gzip.compress(b"<p>" + b"0" * 40_000_000)
    return web.Response(body=bomb, content_type="text/html", headers={"Content-Encoding": "gzip"})


@pytest.mark.security
@pytest.mark.parametrize(
    "answer",
    [
        lambda _: web.Response(body=b"x" * 4_000_000, content_type="text/html"),
        _gzipped,
        lambda _: web.Response(status=302, headers={"Location": "/page"}),
    ],
    ids=["large", "bomb", "in circles"],
)
async def test_hostile_answers_are_refused(answer: Any, site: Site) -> None:
    url = site.add("/page", answer)
    async with reading(site) as reader:
        assert (await failure(reader, url)).type == "PageRefused"


@pytest.mark.security
@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 200_000 + TEXT,
        "<p>" + "a" * 2_000_000,
        "<!DOCTYPE x [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]><p>&b;</p>" + f"<p>{TEXT}</p>",
        "<p>\x00\x01\x02</p>" + f"<p>{TEXT}</p>",
    ],
    ids=["deep", "one word", "entities", "control"],
)
async def test_hostile_pages_end_and_the_next_page_is_read(page: str, site: Site) -> None:
    hostile, good = site.add("/page", page), site.add("/good", ARTICLE)
    async with reading(site, extraction_timeout_s=5) as reader:
        try:
            found = await reader.read(hostile, within_s=20)
        except AgentFailure as error:
            assert error.type in ("PageUnreadable", "PageTimedOut")  # noqa: PT017
        else:
            assert len(found.text) <= 20_000
        assert TEXT in (await reader.read(good, within_s=20)).text


async def test_a_slow_process_is_ended_and_replaced() -> None:
    async with Extraction(timeout_s=20, memory_bytes=2**30) as extraction:
        assert TEXT in (await extraction.readable(ARTICLE, max_chars=1_000)).text
        first = extraction._process
        extraction._timeout_s = 0
        with pytest.raises(AgentFailure):
            await extraction.readable(ARTICLE, max_chars=1_000)
        assert first.returncode is not None
        extraction._timeout_s = 20
        assert TEXT in (await extraction.readable(ARTICLE, max_chars=1_000)).text
        last = extraction._process
    assert last.returncode is not None


@pytest.mark.security
async def test_site_of_another_port_is_no_site_that_was_named(site: Site) -> None:
    async with serving_site(Site(pages={"/page": ARTICLE})) as other, reading(site) as reader:
        assert (await failure(reader, f"{other.url}/page")).type == "PageRefused"
        assert other.asked == []
