"""The demo's public site and its search API."""

from collections.abc import AsyncIterator
from datetime import date
from itertools import permutations
from typing import Any

import aiohttp
import pytest

from bos_demo.company import DEFAULT_TODAY
from bos_demo.questions import (
    REFERENCE,
    WebStep,
    load_questions,
)
from bos_demo.website.pages import load_pages
from bos_demo.website.ranking import Ranking
from bos_demo.website.service import Website, serve_website

QUESTIONS = load_questions("web")
STEPS = [step for question in QUESTIONS for step in question.steps if isinstance(step, WebStep)]
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


def test_questions_of_the_web_are_ten_and_of_several_shapes() -> None:
    assert len(QUESTIONS) >= 10
    shapes = {question.agents for question in QUESTIONS}
    assert {
        ("web",),
        ("web", "computation"),
        ("rag", "web"),
        ("rag", "web", "computation"),
    } <= shapes


def test_no_question_or_task_of_the_web_occurs_in_another() -> None:
    every = (*load_questions(), *load_questions("documents"), *QUESTIONS)
    for texts in ([q.question for q in every], [s.task for q in every for s in q.steps]):
        for one, other in permutations(texts, 2):
            assert one.casefold() not in other.casefold(), (one, other)
    assert len({question.id for question in every}) == len(every)


def test_cited_pages_hold_the_words_and_are_found() -> None:
    for step in STEPS:
        for cited in step.pages:
            page = PAGES[cited.path]
            page = PAGES[page.to] if page.kind == "redirect" else page
            assert cited.quote in f"{page.summary} {page.text}", (step.task, cited)
        if step.query:
            news_only = step.search_type == "news"
            topic = [page for page in load_pages() if not news_only or page.topic == "news"]
            found = [hit.page.path for hit in Ranking(topic).search(step.query)][:4]
            assert {cited.path for cited in step.pages} <= set(found), step.query


def test_references_of_the_web_lead_to_earlier_steps() -> None:
    for question in QUESTIONS:
        seen: set[str] = set()
        for step in question.steps:
            assert all(REFERENCE.fullmatch(value) for value in step.inputs.values())
            assert set(question.depends_on(step)) <= seen
            seen.add(step.id)


def test_figures_agree_with_one_another() -> None:
    table = PAGES["/prices/castings"].text
    assert "118.4" in table
    assert "112.0" in table
    assert round((118.4 / 112.0 - 1) * 100, 1) == 5.7
    assert "5.7 percent" in PAGES["/news/castings-may"].text


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


async def test_wrong_key_is_refused(website: Website) -> None:
    assert (await search(website, key="other", query="castings"))[0] == 401


async def test_robots_txt_keeps_a_page_for_members_and_search_does_not_know_it(
    website: Website,
) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{website.site}/robots.txt") as response:
            assert "Disallow: /members/" in await response.text()
        async with session.get(f"{website.site}/", allow_redirects=False) as response:
            assert "/members/price-forecast" in await response.text()
    _, said = await search(website, query="price forecast members", max_results=20)
    assert not any("/members/" in each["url"] for each in said["results"])
