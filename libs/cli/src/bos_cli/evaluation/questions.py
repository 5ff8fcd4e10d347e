"""Sets of questions: the YAML format, strictly parsed."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bos_errors import InvalidArgument

_MAX_BYTES = 64 * 1024 * 1024
_MAX_QUESTIONS = 20_000
_MAX_CRITERIA = 20

Cell = bool | int | Decimal | datetime | date | str | None
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
Criterion = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class Model(BaseModel):
    """Strict: a misspelt key is an error, a text is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Expected(Model):
    """What an answer is held to; what is not given is not checked."""

    agents: list[str] | None = None
    """Agents of the plan, in any order."""
    rows: list[list[Cell]] | None = None
    """Rows of a table of the result, with columns in this order."""
    ordered: bool = False
    """Whether the order of the rows counts."""
    tolerance: Decimal = Field(default=Decimal(0), ge=0, strict=False)
    """Largest difference between numbers that are equal."""
    mentions: list[Cell] = []
    """Texts and numbers that the answer states."""
    cites: list[str] = []
    """Texts in titles, references or passages of the sources, each in another or the same one."""
    criteria: list[Criterion] = Field(default=[], max_length=_MAX_CRITERIA)
    """What the answer has to do, in plain words; graded by a model, where one is named."""
    asks: bool = False
    """Whether the user is asked back, instead of an answer."""
    approval: bool = False
    """Whether the run waits for an approval, which is not given."""
    max_calls: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)


class Question(Model):
    """One question, and what its answer is held to."""

    id: Text
    question: Text
    kind: str = ""
    backend: str = ""
    """Name of the database to ask; empty for the agent's own."""
    context: dict[str, Any] = {}
    expect: Expected = Expected()


class QuestionSet(Model):
    """Questions with a name and the context that all of them carry."""

    name: Text
    context: dict[str, Any] = {}
    questions: list[Question] = Field(min_length=1, max_length=_MAX_QUESTIONS)

    @model_validator(mode="after")
    def _ids_are_unique(self) -> QuestionSet:
        seen: set[str] = set()
        for each in self.questions:
            if each.id in seen:
                raise ValueError(f"the id {each.id!r} is given twice")
            seen.add(each.id)
        return self


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Numbers with a point are decimals: 0.1 is what it says."""


_Loader.add_constructor(
    "tag:yaml.org,2002:float", lambda loader, node: _decimal(loader.construct_scalar(node))
)


def read_set(path: Path) -> QuestionSet:
    """Read the set in the file at ``path``.

    Raises:
        InvalidArgument: it cannot be read or its shape is invalid; names the entry.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidArgument(f"{path}: larger than {_MAX_BYTES} bytes.")
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  safe
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read ({type(error).__name__}).") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidArgument(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    return parse_set(content, str(path))


def parse_set(content: Any, origin: str) -> QuestionSet:
    """Check the shape of a set.

    Raises:
        InvalidArgument: names the first entry that is wrong.
    """
    try:
        return QuestionSet.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidArgument(f"{origin}: {place or 'the set'}: {first['msg']}.") from error


def _decimal(text: str) -> Decimal | str:
    try:
        return Decimal(text.replace("_", ""))
    except ArithmeticError:
        return text
