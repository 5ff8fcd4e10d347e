"""Pages of lists and their bounds; ``test_next_page.py`` has every form of paging."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from bos_api_docs.calls.results import CallResult, rows_of, table_of

from .api_under_test import ApiUnderTest, planned

TASK = "Show the list"


def pages(request: Request) -> JSONResponse:
    """Five rows, two a page, by a cursor that only the catalogue names."""
    first = int(request.query_params.get("after", 0))
    rows = [{"n": n} for n in range(first, min(first + 2, 5))]
    return JSONResponse({"found": rows, "paging": {"to": first + 2 if first + 2 < 5 else None}})


CATALOGUE = """
endpoints:
  - method: GET
    path: /list
    pagination: {cursor: after, next: paging.to, rows: found}
"""


async def test_all_pages_are_read(start: Any, api: ApiUnderTest, tmp_path: Any) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CATALOGUE)
    agent = await start(planned(TASK, path="/list"), own={"catalogue": str(file)})
    api.replies["/list"] = pages
    done = await agent.do(TASK)
    assert [row["n"] for row in done.rows] == [0, 1, 2, 3, 4]
    assert (done.data["pages"], done.data["truncated"]) == (3, False)
    assert not done.result.table.truncated


@pytest.mark.parametrize(
    ("limits", "kept", "reason"),
    [
        ({"max_pages": 2}, 4, "2 pages"),
        ({"max_rows": 3}, 3, "3 rows"),
        ({"max_list_bytes": 1024}, None, "1024 bytes"),
    ],
)
async def test_bounds_on_a_list_are_said(
    start: Any, api: ApiUnderTest, limits: dict[str, int], kept: int | None, reason: str
) -> None:
    agent = await start(planned(TASK, path="/list"), **limits)

    def endless(request: Request) -> JSONResponse:
        first = int(request.query_params.get("offset", 0))
        rows = [{"n": n, "text": "x" * 200} for n in (first, first + 1)]
        return JSONResponse({"items": rows, "next": f"/list?offset={first + 2}"})

    api.replies["/list"] = endless
    done = await agent.do(TASK)
    assert done.data["truncated"]
    assert done.result.table.truncated
    assert kept is None or len(done.rows) == kept
    assert reason in done.result.answer
    assert len(api.seen) <= 10


@pytest.mark.parametrize(("asked", "kept"), [(2, 2), (4, 3)])
@pytest.mark.requirement("A-24")
async def test_row_limit_is_lowered(start: Any, api: ApiUnderTest, asked: int, kept: int) -> None:
    agent = await start(planned(TASK, path="/list"), max_rows=3)
    api.replies["/list"] = JSONResponse({"items": [{"n": number} for number in range(9)]})
    done = await agent.do(TASK, max_rows=asked)
    assert len(done.rows) == len(done.result.table.rows) == kept
    assert done.result.table.truncated


@pytest.mark.parametrize(
    ("following", "reason"), [("/list", ""), ("/list?offset=1", "could not be read")]
)
async def test_a_page_that_fails_or_names_itself_ends_the_list(
    start: Any, api: ApiUnderTest, following: str, reason: str
) -> None:
    agent = await start(planned(TASK, path="/list"))

    def answer(request: Request) -> JSONResponse:
        if request.query_params:
            return JSONResponse({"detail": "gone"}, status_code=500)
        return JSONResponse({"items": [{"n": 1}], "next": following})

    api.replies["/list"] = answer
    done = await agent.do(TASK)
    assert (len(done.rows), done.data["truncated"]) == (1, True)
    assert reason in done.result.answer


async def test_a_plan_that_names_a_page_gets_that_page(start: Any, api: ApiUnderTest) -> None:
    agent = await start(planned(TASK, path="/orders", query_params={"page": "2"}))
    done = await agent.do(TASK)
    assert [row["order"] for row in done.rows] == ["PO-2-1", "PO-2-2"]
    assert len(api.seen) == 1
    assert "only one page was asked for" in done.result.answer


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        ([{"a": 1}, {"b": 2}], 2),
        ([], 0),
        ({"total": 2, "orders": [{"a": 1}, {"a": 2}]}, 2),
        ({"_embedded": {"items": [{"a": 1}]}}, 1),
        ({"order": "PO-1", "status": "open", "lines": [{"n": 1}]}, None),
        ({"a": [{"x": 1}], "b": [{"y": 1}]}, None),
        ([[1], [2]], None),
        (None, None),
    ],
)
def test_rows_and_objects_are_distinguished(value: Any, rows: int | None) -> None:
    found = rows_of(value)
    assert (None if found is None else len(found)) == rows


def test_rows_of_differing_forms_are_one_table() -> None:
    rows = [{"a": 1, "nested": {"x": [1]}}, {"b": None}]
    table = table_of(CallResult(status_code=200, method="GET", url="http://x/", rows=rows))
    assert [column.name for column in table.columns] == ["a", "nested", "b"]
    wide = [{f"c{n}": n for n in range(80)}]
    table = table_of(CallResult(status_code=200, method="GET", url="http://x/", rows=wide))
    assert (len(table.columns), table.truncated) == (50, True)
