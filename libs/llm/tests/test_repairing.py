"""A repair shows what to mend, and never a loop."""

import json

import pytest
from pydantic import BaseModel

from bos_llm.replies.repairing import is_looping, repair
from bos_llm.replies.schema import JsonSchema


class Tables(BaseModel):
    tables: list[str]


SCHEMA = JsonSchema.of(Tables)
LOOP = '{"tables": ["customers(id, name)"' + ', "customers(id, name)"' * 60


def test_a_reply_is_shown_with_what_is_wrong_and_the_form() -> None:
    shown, complaint = repair('{"table": 1}', "tables: Field required", SCHEMA, truncated=False)
    assert shown == '{"table": 1}'
    assert complaint.startswith("Your reply is not a valid Tables:\ntables: Field required\n")
    assert complaint.endswith(SCHEMA.form)
    assert "at most" not in complaint


def test_a_long_reply_is_shown_in_part_and_thoughts_not_at_all() -> None:
    text = "".join(map(str, range(10_000)))
    assert repair(text, "x", SCHEMA, truncated=False)[0] == text[:4000]
    assert repair("<think>hm</think>{}", "x", SCHEMA, truncated=False)[0] == "{}"
    assert repair("<think>hm", "x", SCHEMA, truncated=False)[0] == ""


@pytest.mark.parametrize(
    ("text", "truncated"), [(LOOP, True), (LOOP, False), (LOOP + "]", False), (LOOP[:500], True)]
)
def test_loop_or_cut_reply_is_hardly_shown_and_brevity_asked_for(
    text: str, truncated: bool
) -> None:
    shown, complaint = repair(text, "x", SCHEMA, truncated=truncated)
    assert shown == text[:300]
    assert "at most 5 items per list" in complaint
    assert complaint.endswith(SCHEMA.form)


@pytest.mark.parametrize(
    "text",
    [LOOP, LOOP + '"]}', LOOP[:-7], '{"a": "' + "\n" * 300, "ha" * 150, "x" + "0123456789" * 30],
)
def test_repetitions_at_the_end_are_a_loop(text: str) -> None:
    assert is_looping(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "]" * 100,
        LOOP[:120],
        LOOP + ' "and then something else that is not repeated"',
        json.dumps({"rows": [[n, n * n, f"row {n}"] for n in range(200)]}),
        json.dumps({"rows": [{"region": "North", "sum": n * 17} for n in range(100)]}),
    ],
)
def test_other_endings_are_none(text: str) -> None:
    assert not is_looping(text)
