"""Pages of a list: how the next one is found, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bos_api_docs.calls.next_page import NextPage, asks_for_one_page, next_page
from bos_api_docs.calls.results import (
    Bounded,
    CallResult,
    bounded_rows,
    parsed,
    rows_of,
)
from bos_api_docs.catalogue.model import Paging
from bos_errors import BosError

if TYPE_CHECKING:
    from bos.agent.v1 import AgentInput
    from bos_agentkit import AgentTask
    from bos_api_docs.calls.sending import ExactCall, Route, Sender
    from bos_http import HttpClient, HttpResponse

_RESERVE_SHARE = 0.5
"""Share of the step's time reserved for everything after the pages."""


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Bounds on one list."""

    pages: int
    rows: int
    bytes: int

    def lowered(self, asked: AgentInput) -> PageLimits:
        """The bounds with no more rows than the request asks for; it cannot raise them."""
        rows = asked.max_rows if asked.HasField("max_rows") else self.rows
        return replace(self, rows=min(self.rows, max(1, rows)))


@dataclass(frozen=True, slots=True)
class _Page:
    """One response, parsed."""

    answer: HttpResponse
    value: Any
    rows: list[dict[str, Any]] | None


async def read_pages(
    task: AgentTask,
    sender: Sender,
    http: HttpClient,
    route: Route,
    call: ExactCall,
    limits: PageLimits,
) -> CallResult:
    """Read a response and, if it is a page of a list, the pages after it.

    A plan that sets the page, its size, an offset or a cursor asks for that page alone.

    Raises:
        AgentFailure: the first page cannot be read; later ones leave a truncated result.
    """
    paging = route.operation.paging if route.operation is not None else Paging()
    page = _page(await sender.read(task, route, call), paging)
    task.taint()
    if page.rows is None:
        return _single(call, page)
    rows, read, count, more = list(page.rows), len(page.answer.body), 1, ""
    elapsed_s, seen, url = page.answer.elapsed_s, {call.url}, page.answer.final_url
    until_s = task.remaining_s() * _RESERVE_SHARE
    asked_for_one = asks_for_one_page(call.url, paging)
    documented = route.operation.documents("query") if route.operation is not None else frozenset()
    while (follows := _after(page, url, paging, documented, len(rows))) != NextPage():
        following = follows.url
        more = _why_not(
            http,
            route,
            following,
            seen,
            (asked_for_one, "only one page was asked for"),
            (follows.is_unclear, "the API announces more rows and not how to ask for them"),
            (count >= limits.pages, f"at most {limits.pages} pages are read"),
            (len(rows) >= limits.rows, f"at most {limits.rows} rows are read"),
            (read >= limits.bytes, f"at most {limits.bytes} bytes are read"),
            (task.remaining_s() < until_s, "there was no time for more"),
        )
        if more:
            break
        seen.add(following)
        try:
            answer = await sender.read(task, route, replace(call, url=following))
        except BosError as error:
            more = "a later page could not be read"
            task.trace.message("A later page could not be read", error=error.message)
            break
        page, url, count = _page(answer, paging), answer.final_url, count + 1
        read, elapsed_s = read + len(answer.body), elapsed_s + answer.elapsed_s
        if not page.rows:
            break
        rows += page.rows
    kept, cut = bounded_rows(rows, limits.rows)
    if cut and not more:
        more = f"at most {len(kept)} rows are kept"
    if more:
        task.trace.message("The list is not whole", rows=len(kept), pages=count, reason=more)
    return CallResult(
        status_code=page.answer.status,
        method=call.method,
        url=call.url,
        rows=kept,
        pages=count,
        truncated=bool(more),
        elapsed_ms=round(elapsed_s * 1000, 1),
        more=f"Only the first {len(kept)} rows are shown: {more}." if more else "",
    )


def single_result(call: ExactCall, answer: HttpResponse) -> CallResult:
    """Result of a call that is not paged."""
    return _single(call, _page(answer, Paging()))


def _single(call: ExactCall, page: _Page) -> CallResult:
    bounded = Bounded()
    body = bounded.copy(page.value)
    return CallResult(
        status_code=page.answer.status,
        method=call.method,
        url=call.url,
        body=body,
        truncated=bounded.cut,
        elapsed_ms=round(page.answer.elapsed_s * 1000, 1),
        more="The response is longer than what is shown." if bounded.cut else "",
    )


def _after(
    page: _Page, url: str, paging: Paging, documented: frozenset[str], read: int
) -> NextPage:
    link = page.answer.headers.get("Link", "")
    return next_page(page.value, page.rows or [], link, url, paging, documented, read)


def _page(answer: HttpResponse, paging: Paging) -> _Page:
    value, is_json = parsed(answer.text()) if answer.body else (None, True)
    return _Page(answer, value, rows_of(value, paging.rows) if is_json else None)


def _why_not(
    http: HttpClient,
    route: Route,
    following: str,
    seen: set[str],
    *limits: tuple[bool, str],
) -> str:
    """Why the next page is not read; empty if it is."""
    reached = next((reason for is_reached, reason in limits if is_reached), "")
    if reached:
        return reached
    if following in seen:
        return "the API names a page again that was read already"
    try:
        target = http.check(following)
    except BosError:
        return "the API names a next page that may not be called"
    # Credentials go along, so the page must be where they belong.
    if target.origin != route.base.target.origin:
        return "the API names a next page at another origin"
    return ""
