"""Units of columns, where they are declared: a comment, or an ISO 4217 code in the name. Pure.

A word such as ``amount`` or ``price`` declares nothing: it can hold dollars, milligrams or a count.
"""

from __future__ import annotations

import re

MONEY = "money"
"""Unit of a column that is declared as money of an unnamed currency."""
PERCENT = "%"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Codes that mean nothing else at the end of a column's name.
_PLAIN_CODES = _words(
    "AED ARS AUD BRL CHF CNY CZK DKK EGP EUR GBP HKD HUF IDR ILS JPY KRW LKR MXN MYR NGN NZD PKR "
    "PLN RUB SGD THB TWD UAH USD ZAR"
)
# Other active codes: some are words (``all``, ``try``), terms (``cad``, ``php``) or
# abbreviations: ``sek`` of seconds, ``nok`` of rejected parts, ``inr`` of a blood value.
_CODES = _PLAIN_CODES | _words(
    "AFN ALL AMD ANG AOA AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BSD BTN BWP BYN BZD CAD CDF "
    "CLP COP CRC CUP CVE DJF DOP DZD ERN ETB FJD FKP GEL GHS GIP GMD GNF GTQ GYD HNL HTG INR IQD "
    "IRR ISK JMD JOD KES KGS KHR KMF KPW KWD KYD KZT LAK LBP LRD LSL LYD MAD MDL MGA MKD MMK MNT "
    "MOP MRU MUR MVR MWK MZN NAD NIO NOK NPR OMR PAB PEN PGK PHP PYG QAR RON RSD RWF SAR SBD SCR "
    "SDG SEK SHP SLE SOS SRD SSP STN SVC SYP SZL TJS TMT TND TOP TRY TTD TZS UGX UYU UZS VES VND "
    "VUV WST XAF XCD XOF XPF YER ZMW"
)
# Codes that are words or measures even there (``total_all``, ``price_top``, ``price_mad``).
_WORDS = _words("ALL CUP MAD MOP PEN TOP")
# Words of amounts; beside one of them any code is a currency.
_AMOUNTS = _words(
    "amount amounts balance bonus budget charge cost costs credit debit debt discount due "
    "earnings expense expenses fee fees fine freight gross income invoiced margin net paid pay "
    "payment payments premium price prices profit rent revenue salary sales spend spent subtotal "
    "sum tax total turnover value wage wages worth"
)
# Numbers that are no amounts in the named currency: rates, counts, keys, other scales.
_OTHERS = _words(
    "bn billion billions bps cent cents code conversion convert converted count country cr crore "
    "crores day days exchange factor flag from fx has id ids index is k key kilo lac lakh lakhs "
    "m mio million millions minor mn multiplier no num number numbers paise pct pence per percent "
    "percentage percentile pip pips pkey points qty quantity quote rank rate rates ratio region "
    "score share thousand thousands tsd units version vs year"
)
# Words of these that say nothing about the number in a sentence.
_OF_PROSE = _words("from is no per to")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COMMENTED = re.compile(
    r"\b(?i:in|currency(?: is)?:?|unit(?: is)?:?)\s+([A-Z]{3})\b|[(\[]\s*([A-Z]{3})\s*[)\]]"
)
_SCALED = re.compile(
    r"\b(?:thousands?|millions?|billions?|lakhs?|crores?|cents?|minor|paise|pence|mn|bn)\b|'000",
    re.IGNORECASE,
)


def is_currency(unit: str) -> bool:
    """Whether ``unit`` is an active ISO 4217 code in capital letters."""
    return unit in _CODES


def unit_in_name(name: str) -> str:
    """ISO 4217 code that the name of a column declares; empty if it declares none.

    The code stands at the end (``amount_usd``, ``netAmountEUR``, ``Price (INR)``), or before words
    of an amount (``usd_amount``). Names of rates, counts, keys and other scales declare none.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    codes = [word.upper() for word in words if word.upper() in _CODES - _WORDS]
    amounts = _AMOUNTS.intersection(words)
    if len(words) == 1 or not _OTHERS.isdisjoint(words):
        return ""  # a column ``usd`` may hold amounts or rates
    if len(codes) > 1 and amounts:
        codes = [code for code in codes if code in _PLAIN_CODES]
    if len(codes) != 1:
        return ""
    code: str = codes[0]
    if words[-1].upper() == code and (code in _PLAIN_CODES or amounts):
        return code
    return code if words[0].upper() == code and amounts else ""


def unit_in_comment(comment: str, name: str = "") -> str:
    """ISO 4217 code that the comment of a column declares, such as ``Net amount in EUR``.

    Comments and names of rates, counts, keys and other scales declare none.

    Args:
        comment: Of the column.
        name: Of the column.
    """
    found: set[str] = {match[1] or match[2] for match in _COMMENTED.finditer(comment)}
    codes = sorted(found & (_CODES - _WORDS))
    words = {word.lower() for word in _WORD.findall(comment)}
    named = {word.lower() for word in _WORD.findall(name)}
    if len(codes) != 1 or _SCALED.search(comment):
        return ""
    if not _OTHERS.isdisjoint(words - _OF_PROSE | named):
        return ""
    is_amount = codes[0] in _PLAIN_CODES or not words.isdisjoint(_AMOUNTS | {"currency"})
    return codes[0] if is_amount else ""
