"""Query, kind and time by rule."""

import pytest

from bos_web.addresses import FoundAddresses, addresses_in
from bos_web.strategy import MAX_QUERY_CHARS, by_rule


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
        (
            "Compare benchmarks of pump efficiency",
            "Compare benchmarks of pump efficiency",
            "deep",
            "any",
        ),
        (
            "Find inflation of the last month on the internet?",
            "inflation of the last month",
            "basic",
            "month",
        ),
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
