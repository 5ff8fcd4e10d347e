"""Out of any text a reply is read in bounded time, or refused with what is wrong with it."""

from __future__ import annotations

import json
import string
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from bos_llm.replies.json_scan import NoJson, find_objects, parse
from bos_llm.replies.schema import JsonSchema, UnusableReply
from bos_llm.replies.wire import Reply


class Item(BaseModel):
    name: str
    count: int = 0


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Order(BaseModel):
    items: list[Item]
    state: Literal["OPEN", "PAID"] = "OPEN"
    lead: Item | None = None
    note: str = "none"
    cells: list[list[str | float | None]] = []


class Facts(BaseModel):
    """All of it may be left out."""

    user: str | None = None
    projects: list[str] = Field(default_factory=list)


ORDER = JsonSchema.of(Order)
FACTS = JsonSchema.of(Facts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"items": ["a"]}', {"items": [{"name": "a"}]}),
        ('{"items": {"name": "a"}}', {"items": [{"name": "a"}]}),
        ('{"items": [{"name": "a", "count": null}]}', {"items": [{"name": "a"}]}),
        ('{"items": [{"name": 5, "count": "3"}]}', {"items": [{"name": "5", "count": 3}]}),
        ('{"items": ["{\\"name\\": \\"a\\"}"]}', {"items": [{"name": "a"}]}),
        ('{"items": [], "state": "paid"}', {"items": [], "state": "PAID"}),
        ('{"items": [], "state": null}', {"items": []}),
        ('{"items": [], "lead": "a"}', {"items": [], "lead": {"name": "a"}}),
        ('{"items": [],, "note": "x"} {"items": []}', {"items": []}),
    ],
)
def test_what_can_only_mean_one_thing_is_put_right(text: str, expected: dict[str, Any]) -> None:
    assert ORDER.read(text) == Order.model_validate(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"items": null}', "items: "),
        ('{"items": [null]}', "items.0: "),
        ('{"items": [{"count": 1}]}', "items.0.name: Field required"),
        ('{"items": [{"name": "a", "count": "many"}]}', "items.0.count: "),
        ('{"items": [], "state": "SHIPPED"}', "state: "),
        ('{"it ems": [], "items_": []}', "items: Field required"),
        ('{"other": {"items": []}}', "items: Field required"),
        ("5", "the reply: "),
    ],
)
def test_nothing_is_invented(text: str, problem: str) -> None:
    with pytest.raises(UnusableReply) as caught:
        ORDER.read(text)
    assert problem in str(caught.value)


def test_object_of_other_keys_is_no_value() -> None:
    assert FACTS.read("{}") == Facts()
    assert FACTS.read('{"Facts": {"user": "Ann"}}') == Facts(user="Ann")
    assert FACTS.read('See {x} and {}: {"user": "Ann"}, or {}.') == Facts(user="Ann")
    for text in ('{"error": "cannot"}', '{"example": {"user": "Ann"}}', "none: {}"):
        with pytest.raises(UnusableReply, match="none of the keys"):
            FACTS.read(text)


def test_of_several_values_the_last_counts() -> None:
    first, last = '{"items": ["a"]}', '{"items": ["b"]}'
    assert ORDER.read(f"{first} or rather {last}. Not {{}}.").items == [Item(name="b")]


def test_a_reply_that_was_cut_off_says_so_unless_it_is_whole() -> None:
    whole = Reply(text='Here: {"items": []} That is', finish_reason="length")
    assert ORDER.read_reply(whole) == Order(items=[])
    for text in ('{"items": []} Better: {"items": [', "", '{"items": ['):
        with pytest.raises(UnusableReply, match="cut off"):
            ORDER.read_reply(Reply(text=text, finish_reason="length"))


def test_unusable_text_is_reported_before_errors_of_a_tool_call() -> None:
    with pytest.raises(UnusableReply, match="items: Field required"):
        ORDER.read_reply(Reply(text="{}", tool_arguments="nonsense"))
    assert ORDER.read_reply(Reply(text="{}", tool_arguments='{"items": []}')) == Order(items=[])


