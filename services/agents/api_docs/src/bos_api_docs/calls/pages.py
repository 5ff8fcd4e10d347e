"""Pages of a list: how the next one is found, and when to stop."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bos_api_docs.calls.results import (
    Bounded,
    CallResult,
    at,
    bounded_rows,
    parsed,
    rows_of,
)
from bos_api_docs.calls.urls import joined, query_of, with_query
from bos_api_docs.catalogue.model import Paging
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.agent.v1 import AgentInput
    from bos_agentkit import AgentTask
    from bos_api_docs.calls.sending import ExactCall, Route, Sender
    from bos_http import HttpClient, HttpResponse

_NEXT_URLS = (
    *("next", "next_url", "nextUrl", "nextLink", "links.next", "links.next.href", "_links.next"),
    *("_links.next.href", "paging.next", "pagination.next", "pagination.next_url", "meta.next"),
)
_NEXT_CURSORS = (
    *("next_cursor", "nextCursor", "next_page_token", "nextPageToken", "cursor.next"),
    *("paging.next_cursor", "pagination.next_cursor", "meta.next_cursor", "continuation_token"),
    *("continuationToken", "paging.cursors.after"),
)
_CURSOR_NAMES = (
    *("cursor", "page_token", "pageToken", "after", "starting_after", "continuation_token"),
    *("continuationToken", "next_cursor"),
)
_PAGE_NAMES = ("page", "page_number", "pageNumber", "pageNo", "page_no")
_OFFSET_NAMES = ("offset", "skip", "start")
_SIZE_NAMES = ("per_page", "page_size", "pageSize", "limit", "size", "count", "perPage", "top")
_MORE = ("has_more", "hasMore", "has_next", "hasNext", "meta.has_more", "pagination.has_more")
_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s";,]+))*)')
_RELATION = re.compile(r'rel\s*=\s*"?\s*([^"]*)', re.IGNORECASE)
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
    asked_for_one = _asks_for_one_page(call, paging)
    while following := _next_url(page, route, paging, url, len(rows)):
        more = _why_not(
            http,
            route,
            following,
            seen,
            (asked_for_one, "only one page was asked for"),
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


def _page(answer: HttpResponse, paging: Paging) -> _Page:
    value, is_json = parsed(answer.text()) if answer.body else (None, True)
    return _Page(answer, value, rows_of(value, paging.rows) if is_json else None)


def _asks_for_one_page(call: ExactCall, paging: Paging) -> bool:
    named = {paging.page, paging.offset, paging.cursor, paging.size} - {""}
    usual = {*_PAGE_NAMES, *_OFFSET_NAMES, *_CURSOR_NAMES, *_SIZE_NAMES}
    return bool((named or usual) & query_of(call.url).keys())


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


def _next_url(page: _Page, route: Route, paging: Paging, url: str, read: int) -> str:
    """URL of the page after ``page``; empty if it is the last one."""
    if link := _link_header(page.answer.headers.get("Link", "")):
        return joined(url, link)
    named = at(page.value, paging.next) if paging.next else None
    for value in (named, *(at(page.value, path) for path in _NEXT_URLS)):
        if isinstance(value, str) and (value.startswith(("/", "?")) or "://" in value):
            return joined(url, value)
    if isinstance(page.value, dict) and isinstance(page.value.get("@odata.nextLink"), str):
        return joined(url, page.value["@odata.nextLink"])
    documented = route.operation.documents("query") if route.operation is not None else frozenset()
    cursor_name = paging.cursor or _first(_CURSOR_NAMES, documented)
    cursors = (named, *(at(page.value, path) for path in _NEXT_CURSORS))
    cursor = next((each for each in cursors if isinstance(each, str | int) and each), None)
    if cursor_name and cursor is not None and not isinstance(cursor, bool):
        return with_query(url, {cursor_name: str(cursor)})
    return _counted(page, paging, documented, url, read) if page.rows else ""


def _counted(page: _Page, paging: Paging, documented: frozenset[str], url: str, read: int) -> str:
    """Next page by number or offset, if the response announces more."""
    if not _says_more(page, read):
        return ""
    query = query_of(url)
    if name := paging.page or _first(_PAGE_NAMES, documented):
        now = query.get(name, "1")
        return with_query(url, {name: str(int(now) + 1)}) if now[:9].isdecimal() else ""
    if name := paging.offset or _first(_OFFSET_NAMES, documented):
        return with_query(url, {name: str(read)})
    return ""


def _says_more(page: _Page, read: int) -> bool:
    flags = [at(page.value, path) for path in _MORE]
    if any(isinstance(each, bool) for each in flags):
        return any(each is True for each in flags)
    for path in ("total", "total_count", "totalCount", "count", "meta.total", "pagination.total"):
        total = at(page.value, path)
        if isinstance(total, int) and not isinstance(total, bool):
            return total > read
    for now, last in (("page", "pages"), ("page", "total_pages"), ("page", "totalPages")):
        one, other = at(page.value, now), at(page.value, last)
        if isinstance(one, int) and isinstance(other, int):
            return one < other
    return False


def _first(names: Iterable[str], documented: frozenset[str]) -> str:
    return next((name for name in names if name in documented), "")


def _link_header(header: str) -> str:
    for url, parameters in _LINK.findall(header[:8_000]):
        relation = _RELATION.search(parameters)
        if relation is not None and "next" in relation[1].lower().split():
            return str(url)
    return ""
