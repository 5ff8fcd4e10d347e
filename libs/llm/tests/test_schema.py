from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from bos_llm.replies.schema import JsonSchema, UnusableReply


class Filter(BaseModel):
    """One condition."""

    column: str
    op: Literal["=", "<"] = "="


class Query(BaseModel):
    filters: list[Filter] = Field(default_factory=list)
    main: Filter = Field(description="The one that counts")
    limit: int | None = None


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Pets(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Free(BaseModel):
    inputs: dict[str, Any]


class FreeList(BaseModel):
    values: list[Any]


def test_a_schema_is_closed_and_requires_everything() -> None:
    schema = JsonSchema.of(Query)
    assert (schema.name, schema.strict) == ("Query", True)
    assert schema.schema["additionalProperties"] is False
    assert schema.schema["required"] == ["filters", "main", "limit"]
    inner = schema.schema["$defs"]["Filter"]
    assert inner["required"] == ["column", "op"]
    assert inner["additionalProperties"] is False
    assert "default" not in str(schema.schema)


def test_a_reference_beside_other_keys_is_written_out() -> None:
    main = JsonSchema.of(Query).schema["properties"]["main"]
    assert "$ref" not in main
    assert main["description"] == "The one that counts"
    assert main["required"] == ["column", "op"]


def test_a_tagged_union_becomes_any_of() -> None:
    pet = JsonSchema.of(Pets).schema["properties"]["pet"]
    assert set(pet) == {"anyOf"}


@pytest.mark.parametrize("model", [Free, FreeList])
def test_free_maps_and_values_turn_strict_mode_off(model: type[BaseModel]) -> None:
    schema = JsonSchema.of(model)
    assert not schema.strict
    assert schema.response_format["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("Sure!", "Invalid JSON"),
        ('{"column": ', "Invalid JSON"),
        ("[]", "the reply: Input should be an object"),
        ('{"op": "="}', "column: Field required"),
        ('{"column": "a", "op": ">"}', "op: Input should be '=' or '<'"),
    ],
)
def test_problem_of_a_reply_is_described(text: str, problem: str) -> None:
    with pytest.raises(UnusableReply) as caught:
        JsonSchema.of(Filter).read(text)
    assert problem in str(caught.value)


def test_description_of_many_problems_is_bounded() -> None:
    with pytest.raises(UnusableReply) as caught:
        JsonSchema.of(Query).read(str([{}] * 500).replace("[{", '{"filters": [{', 1) + "}")
    assert len(str(caught.value)) < 3000
