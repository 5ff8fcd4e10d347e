"""The form of a reply says in few words what its schema says."""

from __future__ import annotations

import enum
from typing import Any, Literal

from pydantic import BaseModel, Field

from bos_llm.replies.schema import JsonSchema
from bos_testkit.scripted_model.wire import count_tokens


class Named(BaseModel):
    """For developers."""

    name: str = Field(description="Name of\n  the value.")
    value: str = Field(description="The value")


class Step(BaseModel):
    """For developers."""

    step_id: str = Field(description="Unique, beginning with a letter")
    agent: str = Field(description="Name of one of the agents")
    task: str = Field(description="What the agent is to do, complete in itself")
    tool_name: str | None = Field(default=None, description="One of the agent's tools, or null")
    inputs: list[Named] = Field(default=[], description="Named inputs; the place for references")
    depends_on: list[str] = Field(default=[], description="Steps to wait for")
    is_final_answer: bool = Field(
        default=False, description="True only if its words are the answer"
    )


class Plan(BaseModel):
    """For developers."""

    reason: str = Field(default="", description="Why these agents, in one sentence")
    intent: Literal["DATA_QA", "GENERAL_QA", "OUT_OF_SCOPE"] = Field(
        description="What is asked for"
    )
    confidence: float = Field(default=0.0, description="From 0 to 1")
    entities: list[Named] = Field(default=[], description="Details: period, metric, names")
    steps: list[Step] = Field(default=[], description="The steps, in order")


class Review(BaseModel):
    checks: str = Field(description='one line: "tables", joins')
    is_correct: bool
    corrected_sql: str | None = None


class Colour(enum.Enum):
    """For developers."""

    RED = "red"
    BLUE = "blue"


class Tree(BaseModel):
    colour: Colour
    count: int | None
    kind: Literal["tree"] = "tree"
    pair: tuple[int, str] = (1, "a")
    free: dict[str, float] = {}
    anything: Any = None
    rows: list[list[str | float | None]] = []
    children: list[Tree] = []


HEAD = "### Reply\nReply with one JSON object ({}) and nothing else, in this form:\n"


def test_a_form_is_compact() -> None:
    assert JsonSchema.of(Review).form == HEAD.format("Review") + (
        '{"checks": "one line: \'tables\', joins…",\n'
        '"is_correct": true or false,\n'
        '"corrected_sql": "…" or null}'
    )


def test_nested_objects_are_written_out_once() -> None:
    form = JsonSchema.of(Plan).form
    assert form.count('"name": "Name of the value…"') == 1
    assert '"inputs": [{as in "entities"}] (Named inputs; the place for references)' in form
    assert '"intent": "DATA_QA" or "GENERAL_QA" or "OUT_OF_SCOPE" (What is asked for)' in form
    assert '"tool_name": "One of the agent\'s tools…" or null' in form


def test_every_kind_of_field_has_a_form_and_recursion_an_end() -> None:
    assert JsonSchema.of(Tree).form == HEAD.format("Tree") + (
        '{"colour": "red" or "blue",\n'
        '"count": whole number or null,\n'
        '"kind": "tree",\n'
        '"pair": [whole number, "…"],\n'
        '"free": {"…": number},\n'
        '"anything": any JSON value,\n'
        '"rows": [["…" or number or null]],\n'
        '"children": [{as in the whole reply}]}'
    )


def test_plan_s_form_takes_few_tokens_and_is_same_each_time() -> None:
    form = JsonSchema.of(Plan).form
    assert count_tokens(form) < 260
    assert form == JsonSchema.of(Plan).form


def test_docstrings_of_fields_alone_are_sent() -> None:
    for model in (Plan, Tree):
        schema = JsonSchema.of(model)
        sent = f"{schema.response_format}{schema.form}"
        assert "For developers" not in sent
    assert "Unique, beginning with a letter" in f"{JsonSchema.of(Plan).response_format}"


class Bounded(BaseModel):
    name: str = Field(min_length=1, max_length=5, pattern="^[a-z]+$")
    count: int = Field(ge=0, le=9, description="At most 9")
    tags: list[str] = Field(min_length=1)


def test_bounds_of_fields_are_checked_and_not_sent() -> None:
    schema = JsonSchema.of(Bounded)
    assert schema.schema["properties"] == {
        "name": {"type": "string"},
        "count": {"type": "integer", "description": "At most 9"},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    assert schema.read('{"name": "a", "count": 1, "tags": ["b"]}').count == 1
