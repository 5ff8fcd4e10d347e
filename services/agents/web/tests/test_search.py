"""Requests and replies of each search API in its published shape, and their failures."""

import os
from pathlib import Path
from typing import Any

import pytest

from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_web.addresses import FoundAddresses, addresses_in
from bos_web.search.calling import SearchApi as Caller
from bos_web.search.keys import SearchKey
from bos_web.search.provider import found, result
from bos_web.settings import WebSettings
from bos_web.strategy import MAX_QUERY_CHARS, by_rule

from .web_servers import LOOPBACK, SearchApi, settings_of, tavily

PLAN = {"query": "cast iron & steel", "search_type": "basic"}
GOOGLE = {"search_provider": "google", "search_engine_id": "engine-1", "search_key": "key-of-tests"}


def plan(kind: str, time_range: str = "any") -> dict[str, Any]:
    return {"query": "cast iron & steel", "search_type": kind, "time_range": time_range}


@pytest.mark.requirement("H-02", "H-10", "N-06")
@pytest.mark.parametrize(
    ("kind", "time_range", "sent"),
    [
        ("basic", "any", {"topic": "general", "search_depth": "basic"}),
        ("news", "week", {"topic": "news", "search_depth": "basic", "days": 7}),
        ("deep", "month", {"search_depth": "advanced", "include_raw_content": True}),
    ],
)
async def test_tavily_is_asked_as_its_api_says(
    web: Any, api: SearchApi, kind: str, time_range: str, sent: dict[str, Any]
) -> None:
    await web.do("x", plan(kind, time_range))
    [request] = api.requests
    assert (request["method"], request["path"]) == ("POST", "/search")
    assert request["headers"]["Authorization"] == "Bearer key-of-tests"
    body = request["body"]
    assert sent.items() <= body.items()
    assert body["query"] == "cast iron & steel"
    assert body["include_answer"] is True
    assert body["max_results"] == 8
    assert body.get("time_range") == ("month" if kind == "deep" else None)


@pytest.mark.requirement("H-02", "H-10")
@pytest.mark.parametrize(
    ("kind", "time_range", "sent"),
    [
        ("basic", "year", {"dateRestrict": "y1"}),
        ("news", "any", {"dateRestrict": "m1", "sort": "date"}),
    ],
)
async def test_google_is_asked_as_its_api_says(
    start: Any, api: SearchApi, kind: str, time_range: str, sent: dict[str, str]
) -> None:
    first = {"title": "First", "link": "https://a.example.org/1", "snippet": "Iron costs 55."}
    second = {"title": "Second", "link": "https://b.example.org/2", "snippet": "Steel costs 70."}
    api.reply = {"kind": "customsearch#search", "items": [first, second]}
    url = f"{api.url}/customsearch/v1"
    web = await start(models=False, **GOOGLE, search_url=url)
    outcome = await web.do("iron", plan(kind, time_range))
    [request] = api.requests
    fields = {"key": "key-of-tests", "cx": "engine-1", "q": "cast iron & steel", "num": "8", **sent}
    assert (request["method"], request["query"]) == ("GET", fields)
    results = outcome.data["search_results"]
    assert [each["title"] for each in results] == ["First", "Second"]
    assert results[0]["score"] > results[1]["score"] > 0
    assert "tavily_answer" not in outcome.data


@pytest.mark.requirement("H-02", "H-10")
async def test_searxng_is_asked_as_its_api_says(start: Any, api: SearchApi) -> None:
    api.reply = {
        "query": "q",
        "results": [
            {"title": "Low", "url": "https://a.example.org", "content": "Low it is.", "score": 1.5},
            {"title": "High", "url": "https://b.example.org", "content": "High it is.", "score": 6},
            {"title": "None", "url": "https://c.example.org", "content": "No score at all."},
        ],
        "answers": [{"answer": "Forty-two.", "url": "https://d.example.org"}],
        "unresponsive_engines": [],
    }
    web = await start(models=False, search_provider="searxng", search_key=None)
    outcome = await web.do("high", plan("news", "day"))
    [request] = api.requests
    fields = {"q": "cast iron & steel", "format": "json", "categories": "news", "time_range": "day"}
    assert (request["method"], request["query"]) == ("GET", fields)
    assert "Authorization" not in request["headers"]
    found = [(each["title"], each["score"]) for each in outcome.data["search_results"]]
    assert found[0] == ("High", 1.0)
    assert outcome.data["tavily_answer"] == "Forty-two."


