"""What is shown of a proposed action: all of it, visibly, and never the same for two actions."""

import hashlib
import string
import unicodedata
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bos.agent.v1 import ProposedAction, SideEffectClass
from bos.common.v1 import Value
from bos.gateway.v1 import Approval
from bos_agentkit.actions import action_digest
from bos_chassis.values import to_value
from bos_gateway.core.shown.display import (
    MAX_LINES,
    MAX_SHOWN_BYTES,
    MAX_TEXT_CHARS,
    MAX_TITLE_CHARS,
    action_display,
    approval_display,
)
from bos_gateway.core.shown.escapes import visible, visible_lines
from bos_testkit.hostile import confusable_values, hostile_texts

NOT_SEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def action(summary: str = "Do it.", tool: str = "act", **arguments: Any) -> ProposedAction:
    made = ProposedAction(action_id="a", tool=tool, summary=summary)
    for name, value in arguments.items():
        made.arguments.fields[name].CopyFrom(value if isinstance(value, Value) else to_value(value))
    made.digest = action_digest(tool, made.arguments)
    return made


def printed(made: ProposedAction) -> str:
    """The display as a client prints it: nothing but its lines."""
    shown = action_display(made)
    lines = [shown.title, shown.tool, *shown.notes]
    for block in shown.arguments:
        lines += [f"{block.label} ({block.type})", *block.lines]
    return "\n".join(lines)


def value_lines(value: Any) -> tuple[str, list[str]]:
    (block,) = action_display(action(x=value)).arguments
    return block.type, list(block.lines)


@pytest.mark.security
def test_nothing_is_invisible_in_a_summary_tool_name_or_value() -> None:
    for case in hostile_texts():
        made = action(
            case.text, case.text, **{case.text: case.text}, inner={case.text: [case.text]}
        )

        shown = action_display(made)

        named = next(block for block in shown.arguments if block.label != "inner")
        quoted = case.shown.replace('"', "\\u{22}")
        found = (shown.title, shown.tool, named.label)
        assert found == (case.shown, case.shown, f'"{quoted}"'), case.what
        assert (named.type, list(named.lines)) == ("text", [case.shown]), case.what
        nested = next(block for block in shown.arguments if block.label == "inner")
        lines = [f'"{quoted}" (list of 1):', f"    [1] (text): {case.shown}"]
        assert list(nested.lines) == lines, case.what
        assert not [each for each in printed(made) if each != "\n" and is_hidden(each)], case.what


@pytest.mark.security
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u0338= 5", "\\u{338}= 5"),  # would strike out what stands before the text
        ("a" + "\u0335" * 5, "a" + "\u0335" * 3 + "\\u{335}" * 2),
        ("a" + "\u20dd" * 5, "a" + "\u20dd" * 3 + "\\u{20DD}" * 2),
        ("Vi\u1ec7t \u05e9\u05c1\u05b8\u05b7", "Vi\u1ec7t \u05e9\u05c1\u05b8\u05b7"),
    ],
)
def test_marks_are_not_drawn_over_anything_but_their_letter(text: str, shown: str) -> None:
    assert visible(unicodedata.normalize("NFC", text)) == unicodedata.normalize("NFC", shown)


def is_hidden(character: str) -> bool:
    category = unicodedata.category(character)
    return category in NOT_SEEN or (category == "Zs" and character != " ")


@pytest.mark.security
@pytest.mark.parametrize(("what", "values"), confusable_values(), ids=lambda each: str(each)[:30])
def test_values_that_look_alike_are_shown_differently(what: str, values: list[Value]) -> None:
    for one, other in combinations(values, 2):
        assert action(x=one).digest != action(x=other).digest, "the corpus holds two equal values"
        assert printed(action(x=one)) != printed(action(x=other))


# Few characters, of the kinds that renderers stumble over, so that drawings collide if they can.
ALPHABET = '\\u{}"20E ():[]|1a,\n\r\t\u202e\u200b\u3164\u00a0\u0301\0'
texts = st.text(ALPHABET, max_size=6) | st.sampled_from(
    ["\\u{202E}", "\\u{5C}", "(2 more lines are not shown)", "1 | a", "[1] (text): a", "null"]
)
leaves = st.one_of(
    st.none().map(lambda _: Value(null_value=0)),
    st.booleans().map(lambda each: Value(bool_value=each)),
    st.integers(-2, 2).map(lambda each: Value(int64_value=each)),
    st.sampled_from([0.0, -0.0, 1.0, float("inf"), 1e22]).map(lambda e: Value(double_value=e)),
    st.sampled_from(["1", "1.0", "-1"]).map(lambda each: Value(decimal_value=each)),
    texts.map(lambda each: Value(string_value=each)),
    st.binary(max_size=2).map(lambda each: Value(bytes_value=each)),
    st.integers(0, 1).map(lambda each: Value(timestamp_value={"seconds": each, "nanos": each})),
    st.integers(1, 2).map(lambda day: Value(date_value={"year": 2026, "month": 1, "day": day})),
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: Value(list_value={"values": items}))
        | st.dictionaries(texts, inner, max_size=2).map(
            lambda fields: Value(map_value={"fields": fields})
        )
    ),
    max_leaves=5,
)
arguments = st.dictionaries(texts, values, max_size=3)