_DEEP = 100_000
_HUGE = 1_000_000
_HOSTILE = {
    "objects in objects": '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "objects in objects, just too deep": '{"a":' * 2_000 + "1" + "}" * 2_000,
    "lists in lists": "[" * _DEEP + "]" * _DEEP,
    "open braces": "{" * _HUGE,
    "open braces and quotes": '{"' * (_HUGE // 2),
    "empty objects": "{}" * (_HUGE // 2),
    "objects in an object": "{" + "{x}" * 30_000 + "}",
    "quotes": "'" * _HUGE,
    "escaped quotes": "'" + "\\'" * 49_000,
    "backslashes": '{"a": "' + "\\" * 49_001,
    "fences": "```" * (_HUGE // 3),
    "opened thoughts": "<think>" * (_HUGE // 7),
    "empty thoughts": "<think></think>" * (_HUGE // 15),
    "closing tags": "</think>\n" * (_HUGE // 9),
    "end marks": "<|im_end|>" * (_HUGE // 10) + "x",
    "angle brackets": "<" * _HUGE,
    "white space": " \n" * (_HUGE // 2),
    "digits": '{"items": [{"name": "a", "count": ' + "9" * 50_000 + "}]}",
    "no number": '{"items": [{"name": "a", "count": NaN}]}',
    "half of a letter": '{"items": [{"name": "\\ud800"}]}',
    "items without end": '{"items": [' + '"a", ' * 200_000,
    "wrappers": '{"result": ' * 50 + '{"items": []}' + "}" * 50,
    "texts in texts": json.dumps(json.dumps(json.dumps(json.dumps(json.dumps(json.dumps("{}")))))),
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in _HOSTILE.items()])
def test_hostile_texts_are_refused(text: str) -> None:
    for reply in (Reply(text=text), Reply(tool_arguments=text), Reply(reasoning=text)):
        with pytest.raises(UnusableReply) as caught:
            ORDER.read_reply(reply)
        assert len(str(caught.value)) < 3_000


def test_a_large_reply_that_is_nothing_but_json_is_read() -> None:
    items = [{"name": "x" * 100, "count": n} for n in range(10_000)]
    assert len(ORDER.read(json.dumps({"items": items})).items) == 10_000


def test_values_are_mended_to_any_realistic_depth() -> None:
    nodes = JsonSchema.of(Node)
    text = '{"name": 1, "children": "leaf"}'
    for _ in range(10):
        text = f'{{"name": 1, "children": [{text}]}}'
    node = nodes.read(text)
    while node.children:
        node = node.children[0]
    assert node == Node(name="leaf")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_JSON)
def test_json_and_python_s_spelling_of_it_mean_the_same(value: Any) -> None:
    assert parse(json.dumps(value)) == value
    assert parse(json.dumps(value, ensure_ascii=False)) == value
    if "\\" not in repr(value):
        assert parse(repr(value)) == value


@given(st.dictionaries(st.text(max_size=4), _JSON, min_size=1, max_size=3), st.text(), st.text())
def test_an_object_is_found_in_any_prose_without_braces(
    value: dict[str, Any], before: str, after: str
) -> None:
    prose = str.maketrans("", "", "{}")
    found = find_objects(f"{before.translate(prose)} {json.dumps(value)} {after.translate(prose)}")
    assert [parse(each) for each in found.objects] == [value]
    assert not found.broken_off


@given(st.text(alphabet=string.printable, max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    for schema in (ORDER, FACTS):
        try:
            value = schema.read(text)
        except UnusableReply:
            continue
        assert isinstance(value, Order | Facts)


@pytest.mark.parametrize("text", ["", "'a", "{'a': b}", "Infinity", "[1 2]"])
def test_what_is_not_nearly_json_is_none(text: str) -> None:
    with pytest.raises(NoJson, match="Invalid JSON"):
        parse(text)