@pytest.mark.parametrize(
    ("status", "body", "headers", "type", "retryable", "requests"),
    [
        (401, {"detail": {"error": "Unauthorized"}}, {}, "SearchUnauthorized", False, 1),
        (429, {"detail": "slow"}, {"Retry-After": "60"}, "SearchRateLimited", True, 1),
        (429, {"detail": "slow"}, {"Retry-After": "0"}, "SearchRateLimited", True, 2),
        (429, {"error": {"message": "Daily Limit reached"}}, {}, "SearchQuotaExceeded", False, 1),
        (403, {"error": {"status": "dailyLimitExceeded"}}, {}, "SearchQuotaExceeded", False, 1),
        (500, {}, {}, "SearchUnavailable", True, 1),
        (422, {"detail": "bad"}, {}, "SearchReplyInvalid", False, 1),
        (302, {}, {"Location": "http://169.254.169.254/"}, "SearchRefused", False, 1),
    ],
)
async def test_failures_of_the_api_are_classified(
    web: Any,
    api: SearchApi,
    status: int,
    body: Any,
    headers: dict[str, str],
    type: str,
    retryable: bool,
    requests: int,
) -> None:
    api.status, api.reply, api.headers = status, body, headers
    error = (await web.do("x", PLAN)).result.error
    assert (error.type, error.retryable) == (type, retryable)
    assert len(api.requests) == requests
    assert "key-of-tests" not in str(error)
    if headers.get("Retry-After") == "60":
        assert error.details["retry_after_s"].double_value == 60


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[1, 2]",
        b'{"results": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
    ids=["empty", "list", "deep"],
)
async def test_an_invalid_reply_is_an_error(web: Any, api: SearchApi, raw: bytes) -> None:
    api.raw = raw
    outcome = await web.do("x", PLAN)
    if raw.startswith(b'{"results"'):
        # A JSON reader may take the depth; then it is a search without results.
        assert outcome.result.error.type in ("SearchReplyInvalid", "")
    else:
        assert outcome.result.error.type == "SearchReplyInvalid"


async def test_api_inside_the_network_needs_its_networks_named(start: Any, api: SearchApi) -> None:
    web = await start(models=False, search_networks=())
    assert (await web.do("x", PLAN)).result.error.type == "SearchRefused"
    assert api.requests == []


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {"url": "javascript:alert(1)", "title": "x"},
        {"url": "https://a.example.org/" + "x" * 3_000, "title": "x"},
        {"url": ["https://a.example.org"], "title": "x"},
    ],
)
async def test_invalid_entries_are_dropped(web: Any, api: SearchApi, entry: Any) -> None:
    good = {"title": "T", "url": "https://a.example.org", "content": "It is so."}
    api.reply = {"results": [entry, good]}
    outcome = await web.do("so", PLAN)
    assert [each["title"] for each in outcome.data["search_results"]] == ["T"]


def test_parts_of_results_are_bounded_and_scores_are_from_0_to_1() -> None:
    huge = result("t" * 9_000, "https://a.example.org", "s" * 9_000, score=float("nan"), rank=3)
    assert (len(huge.title), len(huge.snippet)) == (300, 2_000)
    scores = [
        each.score
        for score in (-1, 2, True, "high", None, 10**400)
        if (each := result("t", "https://a.example.org", "s", score=score, rank=0))
    ]
    assert scores == [1.0] * 6
    surrogate = result("\ud800", "https://a.example.org", "\udfff")
    surrogate.title.encode()


