"""A site and a search API on loopback whose replies tests set."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from aiohttp import web

from bos_chassis.settings import AuthSettings, ServerSettings
from bos_web.settings import WebSettings

LOOPBACK = (ip_network("127.0.0.0/8"),)
Answer = web.StreamResponse | str | bytes


def html(body: str, title: str = "A page") -> str:
    return (
        f"<html><head><title>{title}</title><script>var tracked = 1</script></head><body>"
        "<nav><a href='/'>Home</a> <a href='/login'>Sign in</a></nav>"
        f"<main><article><h1>{title}</h1>{body}</article></main>"
        "<footer>All rights reserved. Subscribe to our newsletter.</footer></body></html>"
    )


@dataclass
class Site:
    url: str = ""
    pages: dict[str, Answer | Callable[[web.Request], Any]] = field(default_factory=dict)
    asked: list[web.Request] = field(default_factory=list)

    @property
    def paths(self) -> Counter[str]:
        return Counter(request.path for request in self.asked)

    def add(self, path: str, answer: Answer | Callable[[web.Request], Any]) -> str:
        self.pages[path] = answer
        return self.url + path

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        answer = self.pages.get(request.path)
        if callable(answer):
            answer = answer(request)
            if hasattr(answer, "__await__"):
                answer = await answer
        if answer is None:
            return web.Response(status=404)
        if isinstance(answer, str):
            return web.Response(text=answer, content_type="text/html")
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="text/html")
        return answer


@asynccontextmanager
async def serving_site(site: Site) -> AsyncIterator[Site]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, "127.0.0.1", 0)
        await listening.start()
        host, port = runner.addresses[0][:2]
        site.url = f"http://{host}:{port}"
        yield site
    finally:
        await runner.cleanup()


@dataclass
class SearchApi:
    """A search API of any provider's shape: replies what tests set, records what it is asked."""

    reply: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    then: tuple[int, Any] | None = None
    """Status and reply from the second request on."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        seen = {"method": request.method, "query": dict(request.query), "body": body}
        self.requests.append({**seen, "headers": dict(request.headers), "path": request.path})
        status, reply = self.status, self.reply
        if self.then is not None and len(self.requests) > 1:
            status, reply = self.then
        if self.raw is not None:
            return web.Response(body=self.raw, status=status, headers=self.headers)
        return web.json_response(reply, status=status, headers=self.headers)


def tavily(*results: Mapping[str, Any], answer: str = "") -> dict[str, Any]:
    said = {"query": "q", "images": [], "results": list(results), "response_time": 0.1}
    return {**said, "answer": answer} if answer else said


def settings_of(*sites: Site, **given: Any) -> WebSettings:
    return WebSettings.load(
        server=ServerSettings(reflection=False),
        auth=AuthSettings.load(),
        **{"site_origins": {site.url: LOOPBACK for site in sites}, "host_interval_s": 0, **given},
    )
