"""Pages that only scripts fill, in the real Chromium: `make test-web-browser`, not `make test`."""

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from documents_trials.machine import needs

from bos_agentkit import AgentFailure
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_testkit.waiting import eventually
from bos_web.pages.reader import Reader, open_reader

from .browser_processes import browsers, folders, is_supervisor, pids, states
from .web_servers import Site, html, serving_site, settings_of

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
    usual = {"browser": CHROMIUM, "browser_timeout_s": 60, "page_timeout_s": 60}
    settings = settings_of(*sites, **{**usual, **given})
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


@pytest.fixture(autouse=True)
def nothing_is_left(chromium: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A short path, which users without rights may pass: the browser is one of them.
    with tempfile.TemporaryDirectory(prefix="bos-trial-") as folder:
        Path(folder).chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", folder)
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


@pytest.mark.parametrize(
    "script",
    [
        f"setTimeout(() => {{ {SHOW} }}, 3000);",
        "fetch('/data.json').then(r => r.json()).then(d => show(d.text));",
        "const s = document.createElement('script'); s.src = '/more.js'; document.head.append(s);",
        f"for (let n = 0; n < 3; n++) alert('hello ' + n); confirm('sure?'); {SHOW}",
        f"{SHOW} setInterval(() => fetch('/data.json'), 100);",
    ],
    ids=["late", "data", "script", "dialogs", "polls"],
)
async def test_ways_in_which_scripts_fill_pages(script: str, site: Site) -> None:
    site.add("/data.json", lambda _: web.json_response({"text": TEXT}))
    site.add("/more.js", lambda _: web.Response(text=SHOW, content_type="text/javascript"))
    assert TEXT in await text_of(site, filled(script))


@pytest.mark.parametrize(
    "way",
    [
        "location.replace('/hop')",
        "const m = document.createElement('meta'); m.httpEquiv = 'refresh';"
        "m.content = '0;url=/next';"
        "document.head.append(m)",
    ],
    ids=["status", "meta"],
)
async def test_a_redirecting_page_is_cited_by_its_last_address(way: str, site: Site) -> None:
    site.add("/hop", lambda _: web.Response(status=302, headers={"Location": "/next"}))
    site.add("/next", filled(SHOW))
    url = site.add("/page", filled(way))
    async with reading(site) as reader:
        page = await reader.read(url, within_s=100)
    assert (page.url, page.text) == (f"{site.url}/next", TEXT)


async def test_browser_starts_only_if_needed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = site.add("/plain", html(f"<p>{TEXT}</p><p>{LATER}</p>" * 3))
    async with reading(site) as reader:
        renderer = reader._renderer

        async def refuse(*_: Any, **__: Any) -> Any:
            raise AssertionError("a browser was asked for")

        monkeypatch.setattr(renderer, "render", refuse)
        assert TEXT in (await reader.read(plain, within_s=60)).text


METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.mark.security
@pytest.mark.parametrize(
    "way",
    [
        "location.href = {to!r}",
        "const m = document.createElement('meta'); m.httpEquiv = 'refresh';"
        "m.content = '0;url=' + {to!r};"
        "document.head.append(m)",
        "location = '/away?' + {to!r}",
        "const f = document.createElement('form'); f.action = {to!r}; document.body.append(f);"
        "f.submit()",
    ],
    ids=["script", "meta", "status", "form"],
)
@pytest.mark.parametrize("inside", ["metadata", "loopback"])
async def test_pages_leading_inside_are_refused(way: str, inside: str, site: Site) -> None:
    async with another_site(secret="<p>secret of the canary</p>") as canary:
        to = METADATA if inside == "metadata" else f"{canary.url}/secret"
        site.add(
            "/away",
            lambda request: web.Response(status=302, headers={"Location": request.query_string}),
        )
        found = await failure(site, filled(way.format(to=to)))
        assert found.type == "PageRefused"
        assert canary.asked == []


@pytest.mark.security
@pytest.mark.parametrize(
    "script",
    [
        "fetch({to!r}, {{mode: 'no-cors'}})",
        "fetch({to!r}, {{method: 'POST', body: 'words'}})",
        "navigator.sendBeacon({to!r}, 'words')",
        "new WebSocket({to!r}.replace('http', 'ws'))",
        "new EventSource({to!r})",
        "new Image().src = {to!r}",
        "const s = document.createElement('script'); s.src = {to!r}; document.head.append(s)",
        "const f = document.createElement('iframe'); f.src = {to!r}; document.body.append(f)",
        "window.open({to!r}); window.open('javascript:fetch(\"' + {to!r} + '\")')",
        "const l = document.createElement('link'); l.rel = 'preconnect'; l.href = {to!r};"
        "document.head.append(l)",
        "const l = document.createElement('link'); l.rel = 'prefetch'; l.href = {to!r};"
        "document.head.append(l)",
        "new Worker(URL.createObjectURL(new Blob(['fetch(\"' + {to!r} + '\")'])))",
        "navigator.serviceWorker && navigator.serviceWorker.register('/worker.js')",
        "const c = new RTCPeerConnection({{iceServers: [{{urls: 'stun:127.0.0.1:{udp}'}}]}});"
        "c.createDataChannel('a'); c.createOffer().then(o => c.setLocalDescription(o))",
    ],
    ids=[
        *("fetch", "post", "beacon", "websocket", "events", "picture", "script", "frame", "window"),
        *("preconnect", "prefetch", "worker", "service worker", "webrtc"),
    ],
)
async def test_scripts_reach_no_other_server(script: str, site: Site) -> None:
    worker = web.Response(text="fetch('/x')", content_type="text/javascript")
    site.add("/worker.js", lambda _: worker)
    with canary_socket(socket.SOCK_STREAM) as tcp, canary_socket(socket.SOCK_DGRAM) as udp:
        to = f"http://127.0.0.1:{tcp.getsockname()[1]}/x"
        said = script.format(to=to, udp=udp.getsockname()[1])
        attempted = f"try {{ {said} }} catch (e) {{}} setTimeout(() => {{ {SHOW} }}, 2000);"
        assert TEXT in await text_of(site, filled(attempted))
        for canary in (tcp, udp):
            with pytest.raises(BlockingIOError):
                canary.accept() if canary is tcp else canary.recv(100)
    assert site.paths["/worker.js"] == 0


@contextmanager
def canary_socket(kind: socket.SocketKind) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, kind) as canary:
        canary.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            canary.listen()
        canary.setblocking(False)
        yield canary