@pytest.mark.security
@given(arguments, arguments, texts, texts)
def test_two_actions_are_never_shown_alike(
    one: dict[str, Value], other: dict[str, Value], tool: str, summary: str
) -> None:
    first, second = action(summary, tool, **one), action(summary, tool, **other)
    assert (printed(first) == printed(second)) == (first.digest == second.digest)


@pytest.mark.security
@given(texts, texts)
@example("\u202e", "\\u{202E}")
def test_two_texts_are_never_shown_alike(one: str, other: str) -> None:
    assert (visible(one) == visible(other)) == (one == other)
    assert (visible_lines(one) == visible_lines(other)) == (one == other)


def test_what_an_action_does_and_rests_on_is_said() -> None:
    made = action()
    made.tainted = True
    made.side_effect = SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE
    assert list(action_display(made).notes) == [
        "rests on content that others wrote",
        "changes something; cannot be undone",
    ]
    assert list(action_display(action()).notes) == ["effect not declared: may not be undone"]


def test_bytes_are_shown_in_hex_with_their_size_and_digest() -> None:
    content = bytes(range(40))
    digest = hashlib.sha256(content).hexdigest()
    kind, lines = value_lines(content)
    assert kind == f"bytes, 40, sha256:{digest}"
    assert lines == [content[:32].hex(" "), content[32:].hex(" ")]
    _, lines = value_lines(bytes(MAX_SHOWN_BYTES))
    assert len(lines) == 8
    _, lines = value_lines(bytes(MAX_SHOWN_BYTES + 1))
    assert lines[8:] == ["(1 more bytes are not shown)"]


def test_the_lines_of_a_program_are_numbered() -> None:
    program = "import os\n\nfor x in y:\n    print(x) \n" + "pass\n" * 7
    kind, lines = value_lines(program)
    digest = hashlib.sha256(program.encode()).hexdigest()
    assert kind == f"text, 12 lines, {len(program)} characters, sha256:{digest}"
    assert lines[:4] == [" 1 | import os", " 2 | ", " 3 | for x in y:", " 4 |     print(x)\\u{20}"]
    assert lines[-1] == "12 | "


def test_long_texts_say_what_is_missing_and_have_a_digest() -> None:
    assert value_lines("x" * 200) == ("text", ["x" * 200])
    kind, lines = value_lines("x" * 201)
    assert kind == f"text, 201 characters, sha256:{hashlib.sha256(b'x' * 201).hexdigest()}"
    assert lines == ["x" * 201]
    _, lines = value_lines("x" * (MAX_TEXT_CHARS + 5))
    assert lines == ["x" * MAX_TEXT_CHARS, "(5 more characters are not shown)"]
    _, lines = value_lines("\n" * (MAX_LINES + 1))
    assert lines[MAX_LINES:] == ["(2 more lines are not shown)"]


def test_long_lists_differ_in_the_digest_of_the_truncated_part() -> None:
    one, other = list(range(MAX_LINES + 2)), [*range(MAX_LINES + 1), 7]
    (kind, lines), (other_kind, other_lines) = value_lines(one), value_lines(other)
    assert lines == other_lines
    assert lines[MAX_LINES:] == ["(2 more lines are not shown)"]
    assert kind != other_kind
    assert kind.startswith(f"list of {MAX_LINES + 2}, sha256:")
    assert value_lines(list(range(MAX_LINES)))[0] == f"list of {MAX_LINES}"


@pytest.mark.security
def test_display_of_nested_values_fits_into_a_message() -> None:
    deep: Any = [None] * 2000
    for _ in range(22):
        deep = [deep]
    made = action(**{f"a{number:02}": deep for number in range(32)})
    assert made.ByteSize() < 256 * 1024
    shown = approval_display(Approval(actions=[made] * 3))
    assert shown.ByteSize() < 2 * 1024 * 1024
    first, *_, last = shown.actions[0].arguments
    assert len(first.lines) == MAX_LINES + 1
    assert last.lines == ["(2022 more lines are not shown)"]
    assert last.type.startswith("list of 1, sha256:")


def test_long_summaries_say_what_is_missing() -> None:
    whole, cut = "x" * MAX_TITLE_CHARS, "x" * (MAX_TITLE_CHARS + 1)
    assert action_display(action(whole)).title == whole
    digest = hashlib.sha256(cut.encode()).hexdigest()
    assert action_display(action(cut)).title == f"{whole} (1 more characters, sha256:{digest})"


def test_a_name_is_in_quotes_unless_it_is_a_plain_word() -> None:
    shown = action_display(action(**{"api.key-1": 1, "a (text): b": 2, 'say "x"': 3}))
    assert [block.label for block in shown.arguments] == [
        '"a (text): b"',
        "api.key-1",
        '"say \\u{22}x\\u{22}"',
    ]


def test_a_list_of_requests_has_the_titles_alone() -> None:
    approval = Approval(task_description="Pay\u202e it\nnow", actions=[action("Pay\u202e", x=1)])
    whole, listed = approval_display(approval), approval_display(approval, whole=False)
    assert list(whole.task) == ["Pay\\u{202E} it", "now"]
    assert [block.label for block in whole.actions[0].arguments] == ["x"]
    assert not listed.task
    assert not listed.actions[0].arguments
    assert listed.actions[0].title == whole.actions[0].title == "Pay\\u{202E}"


def test_plain_text_is_shown_as_it_is() -> None:
    assert visible(string.printable.strip()) == string.printable.strip()
    assert visible("Grüße, 你好, שלום, हिन्दी") == "Grüße, 你好, שלום, हिन्दी"
