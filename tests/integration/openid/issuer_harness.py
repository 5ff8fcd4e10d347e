"""A real OpenID provider in a process of its own, and a person in front of its pages."""

from __future__ import annotations

import html
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urljoin, urlsplit

import aiohttp

ROOT = Path(__file__).parents[3]
INSTALLED = ROOT / ".cache" / "openid-issuer"
CALLBACK = "http://127.0.0.1:49152/callback"
"""An address without a server: the user's browser stops there."""
_FORM = re.compile(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_INPUT = re.compile(r"<input[^>]*>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Issuer:
    url: str

    async def knows(self, subject: str, **claims: Any) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{self.url}/test/people/{quote(subject)}", json=claims) as response,
        ):
            assert response.status == 204

    async def forgets(self) -> None:
        """Forget the claims of all people."""
        async with (
            aiohttp.ClientSession() as session,
            session.delete(f"{self.url}/test/people") as response,
        ):
            assert response.status == 204

    @asynccontextmanager
    async def person(self, subject: str) -> AsyncIterator[Person]:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            yield Person(session, subject)


@dataclass(frozen=True)
class Person:
    """Fills in every form that a page shows, until there is none, or the browser leaves."""

    session: aiohttp.ClientSession
    subject: str

    async def signs_in(self, url: str, leave_at: str = CALLBACK) -> dict[str, str]:
        """Sign in from this address on; the parameters that the browser comes back with."""
        came_back, _ = await self._browse(url, leave_at)
        assert came_back is not None, "the provider did not send the browser back"
        return came_back

    async def types_the_code(self, url: str) -> str:
        """Sign in on another device than the client's; the last page."""
        _, page = await self._browse(url, "nowhere:")
        return page

    async def _browse(self, url: str, leave_at: str) -> tuple[dict[str, str] | None, str]:
        fields: dict[str, str] | None = None
        for _ in range(40):
            if url.startswith(leave_at):
                found = parse_qs(urlsplit(url).query)
                return {name: values[0] for name, values in found.items()}, ""
            method = "GET" if fields is None else "POST"
            async with self.session.request(
                method, url, data=fields, allow_redirects=False
            ) as response:
                page, location = await response.text(), response.headers.get("Location")
            fields = None
            if location is not None:
                url = urljoin(url, location)
                continue
            form = _FORM.search(page)
            if form is None:
                return None, page
            url = urljoin(url, html.unescape(form[1])) if form[1] else url
            fields = self._filled_in(form[2])
        raise AssertionError("the provider's pages do not end")

    def _filled_in(self, form: str) -> dict[str, str]:
        fields = {}
        for field in _INPUT.findall(form):
            attributes = dict(_ATTRIBUTE.findall(field))
            if "name" in attributes:
                fields[attributes["name"]] = html.unescape(attributes.get("value", ""))
        if "login" in fields:
            fields |= {"login": self.subject, "password": "anything"}
        return fields


@contextmanager
def running_issuer(folder: Path) -> Iterator[Issuer]:
    assert (INSTALLED / ".installed").exists(), (
        f"{INSTALLED} does not hold the OpenID provider that these tests sign in by; "
        "run `make openid-issuer` once."
    )
    script = folder / "server.mjs"
    script.write_bytes((Path(__file__).parent / "issuer" / "server.mjs").read_bytes())
    (folder / "node_modules").symlink_to(INSTALLED / "node_modules")
    with subprocess.Popen(
        ("node", str(script)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            while not (line := process.stdout.readline()).startswith("ISSUER "):
                assert line, "the OpenID provider ended before it listened"
            yield Issuer(line.split()[1])
        finally:
            process.kill()
