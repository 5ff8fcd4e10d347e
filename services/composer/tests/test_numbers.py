"""Formatting of numbers by locale."""

from decimal import Decimal

import pytest

from bos_chassis.values import to_value
from bos_composer.numbers import NumberFormat
from bos_composer.settings import ComposerSettings
from bos_errors import ConfigurationError

pytestmark = pytest.mark.requirement("K-05")

INDIAN = NumberFormat("en_IN", "INR")


def test_indian_rupees_are_the_default() -> None:
    settings = ComposerSettings.load()
    numbers = NumberFormat(settings.locale, settings.currency, settings.currency_pattern)
    amounts = {
        "0": "Rs.0.00",
        "999.995": "Rs.1,000.00",
        "2.675": "Rs.2.68",
        "-1234567.5": "-Rs.12,34,567.50",
        "123456789012345.67": "Rs.12,34,56,78,90,12,345.67",
    }
    assert {amount: numbers.money(Decimal(amount)) for amount in amounts} == amounts


def test_locale_and_currency_are_settings() -> None:
    for locale, currency, pattern, written in (
        ("en_US", "USD", None, "$175,206.00"),
        ("de_DE", "EUR", None, "175.206,00\N{NO-BREAK SPACE}€"),
        ("ja_JP", "JPY", None, "\N{FULLWIDTH YEN SIGN}175,206"),
        ("en_GB", "GBP", "'GBP' #,##0", "GBP 175,206"),
    ):
        assert NumberFormat(locale, currency, pattern).money(Decimal(175206)) == written


def test_instruction_for_the_model_shows_the_format_of_amounts() -> None:
    assert INDIAN.money_rule == (
        "Currency: Indian rupees in the format `Rs.1,75,206.00` (not ₹ or INR)."
    )
    assert NumberFormat("en_US", "USD").money_rule == (
        "Currency: US dollars in the format `$175,206.00`."
    )


def test_names_of_columns_distinguish_money_from_other_numbers() -> None:
    for name, value, written in (
        ("total_revenue", Decimal("175206"), "Rs.1,75,206.00"),
        ("unitPrice", 99.5, "Rs.99.50"),
        ("line_amount", 12, "Rs.12.00"),
        ("payment_days", 12, "12"),
        ("discount_percent", Decimal("12.50"), "12.5"),
        ("orders", 1234567, "12,34,567"),
        ("customer_id", 1234567, "1234567"),
        ("fiscal_year", 2026, "2026"),
        ("ratio", 0.1 + 0.2, "0.3"),
        ("revenue", None, "null"),
        ("revenue", "n/a", "n/a"),
        ("revenue", float("nan"), "NaN"),
        ("flag", True, "true"),
        ("price", Decimal("1E+80"), "1" + "0" * 80),
    ):
        assert INDIAN.cell(name, to_value(value)) == written, name


def test_unknown_locale_or_currency_fails_the_start() -> None:
    for field, value in (("locale", "xx_YY"), ("locale", ""), ("currency", "XYZ1")):
        with pytest.raises(ConfigurationError, match=f"BOS_COMPOSER_{field.upper()}"):
            ComposerSettings.load(**{field: value})


def test_locale_is_accepted_in_bcp_47_spelling() -> None:
    assert ComposerSettings.load(locale="de-DE", currency="eur").currency == "EUR"
