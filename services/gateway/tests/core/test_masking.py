"""Credentials in what services say: each form of them becomes a mask, and nothing else does."""

import base64
import html
import json
import re
from itertools import product
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import AgentResult, ProposedAction
from bos.common.v1 import Row, Table, TraceEvent, Value
from bos.runlog.v1 import LogEvent, StepFinished
from bos_chassis.credentials.credential_forms import MAX_PARTS, MIN_SECRET_CHARS, TooManyParts
from bos_gateway.core.shown.masking import MaskedStream, Masker

SECRET = 'tök/en+47 "11"?x'
MASK = "[secret shop_token]"
MASKER = Masker({"shop_token": SECRET})


def encodings() -> dict[str, str]:
    content = SECRET.encode()
    query = quote(SECRET, safe="")
    return {
        "as it is": SECRET,
        "in a URL": quote(SECRET),
        "in a query": query,
        "in a query, small letters": re.sub("%..", lambda each: each[0].lower(), query),
        "in a form": quote_plus(SECRET),
        "in JSON": json.dumps(SECRET)[1:-1],
        "in JSON of UTF-8": json.dumps(SECRET, ensure_ascii=False)[1:-1],
        "in JSON of others": json.dumps(SECRET)[1:-1].replace("/", "\\/"),
        "in HTML": html.escape(SECRET),
        "in hex": content.hex(),
        "in hex, large letters": content.hex().upper(),
    }


@pytest.mark.security
def test_a_credential_is_masked_in_each_encoding() -> None:
    for form, encoded in encodings().items():
        assert MASKER.text(f"GET <{encoded}> failed") == f"GET <{MASK}> failed", form


@pytest.mark.security
@pytest.mark.parametrize("mark", ["", "…", "..."])
def test_a_credential_is_masked_where_a_text_was_truncated_in_it(mark: str) -> None:
    for before, masked in (
        (f"Key {SECRET[:-1]}", f"Key {MASK}"),
        (f"Key {SECRET[:6]}", f"Key {MASK}"),
        (f"Key {SECRET[:5]}", f"Key {SECRET[:5]}"),  # may be a word
        (f"Key {SECRET[:8]} and so on", f"Key {SECRET[:8]} and so on"),
        (f"{SECRET} and {quote(SECRET)[:20]}", f"{MASK} and {MASK}"),
    ):
        said, shown = before + mark, masked + mark
        result = AgentResult(answer=said)
        result.error.message = said
        result.table.rows.add().values.add().string_value = said
        MASKER.mask(result)
        assert result.answer == result.error.message == shown
        assert result.table.rows[0].values[0].string_value == shown
        assert MASKER.text(said, may_be_cut=True) == shown


@pytest.mark.security
def test_part_of_credential_stays_in_arguments_of_action() -> None:
    """As there is no mask that would be put together again to that part."""
    action = ProposedAction(summary=SECRET[:8])
    action.arguments.fields["part"].string_value = SECRET[:8]
    MASKER.mask(action)
    assert action.arguments.fields["part"].string_value == SECRET[:8]
    assert action.summary == MASK


@pytest.mark.security
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_credential_is_masked_in_base64_at_any_offset(encode: Any) -> None:
    for before, after in product((b"", b"a", b"ab", b"user:"), (b"", b"z", b"zz")):
        masked = MASKER.text(encode(before + SECRET.encode() + after).decode())
        left = masked.replace(MASK, "")
        assert MASK in masked, (before, after)
        # What is left are characters that hold bits of the neighbours.
        assert len(left) <= len(encode(before).decode()) + len(encode(after).decode()) + 4


def everywhere(text: str) -> AgentResult:
    """A result that says a text wherever a text can stand."""
    result = AgentResult(answer=text, highlights=["fine", text], assumptions=[text])
    result.table.CopyFrom(Table(rows=[Row(values=[Value(string_value=text)])]))
    result.table.columns.add(name=text)
    result.data.fields[text].list_value.values.add().map_value.fields[text].string_value = text
    result.data.fields["bytes"].bytes_value = b"\xff" + text.encode() + b"\0"
    result.partial_data.fields["decimal"].decimal_value = text
    result.error.message = text
    result.error.details[text].string_value = text
    result.clarification.questions.add(question=text, options=[text])
    result.proposed_actions.add(summary=text).arguments.fields["x"].string_value = text
    performed = result.performed_actions.add(action=ProposedAction(summary=text))
    performed.result.fields["x"].string_value = text
    result.sources.add(title=text, uri=text, excerpt=text)
    result.trace.append(TraceEvent(message=text, data={text: Value(string_value=text)}))
    return result


@pytest.mark.security
def test_a_credential_is_masked_wherever_a_message_can_hold_it() -> None:
    event = LogEvent(step_finished=StepFinished(step_id="a", result=everywhere(SECRET)))
    wanted = LogEvent(step_finished=StepFinished(step_id="a", result=everywhere(MASK)))
    MASKER.mask(event)
    assert event == wanted
    assert SECRET.encode() not in event.SerializeToString()


def test_messages_of_any_json_are_masked() -> None:
    context = Struct()
    context.update({"a": {SECRET: [SECRET, 1, None]}, "b": True})
    MASKER.mask(context)
    wanted = Struct()
    wanted.update({"a": {MASK: [MASK, 1, None]}, "b": True})
    assert context == wanted


