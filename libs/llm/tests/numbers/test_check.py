"""Numbers of texts, compared with those of their sources."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from bos_llm.numbers.check import ungrounded_numbers

pytestmark = pytest.mark.requirement("K-06")

HELD: list[tuple[str, list[Any]]] = [
    ("The share is 43.7%.", [Decimal("0.43689")]),
    ("Der Anteil beträgt 43,7 Prozent.", [Decimal("0.43689")]),
    ("Rs. 5.46 lakh in 3 months", [Decimal("546123.2")]),
    ("about 1.5 million, rund 1,5 Mio.", [1_500_000]),
    ("Rs.1,75,206.00 since 2025-07-01", [{"revenue": Decimal("175206")}, date(2025, 7, 1)]),
    ("Der Umsatz war 1.234.567,89 €, davon 1.234 neu.", [Decimal("1234567.89"), 1234]),
    ("Le total est de 1 234,56 €.", [1234.56]),
    ("合計は1億2345万円", [123_450_000]),
    ("between 2.5 and 3.5 million, 2.5–3.5 million", ["2.5 and 3,500,000", 2_500_000]),
    ("the top 5 100 items", [100]),
    ("It fell by 3.5", [-3.5]),
    ("the top 5 of 12 months", []),
    ("ISO27001 and COVID-19 at 12:45 in v10.2.37, the 45th", []),
    ("Version 6.6.6 runs at 10.0.0.1.", ["６.6.6 runs", {"at": ["10.0.0.1"]}]),
    ("40.0 is held", ["40.05"]),
    ("40.0 is held", ["5", "39.94", "40.04", "50"]),
    ("40.0 is held", ["0.4004"]),
    ("12 rows, 47 values", [[*range(47)]]),
    ("900 and 1100", ["100,200,300,400,500,600,700,800,900,1000,1100,1200"]),
]
STRANGE: list[tuple[str, list[Any], list[str]]] = [
    ("The share is 44.7%.", [Decimal("0.437")], ["44.7"]),
    ("It is 12%.", [], ["12"]),
    ("Deploy 6.6.6 by 1.2.26 for 1.234.567.", ["6.6.7", 1234567], ["6.6.6"]),
    ("about 2 million", [1234], ["2"]),
    ("in 2019", ["2025"], ["2019"]),
    ("Der Umsatz war 1.236 €, dann 1.234,57 €.", [1234.56], ["1.236", "1.234,57"]),
    ("12.000 Stück", [12], []),
    ("12.000 Stück", [], ["12.000"]),
    ("the top 5 100 items", [5], ["5 100"]),
    ("40.0 is not", ["39.94", "40.06"], ["40.0"]),
]


def test_numbers_of_the_sources_are_held_in_every_format() -> None:
    found = {text: ungrounded_numbers(text, sources) for text, sources in HELD}
    assert not {text: strange for text, strange in found.items() if strange}


def test_numbers_of_no_source_are_found() -> None:
    wrong = []
    for text, sources, strange in STRANGE:
        if (found := ungrounded_numbers(text, sources)) != strange:
            wrong.append((text, found))
    assert not wrong