def test_addresses_found_twice_count_once() -> None:
    many = [result("t", f"https://a.example.org/{n % 7}", "s", rank=n) for n in range(50)]
    assert len(found(many, 5).results) == 5
    assert len(found(many, 50).results) == 7


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"search_provider": "tavily"}, "search_key"),
        ({"search_provider": "google", "search_key": "k"}, "search_engine_id"),
        ({"search_provider": "searxng"}, "search_url"),
    ],
)
def test_incomplete_settings_name_what_is_missing(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        WebSettings.load(**given)


@pytest.mark.requirement("H-10")
async def test_replaced_key_file_is_read_after_a_401(api: SearchApi, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old-key\n")
    settings = settings_of(
        search_provider="tavily",
        search_key_file=file,
        search_url=f"{api.url}/search",
        search_networks=LOOPBACK,
    )
    telemetry = Telemetry.for_tests("web")
    key = SearchKey(settings, telemetry, refresh_s=3600)
    assert key(False) == "old-key"
    file.write_text("new-key\n")
    os.utime(file, ns=(1, 1))
    api.status, api.reply, api.then = 401, {}, (200, tavily())
    caller = Caller(settings, telemetry, key)

    def prepared(key: str) -> tuple[str, dict[str, str], bytes]:
        return "", {"Authorization": f"Bearer {key}"}, b"{}"

    async with caller.http:
        assert (await caller.call(prepared, within_s=10))["results"] == []
    sent = [request["headers"]["Authorization"] for request in api.requests]
    assert sent == ["Bearer old-key", "Bearer new-key"]


@pytest.mark.requirement("H-01")
@pytest.mark.parametrize(
    ("task", "query", "kind", "time_range"),
    [
        ("Find the latest news about Konark Pumps", "Konark Pumps", "news", "any"),
        ("Search the web for the price of cast iron.", "the price of cast iron", "basic", "any"),
        (
            "What did Konark announce this week?",
            "What did Konark announce this week",
            "news",
            "week",
        ),
        ("Compare benchmarks of pumps", "Compare benchmarks of pumps", "deep", "any"),
        ("Find inflation of the last month?", "inflation of the last month", "basic", "month"),
        ("Find", "Find", "basic", "any"),
        ("Newspaper paper prices", "Newspaper paper prices", "basic", "any"),
    ],
)
def test_rule_finds_query_kind_and_time(task: str, query: str, kind: str, time_range: str) -> None:
    found = by_rule(task)
    assert (found.query, found.search_type, found.time_range) == (query, kind, time_range)


def test_query_is_one_printable_line_that_apis_take() -> None:
    query = by_rule("Find the\nprice\x00of\u202e iron " + "and steel " * 200).query
    assert len(query) <= MAX_QUERY_CHARS
    assert query.isprintable()
    assert by_rule("x" * 100_000).query == "x" * MAX_QUERY_CHARS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Read https://a.example.org/x?y=1, then", ["https://a.example.org/x?y=1"]),
        ("(http://a.example.org) and http://a.example.org", ["http://a.example.org"]),
        ("ftp://a.example.org a.example.org", []),
    ],
)
def test_addresses_are_found_without_what_stands_around_them(text: str, found: list[str]) -> None:
    assert addresses_in(text) == found


def test_addresses_are_known_in_their_own_run_alone_and_bounded() -> None:
    known = FoundAddresses()
    known.add("run-1", ["https://a.example.org"])
    assert known.has("run-1", "https://a.example.org")
    assert not known.has("run-2", "https://a.example.org")
    assert not known.has("run-1", "https://a.example.org/other")
    known.add("", ["https://b.example.org"])
    assert not known.has("", "https://b.example.org")
    for number in range(600):
        known.add(f"later-{number}", [f"https://c.example.org/{n}" for n in range(5)])
    assert not known.has("run-1", "https://a.example.org")
