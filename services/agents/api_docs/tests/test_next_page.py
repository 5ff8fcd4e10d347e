"""How the page after one is asked for, for each known form of paging."""

from typing import Any

import pytest

from bos_api_docs.calls.next_page import NextPage, next_page
from bos_api_docs.calls.results import rows_of
from bos_api_docs.catalogue.model import Paging

BASE = "https://api.example.com/list"
ROWS = [{"id": f"r{n}", "name": "Åsa"} for n in range(10)]
UNCLEAR = NextPage(is_unclear=True)

# Form, response, its URL, documented query parameters, rows read so far, what follows.
CASES: list[tuple[str, Any, str, str, int, str | NextPage]] = [
    ("stripe", {"object": "list", "data": ROWS, "has_more": True}, "", "starting_after limit", 10,
     "?starting_after=r9"),
    ("stripe, last", {"data": ROWS, "has_more": False}, "", "starting_after", 10, ""),
    ("spring", {"content": ROWS, "number": 0, "last": False, "totalPages": 3}, "", "page size", 10,
     "?page=1"),
    ("spring, second", {"content": ROWS, "number": 1, "last": False}, "?page=1", "page", 20,
     "?page=2"),
    ("spring, last", {"content": ROWS, "number": 2, "last": True, "totalPages": 3}, "?page=2",
     "page", 25, ""),
    ("from zero by page count", {"items": ROWS, "page": 0, "totalPages": 2}, "", "page", 10,
     "?page=1"),
    ("from one by page count", {"items": ROWS, "page": 1, "totalPages": 2}, "", "page", 10,
     "?page=2"),
    ("relay", {"edges": [{"node": row} for row in ROWS],
               "pageInfo": {"hasNextPage": True, "endCursor": "Y3Vy"}}, "", "first after", 10,
     "?after=Y3Vy"),
    ("relay, last", {"edges": [{"node": row} for row in ROWS],
                     "pageInfo": {"hasNextPage": False, "endCursor": "Y3Vy"}}, "", "after", 25, ""),
    ("total in data", {"data": {"list": ROWS, "total": 25, "page": 1}, "code": 0}, "",
     "page pageSize", 10, "?page=2"),
    ("total in data, last", {"data": {"list": ROWS, "total": 25}}, "?page=3", "page", 25, ""),
    ("total in 数据", {"数据": {"total": 25}, "rows": ROWS}, "", "offset", 10, "?offset=10"),
    ("offset and count", {"results": ROWS, "count": 25}, "", "offset limit", 10, "?offset=10"),
    ("odata", {"value": ROWS, "@odata.nextLink": f"{BASE}?$skip=10"}, "", "$top $skip", 10,
     "?$skip=10"),
    ("json:api", {"data": ROWS, "links": {"next": "/list?page[number]=2"}}, "", "page[number]", 10,
     "?page[number]=2"),
    ("json:api by number", {"data": ROWS, "meta": {"total": 25}}, "", "page[number]", 10,
     "?page%5Bnumber%5D=2"),
    ("token in meta", {"items": ROWS, "meta": {"next_cursor": "x/ü"}}, "", "cursor", 10,
     "?cursor=x%2F%C3%BC"),
    ("more, and no way to ask", {"items": ROWS, "has_more": True}, "", "q", 10, UNCLEAR),
    ("total, no way to ask", {"result": {"records": ROWS, "total": 11}}, "", "", 10, UNCLEAR),
    ("no word of more", {"items": ROWS}, "", "page", 10, ""),
    ("an empty page that promises more", {"items": [], "has_more": True}, "", "page", 10, ""),
    ("flags that are no flags", {"items": ROWS, "has_more": "yes", "total": "25"}, "", "page", 10,
     ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "query", "documented", "read", "follows"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_next_page_of_each_form(
    value: Any, query: str, documented: str, read: int, follows: str | NextPage
) -> None:
    rows = rows_of(value)
    assert rows is not None
    found = next_page(value, rows, "", BASE + query, Paging(), frozenset(documented.split()), read)
    expected = NextPage(BASE + follows if follows else "") if isinstance(follows, str) else follows
    assert found == expected


@pytest.mark.parametrize(
    ("header", "follows"),
    [
        (f'<{BASE}?page=2>; rel="next", <{BASE}?page=9>; rel="last"', f"{BASE}?page=2"),
        (f'<{BASE}?page=1>; rel="prev"', ""),
    ],
)
def test_link_headers_name_the_next_page(header: str, follows: str) -> None:
    found = next_page(ROWS, ROWS, header, BASE, Paging(), frozenset({"page"}), 10)
    assert found == NextPage(follows)
