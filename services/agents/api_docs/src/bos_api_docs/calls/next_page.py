"""How the page after one of a list is asked for, read from the response. Pure.

Known forms: a ``Link`` header (RFC 8288), links in the body (OData, JSON:API, HAL), cursors (Relay,
Stripe, tokens), page numbers from 0 or 1 (Spring) and offsets with a total.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bos_api_docs.calls.results import at
from bos_api_docs.calls.urls import joined, query_of, with_query
from bos_api_docs.catalogue.model import Paging

_NEXT_URLS = (
    *("next", "next_url", "nextUrl", "nextLink", "next_page_url", "links.next", "links.next.href"),
    *("_links.next", "_links.next.href"),
)
_NEXT_CURSORS = (
    *("next_cursor", "nextCursor", "next_page_token", "nextPageToken", "cursor.next"),
    *("cursors.after", "continuation_token", "continuationToken", "endCursor", "end_cursor"),
)
_CURSOR_NAMES = (
    *("cursor", "page_token", "pageToken", "after", "starting_after", "continuation_token"),
    *("continuationToken", "next_cursor"),
)
_LAST_ROW_NAMES = ("starting_after", "after_id", "since_id")
"""Cursors that are the ``id`` of the last row, as Stripe has them."""
_PAGE_NAMES = ("page", "page_number", "pageNumber", "pageNo", "page_no", "page[number]")
_OFFSET_NAMES = ("offset", "skip", "start", "$skip", "page[offset]")
_SIZE_NAMES = (
    *("per_page", "page_size", "pageSize", "limit", "size", "count", "perPage", "top", "$top"),
    *("page[size]", "page[limit]"),
)
_MORE = ("has_more", "hasMore", "has_next", "hasNext", "hasNextPage", "has_next_page")
_TOTALS = (
    *("total", "total_count", "totalCount", "count", "totalElements", "totalItems"),
    *("total_items", "totalRecords", "total_records", "totalResults", "total_results"),
)
_NUMBERS = ("page", "number", "current_page", "currentPage", "pageNumber", "page_number", "pageNo")
_PAGES = ("pages", "total_pages", "totalPages", "last_page", "lastPage", "page_count", "pageCount")
_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s";,]+))*)')
_RELATION = re.compile(r'rel\s*=\s*"?\s*([^"]*)', re.IGNORECASE)
_DEPTH = 2
_MAX_HOLDERS = 32


@dataclass(frozen=True, slots=True)
class NextPage:
    """What follows a page."""

    url: str = ""
    """Where the next page is; empty if there is none, or it is not known where."""
    is_unclear: bool = False
    """The response announces more rows and not how to ask for them."""


def asks_for_one_page(url: str, paging: Paging) -> bool:
    """Whether a URL names a page, its size, an offset or a cursor by itself."""
    named = {paging.page, paging.offset, paging.cursor, paging.size} - {""}
    usual = {*_PAGE_NAMES, *_OFFSET_NAMES, *_CURSOR_NAMES, *_SIZE_NAMES}
    return bool((named or usual) & query_of(url).keys())


def next_page(
    value: Any,
    rows: Sequence[Mapping[str, Any]],
    link: str,
    url: str,
    paging: Paging,
    documented: frozenset[str],
    read: int,
) -> NextPage:
    """What follows a page.

    Args:
        value: JSON of its response.
        rows: Its rows.
        link: Its ``Link`` header.
        url: Its URL.
        paging: What the catalogue says of the operation.
        documented: Names of the operation's query parameters.
        read: Rows of this page and those before it.
    """
    if following := _link_header(link):
        return NextPage(joined(url, following))
    named = at(value, paging.next) if paging.next else None
    holders = tuple(_holders(value))
    for each in (named, *_values(holders, _NEXT_URLS), *_odata_links(holders)):
        if isinstance(each, str) and (each.startswith(("/", "?")) or "://" in each):
            return NextPage(joined(url, each))
    if not rows:
        return NextPage()
    says_more = _says_more(holders, read)
    if says_more is False:
        return NextPage()
    cursors = (named, *_values(holders, _NEXT_CURSORS))
    cursor = next((each for each in cursors if isinstance(each, str | int) and each), None)
    name = paging.cursor or _first(_CURSOR_NAMES, documented)
    if name and cursor is not None and not isinstance(cursor, bool):
        return NextPage(with_query(url, {name: str(cursor)}))
    if not says_more:
        return NextPage()
    following = _counted(holders, rows, url, paging, documented, read)
    return NextPage(following, is_unclear=not following)


def _counted(
    holders: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    url: str,
    paging: Paging,
    documented: frozenset[str],
    read: int,
) -> str:
    """The next page by last row, number or offset; empty if none of them is a parameter."""
    query = query_of(url)
    last = rows[-1].get("id")
    if (name := _first(_LAST_ROW_NAMES, documented)) and isinstance(last, str | int):
        return with_query(url, {name: str(last)})
    if name := paging.page or _first(_PAGE_NAMES, documented):
        now = query.get(name, str(_number(holders) or 0 if _is_from_zero(holders) else 1))
        return with_query(url, {name: str(int(now) + 1)}) if now[:9].isdecimal() else ""
    if name := paging.offset or _first(_OFFSET_NAMES, documented):
        return with_query(url, {name: str(read)})
    return ""


def _says_more(holders: Sequence[Mapping[str, Any]], read: int) -> bool | None:
    """Whether the response announces more rows; None if it does not say."""
    flags = [each for each in _values(holders, _MORE) if isinstance(each, bool)]
    # Spring's Page: whether this is the last one.
    flags += [not each for each in _values(holders, ("last",)) if isinstance(each, bool)]
    if flags:
        return any(flags)
    totals = [each for each in _values(holders, _TOTALS) if _is_count(each)]
    if totals:
        return bool(totals[0] > read)
    now, pages = _number(holders), next(filter(_is_count, _values(holders, _PAGES)), None)
    if now is None or pages is None:
        return None
    return bool(now + 1 < pages if _is_from_zero(holders) else now < pages)


def _is_from_zero(holders: Sequence[Mapping[str, Any]]) -> bool:
    """Whether pages are counted from 0: by the first one's number, or as Spring's Page is."""
    return _number(holders) == 0 or any("number" in each and "last" in each for each in holders)


def _number(holders: Sequence[Mapping[str, Any]]) -> int | None:
    return next(filter(_is_count, _values(holders, _NUMBERS)), None)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _holders(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of a response that may speak of pages: it, and those in it, two levels deep."""
    level, found = [value], 0
    for _ in range(_DEPTH + 1):
        level = [each for each in level if isinstance(each, dict)][: _MAX_HOLDERS - found]
        found += len(level)
        yield from level
        level = [inner for each in level for inner in each.values()]


def _values(holders: Iterable[Mapping[str, Any]], paths: Sequence[str]) -> Iterator[Any]:
    for holder in holders:
        for path in paths:
            if (value := at(holder, path)) is not None:
                yield value


def _odata_links(holders: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    for holder in holders:
        yield from (
            holder[name] for name in ("@odata.nextLink", "odata.nextLink") if name in holder
        )


def _first(names: Iterable[str], documented: frozenset[str]) -> str:
    return next((name for name in names if name in documented), "")


def _link_header(header: str) -> str:
    for url, parameters in _LINK.findall(header[:8_000]):
        relation = _RELATION.search(parameters)
        if relation is not None and "next" in relation[1].lower().split():
            return str(url)
    return ""