def test_names_that_become_the_same_lose_no_value() -> None:
    result = AgentResult()
    result.data.fields[SECRET].int64_value = 1
    result.data.fields[MASK].int64_value = 2
    result.data.fields[quote(SECRET)].int64_value = 3
    MASKER.mask(result)
    assert sorted(result.data.fields) == [MASK, f"{MASK} (2)", f"{MASK} (3)"]
    assert sorted(value.int64_value for value in result.data.fields.values()) == [1, 2, 3]


def test_what_holds_no_credential_stays_as_it_is() -> None:
    result = everywhere("tök/e, k/en+47")
    before = result.SerializeToString(deterministic=True)
    MASKER.mask(result)
    assert result.SerializeToString(deterministic=True) == before


def test_short_ones_are_words_and_stay() -> None:
    assert Masker({"k": "x" * MIN_SECRET_CHARS}).text("x" * MIN_SECRET_CHARS) == "[secret k]"
    short = Masker({"k": "x" * (MIN_SECRET_CHARS - 1)})
    assert short.text("xxxxx") == "xxxxx"
    assert not short
    assert not Masker({})


@pytest.mark.security
@pytest.mark.parametrize("said", ["Bearer t0ken-4711", "t0ken-4711", "key-of-shop"])
def test_header_values_are_masked_with_and_without_their_scheme(said: str) -> None:
    headers = {"Authorization": "Bearer t0ken-4711", "X-Key": ["key-of-shop", 5]}
    masker = Masker({"api_headers": json.dumps(headers)})
    assert masker.text(f"<{said}>") == "<[secret api_headers]>"
    assert masker.text("Authorization") == "Authorization"


@pytest.mark.security
def test_of_headers_only_what_gives_access_is_masked() -> None:
    headers = {"Accept": "application/json", "X-Tenant": "orders", "X-Id": "a1b2c3d4e5f6a7b8c9d0e1"}
    masker = Masker({"api_headers": json.dumps(headers)})
    said = "SELECT * FROM orders; application/json"
    assert masker.text(said) == said
    assert masker.text(headers["X-Id"]) == "[secret api_headers]"


@pytest.mark.security
def test_halves_of_characters_are_no_credential_and_no_defect() -> None:
    masker = Masker({"api_headers": '{"X-Key": "\\ud800abcdef", "X-Token": "t0ken-4711"}'})
    assert masker.text("t0ken-4711") == "[secret api_headers]"


@pytest.mark.security
def test_credentials_of_too_many_parts_are_refused() -> None:
    def headers(count: int) -> dict[str, str]:
        values = {f"X-Key-{n}": f"value-{n:05}-" + "x" * 900 for n in range(count)}
        return {"api_headers": json.dumps(values)}

    most = headers(MAX_PARTS - 1)  # beside the text of them all
    assert Masker(most).text(most["api_headers"]) == "[secret api_headers]"
    with pytest.raises(TooManyParts):
        Masker(headers(MAX_PARTS))
    with pytest.raises(TooManyParts):
        Masker({f"key-{n}": f"secret-{n:05}" for n in range(MAX_PARTS + 1)})


@pytest.mark.security
def test_first_of_overlapping_credentials_is_masked() -> None:
    masker = Masker({"a": "abcdefgh", "b": "efghijkl", "c": "abcdef"})
    assert masker.text("abcdefghijkl") == "[secret a]ijkl"
    assert masker.text("xefghijkl") == "x[secret b]"
    assert masker.text("abcdefabcdefgh") == "[secret c][secret a]"


@pytest.mark.security
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_credential_is_masked_however_a_stream_cuts_it(size: int) -> None:
    said = f"a {SECRET} and {SECRET[:6]}, {base64.b64encode(SECRET.encode()).decode()} end|"
    stream = MaskedStream(MASKER)
    pieces = [stream.add(said[start : start + size]) for start in range(0, len(said), size)]
    assert "".join(pieces) == MASKER.text(said)


def test_without_credentials_a_stream_waits_for_nothing() -> None:
    assert MaskedStream(Masker({})).add("t") == "t"
    held = MaskedStream(MASKER)
    assert [held.add("x t"), held.add("ö"), held.add("r")] == ["x ", "", "tör"]


def test_a_mask_is_not_masked_again() -> None:
    masker = Masker({"a": "secret", "b": "secret-longer"})
    once = masker.text("secret-longer secret")
    assert once == "[secret b] [secret a]"
    assert masker.text(once) == once


@pytest.mark.security
def test_masked_forms_of_a_proposal_differ_and_hide_the_value() -> None:
    forms = encodings()
    action = ProposedAction(summary=forms["in hex"])
    for name, form in forms.items():
        action.arguments.fields[name].string_value = f"<{form}>"
    MASKER.mask(action)
    masked = {value.string_value for value in action.arguments.fields.values()}
    assert len(masked) == len(set(forms.values()))
    assert all(re.fullmatch(r"<\[secret shop_token( #\d+)?\]>", each) for each in masked)
    assert action.arguments.fields["as it is"].string_value == f"<{MASK}>"
    assert action.summary == MASK
    once = ProposedAction()
    once.CopyFrom(action)
    MASKER.mask(action)
    assert action == once, "a mask was masked"
