"""Formatting of numbers by locale, and units only where they are declared."""

from decimal import Decimal

import pytest

from bos_chassis.values import to_value
from bos_composer.numbers import NumberFormat
from bos_composer.settings import ComposerSettings
from bos_errors import ConfigurationError

pytestmark = pytest.mark.requirement("K-05")

INDIAN = NumberFormat("en_IN")


def test_no_currency_is_the_default() -> None:
    settings = ComposerSettings.load()
    numbers = NumberFormat(settings.locale, settings.currency)
    assert settings.currency == ""
    for name in ("amount", "revenue", "price", "total_paid", "salary"):
        assert numbers.cell(name, to_value(12)) == numbers.cell(name, to_value(12), "money") == "12"


def test_rupees_are_written_in_one_format() -> None:
    amounts = {
        "0": "Rs.0.00",
        "999.995": "Rs.1,000.00",
        "2.675": "Rs.2.68",
        "0.00345": "Rs.0.00345",
        "-1234567.5": "-Rs.12,34,567.50",
        "123456789012345.67": "Rs.12,34,56,78,90,12,345.67",
    }
    assert {amount: INDIAN.money(Decimal(amount), "INR") for amount in amounts} == amounts


def test_amounts_are_written_as_the_locale_writes_them() -> None:
    for locale, currency, written in (
        ("en_US", "USD", "$175,206.00"),
        ("de_DE", "EUR", "175.206,00\N{NO-BREAK SPACE}€"),
        ("ja_JP", "JPY", "\N{FULLWIDTH YEN SIGN}175,206"),
        ("de_DE", "INR", "175.206,00\N{NO-BREAK SPACE}₹"),
    ):
        assert NumberFormat(locale).money(Decimal(175206), currency) == written, locale
    amounts = {
        "0.0025": "$0.0025",
        "-0.004": "-$0.004",
        "-0.00": "$0.00",
        "1000.5": "$1,000.50",
        "1000.0000": "$1,000.00",
        "999.995": "$1,000.00",
    }
    assert {each: NumberFormat("en_US").money(Decimal(each), "USD") for each in amounts} == amounts


def test_units_are_those_of_the_table_the_name_and_the_deployment() -> None:
    with_default = NumberFormat("en_US", "EUR")
    for name, value, unit, written in (
        ("total_revenue", Decimal("175206"), "INR", "Rs.1,75,206.00"),
        ("total_revenue", Decimal("175206"), "", "1,75,206"),
        ("amount_usd", 1200, "", "$1,200.00"),
        ("amount_usd", 1200, "EUR", "€1,200.00"),
        ("net_amount", Decimal("175206.00"), "", "1,75,206.00"),
        ("discount", Decimal("22.8400"), "", "22.84"),
        ("share", 12.5, "%", "12.5%"),
        ("weight", 12, "kg", "12 kg"),
        ("amount", 12, "money", "12"),
        ("customer_id", 1234567, "", "1234567"),
        ("fiscal_year", 2026, "", "2026"),
        ("cost_center", 4711, "", "4711"),
        ("orders", 1234567, "", "12,34,567"),
        ("ratio", 0.1 + 0.2, "", "0.3"),
        ("revenue", None, "INR", "null"),
        ("revenue", "n/a", "INR", "n/a"),
        ("revenue", float("nan"), "INR", "NaN"),
        ("flag", True, "INR", "true"),
        ("price", Decimal("1E+80"), "INR", "1" + "0" * 80 + " INR"),
    ):
        assert INDIAN.cell(name, to_value(value), unit) == written, (name, value, unit)
    assert with_default.cell("amount", to_value(12), "money") == "€12.00"
    assert with_default.cell("amount", to_value(12)) == "12"


def test_unknown_locale_or_currency_fails_the_start() -> None:
    for field, value in (("locale", "xx_YY"), ("locale", ""), ("currency", "XYZ1")):
        with pytest.raises(ConfigurationError, match=f"BOS_COMPOSER_{field.upper()}"):
            ComposerSettings.load(**{field: value})


def test_locale_is_accepted_in_bcp_47_spelling() -> None:
    assert ComposerSettings.load(locale="de-DE", currency="eur").currency == "EUR"
