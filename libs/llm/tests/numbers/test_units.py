"""Units that columns declare: no column has one that neither its name nor its comment declares."""

import pytest

from bos_llm.numbers.units import is_currency, unit_in_comment, unit_in_name

pytestmark = pytest.mark.requirement("K-05")

WORDS = """
codes: USD EUR GBP INR JPY CNY CHF AUD SEK PLN BRL ZAR
amounts: amount net_amount price revenue unit_cost salary order_value freight fee balance
others: {}_exchange_rate {}_to_usd amount_{}_thousands margin_{}_pct revenue_{}_mn orders_{}_count
bare: amount price revenue profit_margin paid_orders cost_center drug_quantity net_amount tax
bare: balance budget fee salary wage turnover spend payment total_paid outstanding money value
bare: gross_profit margin_percent discount_rate tax_rate interest_rate conversion_rate
bare: share ratio unit_price
bare: order_count orders invoices quantity qty units hours days score rank account_code currency
bare: currency_code iso_code customer_id invoice_no year month price_index amount_cents dose_mg
bare: weight_kg distance_km temperature voltage usd eur inr total_all price_top world_cup hash_php
bare: drawing_cad retry_try sum_mad total_pen flags_top list_all
bare: dauer_sek laufzeit_sek parts_nok lab_inr
"""


def words(kind: str) -> list[str]:
    lines = (line.removeprefix(f"{kind}: ") for line in WORDS.splitlines() if line.startswith(kind))
    return [word for line in lines for word in line.split()]


def test_no_column_has_a_currency_that_its_name_does_not_declare() -> None:
    wanted = dict.fromkeys(words("bare"), "")
    for code in words("codes"):
        low = code.lower()
        wanted |= {f"{name}_{low}": code for name in words("amounts")}
        wanted |= {each.format(low): "" for each in words("others")}
        wanted[f"netAmount{code}"] = wanted[f"Price ({code})"] = wanted[f"{low}_amount"] = code
    assert len(wanted) > 200
    wrong = {name: unit_in_name(name) for name in wanted if unit_in_name(name) != wanted[name]}
    assert not wrong


def test_comments_declare_one_currency_or_none() -> None:
    wrong = [
        comment
        for comment, code in (
            ("Net amount in EUR", "EUR"),
            ("Net amount (USD), without tax", "USD"),
            ("Currency: JPY", "JPY"),
            ("Converted from EUR to USD", ""),
            ("Either in EUR or in USD", ""),
            ("Revenue in EUR, thousands", ""),
            ("Revenue (USD million)", ""),
            ("Sum of the lines (SQL)", ""),
            ("in our own currency", ""),
            ("Paid to suppliers, in INR", "INR"),
            ("Currency: SEK", "SEK"),
            ("Test result (INR)", ""),
            ("Number of orders in ALL regions", ""),
            ("Total in ALL regions", ""),
            ("Lines of code in PHP", ""),
            ("Drawings made in CAD", ""),
            ("Rank (TOP)", ""),
            ("Number of invoices in EUR", ""),
            ("Exchange rate (USD)", ""),
            ("", ""),
        )
        if unit_in_comment(comment, "net") != code
    ]
    assert not wrong
    assert unit_in_comment("in EUR", "invoice_count") == ""


def test_codes_are_capital_letters() -> None:
    assert is_currency("EUR")
    assert not any(map(is_currency, ("eur", "kg", "%", "money", "", "XYZ")))
