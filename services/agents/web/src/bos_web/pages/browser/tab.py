"""One page in a browser: loaded, given time for its scripts, read."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_web.pages.browser.devtools import BrowserGone, CallFailed, DevTools
from bos_web.pages.browser.visit import Asked, Visit

_MAX_NODES = 100_000
_MAX_TASKS = 2_000
"""Requests and dialogs of one page; a page that makes more is left without answers."""
_READ: Final = """
((maxNodes, maxChars) => {
  const root = document.documentElement;
  if (!root || document.getElementsByTagName('*').length > maxNodes) return null;
  for (const each of document.body ? document.body.getElementsByTagName('*') : []) {
    const style = getComputedStyle(each);
    const unseen = style.visibility !== 'visible' && !each.firstElementChild;
    if (style.display === 'none' || unseen) each.setAttribute('hidden', '');
  }
  const html = root.outerHTML;
  return html.length > maxChars ? null : {url: document.URL, html};
})(%d, %d)
"""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page as its scripts left it: words of others."""

    url: str
    html: str


class Tab:
    """Loads a page in an otherwise empty browser.

    Args:
        devtools: Of a browser that shows nothing else.
        visit: Answers its requests.
        settle_s: Time that scripts have once the page is loaded; the page's own clock, which runs
            as fast as the scripts do.
        max_chars: Largest document that is read.
    """

    def __init__(
        self, devtools: DevTools, visit: Visit, *, settle_s: float, max_chars: int
    ) -> None:
        self._devtools = devtools
        self._visit = visit
        self._settle_s = settle_s
        self._max_chars = max_chars
        self._session = ""
        self._frame = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = 0
        self._loaded = asyncio.Event()
        self._expired = asyncio.Event()
        self._over = asyncio.Event()
        """The browser is gone, the page crashed, or it went where it may not."""

    async def render(self, url: str, *, until: float) -> Rendered:
        """Load the page and read what it holds at ``until`` (the loop's clock) at the latest.

        Raises:
            AgentFailure: ``PageRefused`` and others of the visit; ``PageUnreadable``.
            BrowserGone: The browser ended.
            CallFailed: It refuses.
        """
        self._devtools.on_event = self._event
        self._devtools.on_gone = self._over.set
        try:
            await self._open()
            await self._call("Page.navigate", url=url)
            await self._settled(until)
            if self._visit.failure is not None:
                raise self._visit.failure
            return await self._read()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self) -> None:
        call = self._devtools.call
        # Nothing of such a context is written to a disk.
        context = (await call("Target.createBrowserContext"))["browserContextId"]
        await call("Browser.setDownloadBehavior", behavior="deny", browserContextId=context)
        made = await call("Target.createTarget", url="about:blank", browserContextId=context)
        target = made["targetId"]
        attached = await call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        await self._call("Page.enable")
        await self._call("Inspector.enable")
        await self._call("Fetch.enable", patterns=[{"urlPattern": "http*"}])
        self._frame = (await self._call("Page.getFrameTree"))["frameTree"]["frame"]["id"]

    async def _settled(self, until: float) -> None:
        """Wait until scripts had their time, or there is no more."""
        try:
            async with asyncio.timeout_at(until):
                while not self._over.is_set():
                    await self._first(self._loaded)
                    self._expired.clear()
                    await self._call(
                        "Emulation.setVirtualTimePolicy",
                        policy="pauseIfNetworkFetchesPending",
                        budget=self._settle_s * 1000,
                    )
                    await self._first(self._expired)
                    if self._loaded.is_set() and not self._tasks:
                        return
                    await self._call("Emulation.setVirtualTimePolicy", policy="advance")
        except (TimeoutError, CallFailed, BrowserGone):
            return  # what is there by now is read, if it can be

    async def _first(self, event: asyncio.Event) -> None:
        """Wait for an event, or for the end."""
        waits = [asyncio.ensure_future(each.wait()) for each in (event, self._over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _read(self) -> Rendered:
        if self._over.is_set():
            raise BrowserGone
        # In a world of its own, whose built-in functions the page cannot change.
        world = await self._call("Page.createIsolatedWorld", frameId=self._frame)
        found = await self._call(
            "Runtime.evaluate",
            expression=_READ % (_MAX_NODES, self._max_chars),
            contextId=world["executionContextId"],
            returnByValue=True,
        )
        value = found.get("result", {}).get("value")
        if not isinstance(value, dict):
            raise AgentFailure(
                AgentErrorType.PAGE_UNREADABLE, "The page is too large once it is rendered."
            )
        return Rendered(self._visit.arrived(str(value["url"])), str(value["html"]))

    async def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._devtools.call(method, self._session, **parameters)

    def _event(self, name: str, parameters: dict[str, Any], session: str) -> None:
        if session != self._session:
            return
        match name:
            case "Fetch.requestPaused":
                self._start(self._answer(parameters))
            case "Page.javascriptDialogOpening":
                self._start(self._dismiss())
            case "Page.loadEventFired":
                self._loaded.set()
            case "Emulation.virtualTimeBudgetExpired":
                self._expired.set()
            case "Inspector.targetCrashed":
                self._over.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._started += 1
        if self._started > _MAX_TASKS:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dismiss(self) -> None:
        await self._quietly("Page.handleJavaScriptDialog", accept=False)

    async def _answer(self, paused: dict[str, Any]) -> None:
        request = paused["request"]
        asked = Asked(
            str(request["method"]),
            str(request["url"]),
            str(paused["resourceType"]),
            of_page=paused.get("frameId") == self._frame,
        )
        answer = await self._visit.answer(asked)
        number = paused["requestId"]
        if answer is None:
            if asked.is_page:
                self._over.set()
            # An aborted page leaves the one before it in place.
            await self._quietly("Fetch.failRequest", requestId=number, errorReason="Aborted")
            return
        if asked.is_page:
            self._loaded.clear()
        await self._quietly(
            "Fetch.fulfillRequest",
            requestId=number,
            responseCode=answer.status,
            responseHeaders=[{"name": name, "value": value} for name, value in answer.headers],
            body=base64.b64encode(answer.body).decode(),
        )

    async def _quietly(self, method: str, **parameters: Any) -> None:
        """Call for a request or dialog that may have gone meanwhile."""
        try:
            await self._call(method, **parameters)
        except (CallFailed, BrowserGone):
            return
