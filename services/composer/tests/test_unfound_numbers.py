"""Numbers of answers that nothing shown to the model holds."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from bos_composer.unfound_numbers import shown_values, unfound_note, unfound_numbers

from . import conftest as make

pytestmark = pytest.mark.requirement("K-06")

SOURCES = [
    "What was the revenue of 2024? Contract of 45 months, order 88123.",
    {"revenue": Decimal("1752061.37"), "share": 0.4368, "customers": 1042, "loss": -350},
    [["Acme", 99000.5], ["Globex", 412]],
    "Limits 710,820,930; a cost of 1 crore 37 lakh and a rate of 12.6. Paid 0.055",
]
HELD = """
The revenue was Rs.17,52,061.37, 43.7 percent of it from Acme.
Der Umsatz betrug 1.752.061,37 €, also rund 1,75 Mio. €; Anteil 43,7 %.
Le chiffre d'affaires : 1 752 061,37 €, soit 43,68 %.
合計は175万2061円、約175万円。
More than 1,000 customers, almost 1.8 million, a loss of 350 and of −350.
In 2023 and 2025, on 2025-07-01 at 12:45, Q3, FY2026, the 45th, version 10.4.77, 14 days.
See [45], [51, 52] and [order 88123](https://example.com/77777?x=4242).
Vom 1.1. bis 31.3. und 15.12., am 4.7., um 14.30 Uhr und 22.15h, Satz 12.6.
Limits of 820 and 930, cost 1 crore 37 lakh or 13,700,000, paid 55‰.
101. Acme: 99,000.5
`SELECT 5555` and ``x = 6666``
```
limit 7777
```
~~~sql
SELECT 8888
~~~
ISO27001, COVID-19, A380 and 45-month contracts.
| Acme | 99,000.50 |
| Globex | 412 |
"""
UNFOUND = (
    ("The revenue was 1,752,071.37.", ["1,752,071.37"]),
    ("Der Umsatz betrug 1.752.071,37 €.", ["1.752.071,37"]),
    ("The share was 44.7%.", ["44.7"]),
    ("Up 12% from 413 to 412.", ["12", "413"]),
    ("It was 2.3 million, or 2,3 Mio.", ["2.3", "2,3"]),
    ("合計は190万円", ["190"]),
    ("More than 3,000 customers.", ["3,000"]),
    ("5555 `5555`", ["5555"]),
    ("Sum: 99,412.50 [2]", ["99,412.50"]),
    ("The year 3024 cost 2024.", ["3024"]),
    ("The share was 12.5. Costs fell by 32.12. and 14.75 h.", ["12.5", "32.12", "14.75"]),
    ("1 crore 38 lakh, 56‰", ["1 crore 38", "56"]),
    (f"[a](/{'1' * 1999}) [a](/ 5555)", ["5555"]),
    ("~~~\n1\n~~~\n6666", ["6666"]),
)


def test_numbers_that_something_shown_holds_are_not_named() -> None:
    assert named(HELD) == []


def named(text: str) -> list[str]:
    return unfound_numbers(text, SOURCES)


def test_numbers_that_nothing_holds_are_named_as_they_are_written() -> None:
    wrong = [(text, named(text)) for text, numbers in UNFOUND if named(text) != numbers]
    assert not wrong


def test_the_note_names_each_number_once_and_at_most_five() -> None:
    assert unfound_note("412 and 1042.", SOURCES) == ""
    assert unfound_note("77 and 77, 78.", SOURCES) == "Note: not found in the results: 77; 78."
    many = ", ".join(f"{n} items" for n in range(71, 78))
    note = unfound_note(many, SOURCES)
    assert note == "Note: not found in the results: 71; 72; 73; 74; 75 and 2 more."


def test_values_that_no_prompt_has_room_for_are_known() -> None:
    rows = [[n, n * 1_000_003] for n in range(150)]
    result = make.result(columns=["n", "value"], rows=rows, data={"deep": {"total": 31337}})
    text = "The last one is 149000447, the total 31,337 of 150 rows."
    assert unfound_numbers(text, shown_values([result])) == []
    assert unfound_numbers("It is 5,555,555.", shown_values([result])) == ["5,555,555"]
    assert unfound_numbers("It is 5,555,555.", [*shown_values([result]), [*range(20_001)]]) == []
    result.table.rows[3].values.add().decimal_value = "none"
    result.data.fields["day"].date_value.month = 13
    assert unfound_numbers(text, shown_values([result])) == []


async def test_the_note_follows_what_was_streamed(start: Callable[..., Any]) -> None:
    written = "Acme brought Rs.1,75,206.00, which is 43.1 percent of the total."
    rig = await start(make.fixture("share", ["which share"], text=written))
    asked = make.request(make.top_customers(), question="Which share has Acme?")
    deltas, output = await rig.compose(asked)
    note = "Note: not found in the results: 43.1."
    assert "".join(deltas) == output.answer == f"{written}\n\n{note}"
    _, output = await rig.compose(make.request(question="Which share has Acme?"))
    assert note not in output.answer
