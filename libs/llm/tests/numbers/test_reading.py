"""Numbers read from text of any locale: right, or left alone."""

from decimal import Decimal

import pytest
from babel.numbers import format_compact_decimal, format_decimal, format_percent, format_scientific

from bos_llm.numbers.reading import read_numbers

pytestmark = pytest.mark.requirement("K-06")

LOCALES = (
    "en_US",
    "en_IN",
    "de_DE",
    "de_CH",
    "fr_FR",
    "es_ES",
    "pt_BR",
    "it_IT",
    "ru_RU",
    "pl_PL",
    "sv_SE",
    "ja_JP",
    "zh_CN",
)
DIGITS = {"ar_EG": "arab", "fa_IR": "arabext", "hi_IN": "deva", "mr_IN": "deva", "bn_BD": "beng"}
VALUES = (
    *("0.5", "3", "12.34", "999", "1234", "1234.5", "98765.43", "123456", "1234567.89"),
    *("-42.75", "-1234567", "175206", "12345678901", "0.00345"),
)


def values_of(text: str) -> list[set[Decimal]]:
    return [{each.value for each in number.readings} for number in read_numbers(text)]


def written() -> dict[tuple[str, str], str]:
    """Texts by locale and exact value."""
    found: dict[tuple[str, str], str] = {}
    for locale in (*LOCALES, *DIGITS):
        system = DIGITS.get(locale, "latn")
        for value in VALUES:
            number = Decimal(value)
            text = format_decimal(
                number, locale=locale, decimal_quantization=False, numbering_system=system
            )
            found[locale, value] = text
            if locale in LOCALES:
                exact = format_scientific(number, locale=locale, decimal_quantization=False)
                found[f"{locale} scientific", value] = exact
            if abs(number) < 1000:
                share = format_percent(
                    number / 100, locale=locale, decimal_quantization=False, numbering_system=system
                )
                found[f"{locale} percent", value] = share
            elif locale in LOCALES:
                compact = format_compact_decimal(number, locale=locale, fraction_digits=0)
                found[f"{locale} compact", value] = compact
    return found


def test_numbers_of_all_locales_are_read_or_left_alone() -> None:
    texts, left, wrong = written(), [], []
    for (kind, value), text in texts.items():
        read = values_of(f"x {text}, y")
        wanted = Decimal(value)
        if not read:
            left.append((kind, value, text))
        elif "compact" in kind:
            near = any(abs(each / wanted - 1) < Decimal("0.35") for each in read[0])
            wrong += [] if near and len(read) == 1 else [(kind, value, text, read)]
        elif wanted not in read[0] or len(read) > 1:
            wrong.append((kind, value, text, read))
    assert len(texts) > 400
    assert not wrong
    assert not left


def test_text_decides_what_a_number_is() -> None:
    wrong = {}
    for text, wanted in (
        ("Rs.1,75,206.00 since 2025-07-01", [["175206"], ["2025"]]),
        ("1'234.56 and 1’234.56 and 1_000", [["1234.56"], ["1234.56"], ["1000"]]),
        ("１，２３４．５％", [["1234.5"]]),
        ("1億2345万, 3万5千, 百分之12", [["123450000"], ["35000"], ["12"]]),
        ("1.234 or 1,234", [["1.234", "1234"], ["1.234", "1234"]]),
        ("0.123 and 0,123", [["0.123"], ["0.123"]]),
        ("1.2e6, 1.2 × 10⁶, 5E-3", [["1200000"], ["1200000"], ["0.005"]]),
        ("5.46 lakh, 3 crore, 3 lakh crore", [["546000"], ["30000000"], ["3000000000000"]]),
        ("1,5 Mio. €, 3 Mrd, 2 billion", [["1500000"], ["3E9"], ["2E9", "2E12"]]),
        ("2.5–3.5 million", [["2.5", "2500000"], ["3500000"]]),
        ("-7, −7, 5-10, (3)", [["-7"], ["-7"], ["5"], ["10"], ["3"]]),
        ("US$5M, USD1,200.50, 5kg", [["5", "5000000"], ["1200.5"], ["5"]]),
        ("12.07.2025, 07/12/2025", [["2025"], ["2025"]]),
        ("1,2,3", [["1"], ["2"], ["3"]]),
        ("1.000.000.000, 9.876.543.210", [["1000000000"], ["9876543210"]]),
        ("350 × 105 = 36,750", [["350"], ["105"], ["36.750", "36750"]]),
        ("45 x 1050, 1920x1080", [["45"], ["1050"], ["1920"]]),
        ("2*10**6, 2 x 10^{6}, 2 × 10^-3, 2·10⁻³", [["2E6"], ["2E6"], ["0.002"], ["0.002"]]),
        ("1억 2,345만, 1 crore 37 lakh", [["100023450", "123450000"], ["13700000"]]),
        ("37 lakh 1 crore, 1 crore 5%", [["3700000"], ["1E7"], ["1E7"], ["5"]]),
        ("45‰, 45%", [["45", "4.5"], ["45"]]),
        ("ISO27001 COVID-19 Q3 FY24 v1.2.3 10.0.0.1 192.168.100.200 12:30 21st gpt-4", []),
        ("1" * 41, []),
    ):
        read = values_of(text)
        if read != [{Decimal(each) for each in number} for number in wanted]:
            wrong[text] = read
    assert not wrong


def test_a_space_or_comma_separates_groups_or_numbers() -> None:
    for text, parts in (
        ("5 100", ["5", "100"]),
        ("100,200,300", ["100", "200", "300"]),
        ("1,000,200", []),
        ("100,200,300.5", []),
        ("1 crore 37", ["1", "37"]),
    ):
        (number,) = read_numbers(f"the top {text} lakh")
        assert number.written == text
        assert [part.written for part in number.parts] == parts, text


def test_places_are_those_of_the_text() -> None:
    text = "Ende ١٬٢٣٤ und 1,5 Mio. €"
    first, second = read_numbers(text)
    assert (text[first.start : first.end], text[second.start : second.end]) == ("١٬٢٣٤", "1,5 Mio")
