"""Renders pages by Chromium, each in a browser of its own that is ended with it."""

from __future__ import annotations

import asyncio
import os
import time

from bos_agentkit import AgentFailure
from bos_chassis.metrics import current_exemplar
from bos_chassis.telemetry import Telemetry
from bos_errors import AgentErrorType, ConfigurationError
from bos_web.metrics import BrowserMetrics
from bos_web.pages.browser.devtools import BrowserGone, CallFailed
from bos_web.pages.browser.process import Launch, Running, running_browser
from bos_web.pages.browser.supervisor import NO_NAMESPACES
from bos_web.pages.browser.tab import Rendered, Tab
from bos_web.pages.browser.visit import Visit
from bos_web.settings import WebSettings

_START_S = 30.0
_FOR_READING = 0.25
"""Share of the time reserved for reading the page's content."""


class Renderer:
    """Shows pages in browsers, a few at once.

    Args:
        settings: With a browser set.
        telemetry: Of this service.
    """

    def __init__(self, settings: WebSettings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._log = telemetry.logger("bos_web.browser")
        self._launch = Launch(
            program=settings.browser,
            namespaces=settings.browser_sandbox == "namespaces",
            memory_bytes=settings.browser_memory_bytes,
            user_agent=settings.user_agent,
        )
        self._places = asyncio.Semaphore(settings.browser_pages)
        self._metrics = BrowserMetrics.of(telemetry.registry)

    async def check(self) -> None:
        """Start a browser once and log its version.

        Raises:
            ConfigurationError: It is not there, does not start, or has no sandbox here.
        """
        program = self._settings.browser
        if not os.path.isabs(program) or not os.access(program, os.X_OK):
            raise ConfigurationError(
                "BOS_WEB_BROWSER names no program; set it to the path of Chromium, such as "
                "/usr/bin/chromium, or unset it."
            )
        async with running_browser(self._launch) as running:
            try:
                async with asyncio.timeout(_START_S):
                    version = await running.devtools.call("Browser.getVersion")
                    # Without a usable sandbox the browser ends with the first page.
                    await running.devtools.call("Target.createTarget", url="about:blank")
            except (TimeoutError, BrowserGone, CallFailed):
                raise ConfigurationError(await _why(running)) from None
        self._log.info(
            "browser available",
            version=str(version.get("product")),
            sandbox=self._settings.browser_sandbox,
        )

    async def render(self, url: str, visit: Visit, *, within_s: float) -> Rendered:
        """Load a page and return its content.

        Raises:
            AgentFailure: ``PageTimedOut``, ``PageUnreadable``, or what the visit refuses with.
        """
        started = time.monotonic()
        outcome = "cancelled"
        try:
            rendered = await self._rendered(url, visit, within_s)
            outcome = "rendered"
        except AgentFailure as failure:
            outcome = str(failure.type)
            raise
        finally:
            seconds = time.monotonic() - started
            self._metrics.pages.labels(outcome).inc()
            self._metrics.seconds.observe(seconds, current_exemplar())
            self._log.info(
                "page shown in a browser",
                outcome=outcome,
                requests=visit.requests,
                refused=visit.refused,
                seconds=round(seconds, 3),
            )
        return rendered

    async def _rendered(self, url: str, visit: Visit, within_s: float) -> Rendered:
        loop = asyncio.get_running_loop()
        within_s = min(within_s, self._settings.browser_timeout_s)
        ends = loop.time() + within_s
        try:
            async with (
                asyncio.timeout(within_s),
                self._places,
                running_browser(self._launch) as running,
            ):
                tab = Tab(
                    running.devtools,
                    visit,
                    settle_s=self._settings.browser_settle_s,
                    max_chars=self._settings.max_page_bytes,
                )
                return await tab.render(url, until=ends - within_s * _FOR_READING)
        except TimeoutError:
            raise AgentFailure(
                AgentErrorType.PAGE_TIMED_OUT,
                "The page did not come to rest in a browser in time.",
                retryable=True,
            ) from None
        except (BrowserGone, CallFailed, OSError):
            raise AgentFailure(
                AgentErrorType.PAGE_UNREADABLE, "A browser could not show the page."
            ) from None


async def _why(running: Running) -> str:
    """Why a browser failed to start."""
    try:
        async with asyncio.timeout(1):
            status = await running.supervisor.wait()
    except TimeoutError:
        status = None
    if status == NO_NAMESPACES:
        return (
            "The browser of BOS_WEB_BROWSER cannot have a network of its own, as namespaces are "
            "blocked here. Allow user namespaces, or, where the container of this service is all "
            "the sandbox it needs, set BOS_WEB_BROWSER_SANDBOX=container."
        )
    return (
        "The browser of BOS_WEB_BROWSER does not start, or its sandbox is blocked here. Start it "
        "by hand as an ordinary user, allow user namespaces, or, where the container of this "
        "service is all the sandbox it needs, set BOS_WEB_BROWSER_SANDBOX=container."
    )
