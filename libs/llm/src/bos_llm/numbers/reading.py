"""Reading of numbers in text of any locale: each with all values that it may stand for. Pure.

===================================  ============================================================
Written                              Read as
===================================  ============================================================
``1,234.56`` ``1.234,56``            1234.56; two kinds of separators leave no doubt
``1 234,56`` ``1'234.56``            1234.56; spaces of any width, apostrophes, ``_`` and ``٬``
``1,23,456.78``                      123456.78; Indian groups
``1.234`` ``1,234``                  1234 or 1.234; the text alone does not decide
``١٬٢٣٤`` ``१,२३४`` ``１，２３４``          digits of all scripts
``1.2 million`` ``3 लाख`` ``5万``       with the scale; ``billion`` is 10⁹ or 10¹²
``1億2345万`` ``1 crore 37 lakh``      123450000 and 13700000
``1.2e6`` ``1.2 × 10⁶``               1200000
``2.5–3.5 million``                  the scale of a range may hold for both ends
===================================  ============================================================

Left alone, as they are no amounts: names (``ISO27001``, ``COVID-19``, ``Q3``), versions and
addresses (``1.2.3``), times (``12:30``), ordinals (``21st``). Of a date, its year is read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache

from bos_llm.numbers.units import is_currency

_MAX_DIGITS = 40
_SMALL = 31
_YEARS = range(1900, 2101)
_END_OF_DIGITS = 0x1FC00
"""Unicode has no decimal digits behind it."""
_SPACE = "\u00a0"
"""Stands for any space that does not break a line or is narrow."""
_LOOKS_LIKE = {
    **dict.fromkeys("\u2007\u2009\u202f\u2002\u2003\u2004\u2005\u2006\u2008\u200a", _SPACE),
    **dict.fromkeys("’‘ʼ′＇", "'"),
    **dict.fromkeys("−﹣－➖", "-"),
    **{"．": ".", "，": ",", "٫": ".", "、": ",", "％": "%", "٪": "%", "﹪": "%", "＋": "+"},
}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_TOKEN = re.compile(
    r"""(?P<date>(?<!\d)(?:\d{4}([-/.])\d{1,2}\2\d{1,2} | \d{1,2}([-/.])\d{1,2}\3\d{4})(?!\d))
      | (?P<time>(?<!\d)\d{1,2}:\d{2}(?::\d{2})?(?!\d))
      | (?P<number>\d+(?:(?:[.,'_٬\u00a0]|[ ](?=\d{3}(?!\d)))\d+)* | (?<![\w.])\.\d+)""",
    re.VERBOSE,
)
_POWER = re.compile(
    r"[eE]([+-]?\d{1,3})(?!\w)"
    r"|\s?[×x*·]\s?10(?:(?:\^|\*\*)\{?([+-]?\d{1,3})\}?|([⁻⁰¹²³⁴-⁹]+))(?!\d)"
)
# ``vom 1.1. bis 31.3.`` and ``14.30 Uhr``. At the end of a sentence ``12.5.`` is a decimal.
_MOMENT = re.compile(
    r"""(?:(?P<after>(?<=\bam[ ])|(?<=\bab[ ])|(?<=\bvom[ ])|(?<=\bbis[ ])|(?<=\bzum[ ])
          |(?<=\bund[ ])|(?<=\bdem[ ])|(?<=\bseit[ ]))|(?<![\w.,]))
        (?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.(?!\d)(?(after)|(?=[ ]?[a-zäöü,;–-]))
      | (?:[01]?\d|2[0-4])\.[0-5]\d(?=\s?(?:Uhr|h)\b)""",
    re.VERBOSE,
)
_LIST = re.compile(r"[1-9]\d*(?:,[1-9]\d*){2,}")
_ORDINAL = re.compile(r"(?:st|nd|rd|th|ère|er|ème|º|ª)(?!\w)|\.?[ºª]")
_NAMED = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u04ff][-_/]?$")
_PREFIX = re.compile(r"(?:^|[^A-Za-z])([A-Z]{3}|Rs|Fr|kr|zł)$")
_SIGN = re.compile(r"(?:^|[^\w\s)\]%.]|\s)-\s?$|^-\s?$")
_RANGE = re.compile(r"\s?(?:[-–—~〜～]|to|bis|à|a|до|से)\s?")

# Powers of ten by the words of languages; more than one where languages differ.
_SCALES: dict[str, tuple[int, ...]] = {
    word: powers
    for powers, words in (
        (
            (3,),
            "thousand thousands tausend tsd mille mil mila duizend tusen тысяч тысячи тысяча тыс",
        ),
        ((3,), "tys हज़ार हजार ألف آلاف هزار"),
        ((5,), "lakh lakhs lac lacs लाख"),
        ((6,), "million millions mn mio millionen millón millones milhão milhões milione milioni"),
        (
            (6,),
            "miljoen miljon miljoner milyon млн миллион миллиона миллионов mln مليون ملايين میلیون",
        ),
        ((7,), "crore crores cr करोड़ करोड"),
        (
            (9,),
            "bn milliarde milliarden mrd milliard milliards miliardo miliardi miljard miljarder",
        ),
        ((9,), "milyar млрд миллиард миллиарда миллиардов mld مليار میلیارد अरब bilhão bilhões"),
        ((9, 12), "billion billions"),
        ((9,), "md"),
        ((0, 6), "mi"),
        ((0, 9), "bi"),
        ((3, 12), "tn"),
        ((12,), "billionen billón billones трлн триллион"),
        ((12, 18), "trillion trillions"),
    )
    for word in words.split()
    for powers in [powers]
}
_LETTERS = {"k": 3, "l": 5, "m": 6, "b": 9}
_CHARACTERS = {
    **{"百万": 6, "千万": 7, "十億": 9, "十亿": 9},
    **{"千": 3, "万": 4, "萬": 4, "億": 8, "亿": 8, "兆": 12, "천": 3, "만": 4, "억": 8, "조": 12},
}
_PERCENT = "percent pct prozent percentage procent prosent porcento"
_PERCENTS = (*_PERCENT.split(), "per cent", "pour cent", "por ciento", "por cento", "per cento")
_WORD_AFTER = re.compile(
    r"[\s-]?(?:"
    rf"(?P<percent>%|‰|パーセント|प्रतिशत|درصد|(?:{'|'.join(_PERCENTS)})(?!\w))"
    rf"|(?P<thousands>mil\s(?:millones|milhões|M)|(?:thousand|lakh)\s(?:million|crore)s?|kcr)(?!\w)"
    rf"|(?P<word>{'|'.join(sorted(map(re.escape, _SCALES), key=len, reverse=True))})(?!\w)"
    rf"|(?P<character>{'|'.join(sorted(_CHARACTERS, key=len, reverse=True))}))"
    r"|(?P<letter>(?-i:[kKmMbBL]|[\s][kKM]))(?!\w)",
    re.IGNORECASE,
)
_COMPOUNDS = {"mil": 9, "thousand": 9, "lakh": 12, "kcr": 10}


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that a number may stand for."""

    value: Decimal
    unit: Decimal
    """Value of one unit of its last digit."""

    def scaled(self, power: int) -> Reading:
        """The same times a power of ten."""
        return Reading(self.value.scaleb(power), self.unit.scaleb(power))


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text."""

    written: str
    start: int
    end: int
    """Place behind it, its scale and percent sign included."""
    readings: tuple[Reading, ...]
    has_word: bool = False
    """Whether a scale or percent belongs to it."""
    parts: tuple[Number, ...] = ()
    """The same text as several numbers, where a space or comma may separate groups or numbers."""
    may_be_moment: bool = False
    """Whether it may be a day and month, or an hour and minute, with a point between them."""

    @property
    def is_trivial(self) -> bool:
        """Whether it may be a day or time, or is a small whole number: a count, day or rank."""
        whole = all(each.value == each.value.to_integral_value() for each in self.readings)
        small = all(abs(each.value) <= _SMALL for each in self.readings)
        return self.may_be_moment or (whole and small and not self.has_word)

    @property
    def may_be_year(self) -> bool:
        """Whether it is four digits that a year may have."""
        return len(self.written) == 4 and not self.has_word and self.readings[0].value in _YEARS


def read_numbers(text: str) -> list[Number]:
    """The numbers of ``text``, in order."""
    plain = text.translate(_same_length())
    found: list[Number] = []
    for match in _TOKEN.finditer(plain):
        if not found or match.start() >= found[-1].end:  # not the power of the one before
            found += _of_token(plain, match)
    found = _with_compounds(plain, found)
    found = _with_ranges(plain, found)
    return [_original(number, text) for number in found]


@cache
def _same_length() -> dict[int, str]:
    """Digits of all scripts and variants of signs, each as one character of ASCII."""
    digits = {
        code: str(unicodedata.decimal(chr(code)))
        for code in range(0x80, _END_OF_DIGITS)
        if unicodedata.category(chr(code)) == "Nd"
    }
    return digits | {ord(char): plain for char, plain in _LOOKS_LIKE.items()}


def _of_token(text: str, match: re.Match[str]) -> Iterator[Number]:
    start, end = match.span()
    if match["time"] or _is_named(text, start):
        return
    if match["date"]:
        year = re.search(r"\d{4}", match["date"])
        assert year is not None
        yield _whole(text, start + year.start(), start + year.end())
        return
    if _ORDINAL.match(text, end):
        return
    yield from _of_digits(text, start, end)


def _whole(text: str, start: int, end: int) -> Number:
    reading = Reading(Decimal(text[start:end]), Decimal(1))
    return Number(text[start:end], start, end, (reading,))


def _is_named(text: str, start: int) -> bool:
    """Whether the digits belong to a name, such as that of a norm; a currency is none."""
    before = text[max(0, start - 5) : start]
    if not _NAMED.search(before):
        return False
    prefix = _PREFIX.search(before)
    return prefix is None or (prefix[1].isupper() and not is_currency(prefix[1]))


def _of_digits(text: str, start: int, end: int) -> Iterator[Number]:
    written = text[start:end]
    readings = tuple(_readings(written)) if len(written) <= _MAX_DIGITS else ()
    several = not readings or " " in written or _LIST.fullmatch(written)
    parts = [*_parts(text, start, end)] if several else []
    if readings:
        yield _finished(text, start, end, readings, tuple(parts))
    else:
        yield from parts


def _parts(text: str, start: int, end: int) -> Iterator[Number]:
    """The numbers of a list, which is no number as a whole."""
    written = text[start:end]
    separator = next((each for each in (" ", _SPACE, "'", "_", "٬", ",") if each in written), "")
    if not separator:
        return
    for part in written.split(separator):
        if part:
            yield from _of_digits(text, start, start + len(part))
        start += len(part) + 1


def _readings(written: str) -> Iterator[Reading]:
    """All values of digits with separators; none if the separators make no sense."""
    kinds = list(dict.fromkeys(char for char in written if not char.isdigit()))
    if written.startswith("."):
        yield _decimal("0", written[1:])
    elif not kinds:
        yield _decimal(written, "")
    elif len(kinds) == 1:
        head, *rest = written.split(kinds[0])
        if len(rest) == 1 and kinds[0] in ".,":
            yield _decimal(head, rest[0])
        is_address = len(rest) == 3 and kinds[0] == "." and all(map(_is_byte, (head, *rest)))
        if _are_groups(head, rest) and not is_address:
            yield _decimal(head + "".join(rest), "")
    elif len(kinds) == 2 and kinds[1] in ".," and written.count(kinds[1]) == 1:
        whole, fraction = written.split(kinds[1])
        head, *rest = whole.split(kinds[0])
        if _are_groups(head, rest):
            yield _decimal(head + "".join(rest), fraction)


def _is_byte(digits: str) -> bool:
    return digits == "0" or (digits[0] != "0" and int(digits) < 256)


def _are_groups(head: str, rest: list[str]) -> bool:
    """Whether digits are grouped by threes, or in the Indian way by twos before the last three."""
    if not 1 <= len(head) <= 3 or head.startswith("0") or len(rest[-1]) != 3:
        return False
    sizes = {len(group) for group in rest[:-1]}
    return sizes <= {3} or (sizes == {2} and len(head) <= 2)


def _decimal(whole: str, fraction: str) -> Reading:
    value = Decimal(f"{whole}.{fraction}" if fraction else whole)
    return Reading(value, Decimal(1).scaleb(-len(fraction)))


def _finished(
    text: str, start: int, end: int, readings: tuple[Reading, ...], parts: tuple[Number, ...]
) -> Number:
    """The number with its sign, exponent and scale."""
    digits = end
    if power := _POWER.match(text, end):
        exponent = int((power[1] or power[2] or power[3]).translate(_SUPERSCRIPTS))
        readings, end = tuple(each.scaled(exponent) for each in readings), power.end()
    has_word = False
    if word := _WORD_AFTER.match(text, end):
        has_word, end = not word["letter"], word.end()
        powers = _powers(word)
        readings = tuple(each.scaled(each_power) for each in readings for each_power in powers)
    if _SIGN.search(text[max(0, start - 3) : start]):
        readings = tuple(Reading(-each.value, each.unit) for each in readings)
    is_moment = _MOMENT.match(text, start) is not None
    return Number(text[start:digits], start, end, readings, has_word, parts, is_moment)


def _powers(word: re.Match[str]) -> tuple[int, ...]:
    if word["percent"]:
        return (0, -1) if word["percent"] == "‰" else (0,)
    if word["letter"]:
        return (0, _LETTERS[word["letter"].strip().lower()])
    if word["character"]:
        return (_CHARACTERS[word["character"]],)
    if word["thousands"]:
        return (_COMPOUNDS[word["thousands"].lower().split()[0]],)
    return _SCALES[word["word"].lower()]


def _with_compounds(text: str, found: list[Number]) -> list[Number]:
    """Numbers with the parts of one as one: ``1億2345万``, ``1 crore 37 lakh``."""
    merged: list[Number] = []
    for number in found:
        last = merged[-1] if merged else None
        totals = _totals(text, last, number) if last else ()
        if last and totals:
            written = text[last.start : number.start + len(number.written)]
            parts = (last, number) if last.end < number.start else ()
            merged[-1] = Number(written, last.start, number.end, totals, True, parts)
        else:
            merged.append(number)
    return merged


def _totals(text: str, high: Number, low: Number) -> tuple[Reading, ...]:
    """Values of two numbers that are parts of one; none if they are two."""
    between = text[high.end : low.start]
    if between:
        are_scaled = high.has_word and low.has_word and low.readings[0].unit > 1
        are_one = between in (" ", _SPACE) and are_scaled
    else:
        are_one = text[high.end - 1] in _CHARACTERS
    return tuple(
        Reading(more.value + less.value, less.unit)
        for more in high.readings
        for less in low.readings
        if are_one and more.unit > less.value
    )


def _with_ranges(text: str, found: list[Number]) -> list[Number]:
    """Numbers with the scale that stands at the end of a range: ``2.5 to 3.5 million``."""
    for place in range(len(found) - 1):
        low, high = found[place], found[place + 1]
        between = text[low.end : high.start]
        if low.has_word or not high.has_word or not _RANGE.fullmatch(between):
            continue
        powers = [
            (each.unit / unscaled.unit).adjusted()
            for each, unscaled in zip(high.readings, _readings(high.written), strict=False)
        ]
        scaled = [each.scaled(power) for each in low.readings for power in powers if power]
        found[place] = replace(low, readings=(*low.readings, *scaled))
    return found


def _original(number: Number, text: str) -> Number:
    written = text[number.start : number.start + len(number.written)]
    parts = tuple(_original(part, text) for part in number.parts)
    return replace(number, written=written, parts=parts)
