"""What a host's robots.txt allows, kept for a while (RFC 9309)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protego import Protego

from bos_errors import BosError
from bos_http import HttpRefused

if TYPE_CHECKING:
    from bos_http import HttpClient

_MAX_ORIGINS = 1_024
_MAX_CHARS = 500 * 1024
"""RFC 9309, 2.5: at least 500 KiB have to be read; the rest is ignored."""
_MAX_LINES = 20_000
_MAX_LINE_CHARS = 2_048
_UNREACHABLE_TTL_S = 60.0
_EVERYTHING = "User-agent: *\nDisallow:\n"
_NOTHING = "User-agent: *\nDisallow: /\n"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the agent may read of an origin."""

    robots: Protego
    until: float
    product: str
    unreachable: bool = False

    def allow(self, url: str) -> bool:
        """Whether a page may be read."""
        return bool(self.robots.can_fetch(url, self.product))

    @property
    def crawl_delay_s(self) -> float:
        """Time between two requests that the host asks for; 0 where it asks for none."""
        delay = self.robots.crawl_delay(self.product)
        rate = self.robots.request_rate(self.product)
        spaced = rate.seconds / rate.requests if rate is not None and rate.requests else 0.0
        return max(0.0, float(delay or 0.0), float(spaced))


class RobotsCache:
    """Rules by origin, each fetched once however many ask for it at the same time.

    Args:
        http: Fetches them.
        user_agent: The agent's, whose first word is its name in robots.txt.
        ttl_s: How long they are kept.
        timeout_s: Time to fetch one.
    """

    def __init__(
        self, http: HttpClient, *, user_agent: str, ttl_s: float, timeout_s: float
    ) -> None:
        self._http = http
        self._product = user_agent.partition("/")[0].partition(" ")[0]
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._rules: OrderedDict[str, Rules] = OrderedDict()
        self._fetching: dict[str, asyncio.Task[Rules]] = {}

    async def rules(self, origin: str) -> Rules:
        """Rules of an origin such as ``https://example.org``.

        A host that has no robots.txt (4xx) allows everything; one whose robots.txt cannot be had
        (5xx, no answer) allows nothing, and is asked again after a minute.
        """
        kept = self._rules.get(origin)
        if kept is not None and kept.until > asyncio.get_running_loop().time():
            self._rules.move_to_end(origin)
            return kept
        task = self._fetching.get(origin)
        if task is None:
            task = self._fetching[origin] = asyncio.create_task(self._fetch(origin))
            task.add_done_callback(lambda _: self._fetching.pop(origin, None))
        # One who leaves must not take it from the others who wait.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what is still being fetched."""
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, origin: str) -> Rules:
        text, unreachable = await self._text(origin)
        robots = await asyncio.to_thread(Protego.parse, _bounded(text))
        ttl_s = min(_UNREACHABLE_TTL_S, self._ttl_s) if unreachable else self._ttl_s
        until = asyncio.get_running_loop().time() + ttl_s
        rules = Rules(robots, until, self._product, unreachable)
        self._rules[origin] = rules
        self._rules.move_to_end(origin)
        while len(self._rules) > _MAX_ORIGINS:
            self._rules.popitem(last=False)
        return rules

    async def _text(self, origin: str) -> tuple[str, bool]:
        """Its text, and whether it could not be had."""
        try:
            response = await self._http.request(
                "GET",
                f"{origin}/robots.txt",
                timeout_s=self._timeout_s,
                headers={"Accept": "text/plain, */*;q=0.1"},
            )
        except HttpRefused as error:
            # One that is too large or leads where nothing may be read; the page is checked alone.
            return (
                (_NOTHING, True)
                if error.rule.value.startswith("response_")
                else (_EVERYTHING, False)
            )
        except BosError:
            return _NOTHING, True
        if response.ok:
            return response.body[:_MAX_CHARS].decode("utf-8", "replace"), False
        if response.status == 429 or response.status >= 500:
            return _NOTHING, True
        return _EVERYTHING, False


def _bounded(text: str) -> str:
    """Lines that a parser can read in bounded time."""
    lines = text.splitlines()[:_MAX_LINES]
    return "\n".join(line[:_MAX_LINE_CHARS] for line in lines)
