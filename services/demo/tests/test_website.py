"""The demo's public site and its search API."""

from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import aiohttp
import pytest

from bos_demo.company import DEFAULT_TODAY
from bos_demo.questions import WebStep, load_questions
from bos_demo.website.pages import load_pages
from bos_demo.website.ranking import Ranking
from bos_demo.website.service import Website, serve_website

PAGES = {page.path: page for page in load_pages()}


@pytest.fixture
async def website() -> AsyncIterator[Website]:
    async with serve_website(DEFAULT_TODAY) as website:
        yield website


async def search(website: Website, key: str = "", **asked: Any) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {key or website.search_key.get_secret_value()}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(website.search_url, json=asked) as response,
    ):
        return response.status, await response.json()


def test_there_are_pages_of_each_kind() -> None:
    assert len(PAGES) == len(load_pages()) >= 30
    assert {page.kind for page in PAGES.values()} == {"plain", "script", "slow", "redirect"}
    assert all(page.date <= DEFAULT_TODAY for page in PAGES.values())


def test_cited_pages_hold_the_words_and_are_found() -> None:
    steps = [step for question in load_questions("web") for step in question.steps]
    for step in (each for each in steps if isinstance(each, WebStep)):
        for cited in step.pages:
            page = PAGES[cited.path]
            page = PAGES[page.to] if page.kind == "redirect" else page
            assert cited.quote in f"{page.summary} {page.text}", (step.task, cited)
        if step.query:
            news_only = step.search_type == "news"
            topic = [page for page in load_pages() if not news_only or page.topic == "news"]
            found = [hit.page.path for hit in Ranking(topic).search(step.query)][:4]
            assert {cited.path for cited in step.pages} <= set(found), step.query


async def test_api_has_the_shape_of_tavily(website: Website) -> None:
    status, said = await search(website, query="castings", topic="news", max_results=2, days=30)
    assert status == 200
    assert set(said) == {"query", "answer", "images", "results", "response_time"}
    first = said["results"][0]
    assert first["url"] == f"{website.site}/news/castings-may"
    assert first["published_date"] == "Sat, 06 Jun 2026 00:00:00 GMT"
    assert 0 < first["score"] < 1


async def test_days_leave_out_what_is_older(website: Website) -> None:
    _, recent = await search(website, query="Vindhya Hydraulics", topic="news", days=7)
    _, every = await search(website, query="Vindhya Hydraulics", topic="news")
    assert [each["url"].rpartition("/")[2] for each in recent["results"]] == ["vindhya-nashik"]
    assert len(every["results"]) >= 3
    assert PAGES["/news/vindhya-recall"].date == date(2025, 11, 20)


async def test_invalid_searches_are_refused(website: Website) -> None:
    for asked in ({"query": ""}, {"query": "x" * 401}, {"query": ["x"]}, {}):
        assert (await search(website, **asked))[0] == 400, asked
    assert (await search(website, key="other", query="castings"))[0] == 401


async def test_page_for_members_is_in_robots_txt_and_not_found(website: Website) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{website.site}/robots.txt") as response:
            assert "Disallow: /members/" in await response.text()
        async with session.get(f"{website.site}/", allow_redirects=False) as response:
            assert "/members/price-forecast" in await response.text()
    _, said = await search(website, query="price forecast members", max_results=20)
    assert not any("/members/" in each["url"] for each in said["results"])