@pytest.mark.security
async def test_files_of_the_machine_are_not_shown(site: Site) -> None:
    file = "<iframe src='file:///etc/passwd'></iframe><object data='file:///etc/passwd'></object>"
    script = f"{SHOW} fetch('file:///etc/passwd').then(r => r.text()).then(show, () => 0);"
    text = await text_of(site, filled(script, file))
    assert TEXT in text
    assert "root:" not in text
    plain = await text_of(site, filled(f"{SHOW} location = 'file:///etc/passwd'"))
    assert plain == TEXT


@pytest.mark.security
async def test_robots_txt_is_asked_for_pages_that_scripts_lead_to(site: Site) -> None:
    robots = "User-agent: *\nDisallow: /private"
    site.add("/robots.txt", lambda _: web.Response(text=robots))
    site.add("/private", filled(SHOW))
    found = await failure(site, filled("location = '/private'"))
    assert (found.type, site.paths["/private"]) == ("RobotsDisallow", 0)


@pytest.mark.security
@pytest.mark.parametrize(
    ("script", "given", "types"),
    [
        ("while (true) {}", {"browser_timeout_s": 8}, {"PageTimedOut"}),
        ("while (true) alert('again')", {"browser_timeout_s": 8}, {"PageTimedOut"}),
        (
            "for (let n = 0; n < 200000; n++) document.body.append(document.createElement('b'))",
            {},
            {"PageUnreadable"},
        ),
        ("show('a'.repeat(5000000))", {}, {"PageUnreadable"}),
        (
            "const all = []; while (true) all.push(new Array(1000000).fill(all.length + 0.5))",
            {},
            {"PageUnreadable", "PageTimedOut"},
        ),
        ("location = '/page?' + Math.random()", {}, {"PageRefused"}),
    ],
    ids=["endless", "endless dialogs", "nodes", "words", "heap", "circles"],
)
async def test_pages_without_end_are_ended(
    script: str, given: dict[str, Any], types: set[str], site: Site
) -> None:
    good = site.add("/good", filled(SHOW))
    url = site.add("/page", filled(script))
    async with reading(site, **given) as reader:
        with pytest.raises(AgentFailure) as caught:
            await reader.read(url, within_s=100)
        assert caught.value.type in types
        assert browsers() == []
        assert (await reader.read(good, within_s=100)).text == TEXT


