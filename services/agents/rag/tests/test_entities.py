"""Dates, kinds of documents and exact terms of questions."""

from datetime import date

import pytest

from bos_rag.entities import Period, codes, exact_terms, find_entities, find_period, holds

TODAY = date(2025, 3, 12)


@pytest.mark.requirement("G-13")
@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("What do the minutes of March 2025 decide?", "2025-03-01", "2025-03-31"),
        ("the contract dated 2024-05-02 with Arbor", "2024-05-02", "2024-05-02"),
        ("documents from Q3 2024", "2024-07-01", "2024-09-30"),
        ("Which reports from this week name Birke?", "2025-03-10", "2025-03-16"),
        ("agreements signed in 2023", "2023-01-01", "2023-12-31"),
    ],
)
def test_period_said_of_documents_is_found(question: str, first: str, last: str) -> None:
    expected = Period(date.fromisoformat(first), date.fromisoformat(last))
    assert find_entities(question, TODAY).period == expected


@pytest.mark.parametrize(
    "question",
    [
        "How many deliveries were late in March 2025?",
        "Which contract regulates deliveries after the harvest?",
        "minutes of 2024-13-45",
    ],
)
def test_other_questions_name_no_period(question: str) -> None:
    assert find_entities(question, TODAY).period is None


def test_relative_periods_need_a_today() -> None:
    assert find_period("last year", None) is None
    assert find_period("2024", None) == Period(date(2024, 1, 1), date(2024, 12, 31))
    december = Period(date(2024, 12, 1), date(2024, 12, 31))
    assert find_period("last month", date(2025, 1, 9)) == december


@pytest.mark.parametrize(
    ("question", "types"),
    [
        ("What notice period does the contract with Arbor set?", ("contract",)),
        ("Compare the travel policy and the handbook", ("policy", "manual")),
        ("Who contracted the flu?", ()),
    ],
)
def test_kinds_of_documents_are_found_as_whole_words(question: str, types: tuple[str, ...]) -> None:
    assert find_entities(question, TODAY).document_types == types


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("What is due for INV-2024-0117?", ("inv-2024-0117",)),
        ("Which valve is part AX7/20.B?", ("ax7/20.b",)),
        ("What happened in 2024 to 12 orders?", ()),
        ("", ()),
    ],
)
def test_exact_terms_have_digits(question: str, terms: tuple[str, ...]) -> None:
    assert exact_terms(question) == terms


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Rated pressure of HX-2455-A?", ("hx-2455-a",)),
        ("rated pressure of hx-2455-a", ()),
        ("Q3-2024, FY2024, 2024/H1 or Q1/2025", ()),
        ("a 30-day notice on 2024-05-13 of 50000 in 4.12.3", ()),
        ("A7 or B2B", ()),
        ("FY24-25 and FY2024-25 within 100GB or 2.5MWh", ()),
    ],
)
def test_codes_are_written_one_way_only(question: str, found: tuple[str, ...]) -> None:
    assert codes(question) == found


def test_terms_are_found_however_their_parts_are_separated() -> None:
    for term, text, found in [
        ("covid-19", "rules for covid 19 apply", True),
        ("covid-19", "covid\u201119", True),
        ("iso27001", "certified to iso 27001.", True),
        ("hx-2455-a", "valve hx2455a", True),
        ("ｉso-27001", "iso 27001", True),
        ("第12-3条", "見よ 第12-3条", True),
        ("inv-12-77", "inv-12-778", False),
        ("inv-12-77", "xinv-12-77", False),
        ("inv-12-77", "inv of 12 and 77", False),
    ]:
        assert holds(text, term) is found, (term, text)


def test_hostile_question_is_read_in_linear_time() -> None:
    assert find_entities("contract of " * 20_000, TODAY).period is None
    assert exact_terms("a-" * 50_000 + "1") == ()
    assert codes("A-" * 50_000 + "11") == ()
