"""Values and texts as they are shown; text of others without what hides or moves text."""

import unicodedata

import pytest

from bos.common.v1 import Usage, Value
from bos_client.text import as_it_is, one_line, passage_text, usage_text, value_text, visible
from bos_testkit.hostile import hostile_texts

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
JOINERS = {"\u200c", "\u200d"}


def hidden_in(text: str) -> set[str]:
    return {each for each in text if unicodedata.category(each) in HIDDEN}


@pytest.mark.security
def test_hostile_texts_are_shown_with_escapes_or_without_what_is_hidden() -> None:
    failing = []
    for case in hostile_texts():
        shown = as_it_is(case.text)
        # Letters that look like others are left to the gateway.
        escaped = [
            each
            for each in case.text
            if f"{{{ord(each):X}}}" in case.shown and each not in " \u0301\u212b\\"
        ]
        if hidden_in(shown) or any(each in shown for each in escaped):
            failing.append(f"as_it_is: {case.what}")
        if hidden_in(passage_text(case.text)) - JOINERS:
            failing.append(f"passage_text: {case.what}")
        if any(unicodedata.category(each) == "Cc" for each in one_line(case.text)):
            failing.append(f"one_line: {case.what}")
    assert failing == []


def test_long_names_are_truncated() -> None:
    assert (visible("abcdef", 4), passage_text("abcdef", 4), one_line("abcdef", 4)) == (
        *("abc…", "abc…", "abc…"),
    )
    assert visible("abcd", 4) == "abcd"


def test_names_are_escaped_and_texts_are_freed_of_what_is_not_seen() -> None:
    assert visible("a\u202efdp.exe\n") == "a\\u{202E}fdp.exe\\u{A}"
    assert passage_text("a\u202eb\x1b[31m  c\nd\u00ad") == "ab[31m c d"
    assert passage_text("می\u200cخواهم") == "می\u200cخواهم"


def test_values_read_as_they_are_stored() -> None:
    fields = {"b": Value(int64_value=1), "a": Value(string_value="é")}
    expected = [
        (Value(), ""),
        (Value(null_value=0), ""),
        (Value(bool_value=True), "true"),
        (Value(int64_value=-(2**63)), "-9223372036854775808"),
        (Value(double_value=2.0), "2"),
        (Value(double_value=0.1), "0.1"),
        (Value(decimal_value="175206.00"), "175206.00"),
        (Value(bytes_value=b"abc"), "<3 bytes>"),
        (Value(date_value={"year": 2026, "month": 6, "day": 5}), "2026-06-05"),
        (Value(timestamp_value={"seconds": 0}), "1970-01-01 00:00:00"),
        (Value(map_value={"fields": fields}), '{"a": "é", "b": 1}'),
        (Value(list_value={"values": [Value(), Value(decimal_value="1.0")]}), '[null, "1.0"]'),
    ]
    assert [
        (text, value_text(value)) for value, text in expected if value_text(value) != text
    ] == []


def test_usage_names_all_that_is_known() -> None:
    whole = Usage(
        model_calls=2,
        input_tokens=900,
        output_tokens=100,
        cached_input_tokens=800,
        abandoned_calls=2,
        unreported_tokens=500,
        cost_micros=4200,
    )
    assert usage_text(whole) == (
        "2 model calls, 1000 tokens (800 of them cached), 2 calls given up, "
        "up to 500 more of calls that were cut off, $0.0042"
    )
    assert usage_text(Usage(api_calls=3)) == ""
    assert usage_text(Usage(abandoned_calls=1)) == "0 model calls, 0 tokens, 1 call given up"
    assert usage_text(Usage(model_calls=1, input_tokens=7)) == "1 model call, 7 tokens"
    assert usage_text(Usage(unreported_tokens=5)).startswith("0 model calls, 0 tokens, up to 5")