async def hanging(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def reading_hanging_page(reader: Reader, site: Site) -> asyncio.Task[Any]:
    """A page that a browser shows, and that waits for an answer."""
    site.add("/hangs", hanging)
    url = site.add("/page", filled("fetch('/hangs')"))
    task = asyncio.create_task(reader.read(url, within_s=100))
    await eventually(lambda: site.paths["/hangs"] == 1, within_s=60)
    return task


async def test_cancelled_reading_leaves_no_process_and_no_folder(site: Site) -> None:
    async with reading(site) as reader:
        task = await reading_hanging_page(reader, site)
        assert browsers() != []
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (browsers(), folders()) == ([], [])


async def test_browser_that_dies_fails_the_page_and_not_the_next_one(site: Site) -> None:
    good = site.add("/good", filled(SHOW))
    async with reading(site) as reader:
        task = await reading_hanging_page(reader, site)
        for pid in pids("--remote-debugging-pipe"):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(AgentFailure) as caught:
            await task
        assert caught.value.type == "PageUnreadable"
        assert (await reader.read(good, within_s=100)).text == TEXT


async def test_killed_supervisor_takes_the_browser_with_it(site: Site) -> None:
    async with reading(site) as reader:
        task = await reading_hanging_page(reader, site)
        for pid in pids("supervisor.py"):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(AgentFailure):
            await task
        await eventually(lambda: browsers() == [], within_s=60)


async def test_browser_runs_sandboxed_without_network_and_not_as_root(site: Site) -> None:
    async with reading(site) as reader:
        task = await reading_hanging_page(reader, site)
        inside = [pid for pid in pids("--remote-debugging-pipe") if not is_supervisor(pid)]
        assert inside
        for pid in inside:
            state = Path(f"/proc/{pid}/status").read_text()  # noqa: ASYNC240
            assert "NoNewPrivs:\t1" in state
            assert "Uid:\t0" not in state
            assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
            routes = Path(f"/proc/{pid}/net/route").read_text().splitlines()  # noqa: ASYNC240
            assert not routes[1:]
        renderers = [line for line in states("--type=renderer") if "Seccomp:\t2" in line]
        assert renderers
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_broken_browser_fails_the_start_of_the_agent(tmp_path: Path, site: Site) -> None:
    broken = tmp_path / "browser"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    tmp_path.chmod(0o755)  # noqa: ASYNC240
    with pytest.raises(ConfigurationError, match="BOS_WEB_BROWSER_SANDBOX=container"):
        async with reading(site, browser=str(broken)):
            pass


async def test_container_as_sandbox_reaches_no_other_server(site: Site) -> None:
    with canary_socket(socket.SOCK_STREAM) as tcp, canary_socket(socket.SOCK_DGRAM) as udp:
        to = f"http://127.0.0.1:{tcp.getsockname()[1]}/x"
        script = (
            f"new WebSocket({to!r}.replace('http', 'ws')); fetch({to!r}); new EventSource({to!r});"
            "const c = new RTCPeerConnection({iceServers: [{urls: "
            f"'stun:127.0.0.1:{udp.getsockname()[1]}'}}]}}); c.createDataChannel('a');"
            "c.createOffer().then(o => c.setLocalDescription(o));"
            f"setTimeout(() => {{ {SHOW} }}, 2000);"
        )
        assert TEXT in await text_of(site, filled(script), browser_sandbox="container")
        for canary in (tcp, udp):
            with pytest.raises(BlockingIOError):
                canary.accept() if canary is tcp else canary.recv(100)
