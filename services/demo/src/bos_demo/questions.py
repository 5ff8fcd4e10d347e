"""Demo questions with their plans, queries, scripted answers and expected facts.

`questions/*.yaml` holds them, one file per kind: `sql`, `computation`, `chains`, `parallel`, `talk`
for what needs no agent, `uploads` for what is asked of an uploaded file, `documents` for what needs
the company's documents, `apis` for what needs its REST API, `web` for what needs the demo's public
site, `files` for what becomes a file of the workspace, `charts` for what is drawn, `reports` for
several queries in sections, `texts` for texts that are worked on, and `mail` for what happens in
the sample mailbox. Every query, program and
sentence is written there once; `bos_demo.scripted` turns them into replies of the scripted model.
In a step's `answer`, `{name}` stands for a value of the step's real result: a column of the first
row (`{name@2}`: of the second) or a field of the program's result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self, get_args

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, model_validator

from bos_demo.dialects import Dialect, write_sql

Kind = Literal[
    "sql",
    "uploads",
    "computation",
    "chains",
    "parallel",
    "talk",
    "documents",
    "apis",
    "web",
    "files",
    "charts",
    "reports",
    "texts",
    "mail",
]
KINDS: tuple[Kind, ...] = ("sql", "computation", "chains", "parallel", "talk")
Intent = Literal["DATA_QA", "ANALYTICS_REPORT", "GENERAL_QA", "OUT_OF_SCOPE"]
REFERENCE = re.compile(r"@\{outputs\.([A-Za-z][\w-]*)\.(\w+)\}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SqlStep(_Strict):
    """A step of the sql agent, answered by one query."""

    agent: Literal["sql"]
    id: str
    task: str
    tables: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...] = Field(min_length=1)
    """Columns of the result, in order."""
    sql: str
    """The query, with the marks of `bos_demo.dialects`."""
    reference: str
    """The same rows by another query, PostgreSQL only, written independently of `sql`."""
    answer: str
    file: str = ""
    """Uploaded file that is asked instead of the database; `sql` is then in DuckDB's dialect."""
    followups: tuple[str, ...] = ()
    """Questions that the model suggests to ask next; demo questions as well."""

    @property
    def inputs(self) -> dict[str, str]:
        """A query takes no input from other steps."""
        return {}

    def query(self, dialect: Dialect, today: date) -> str:
        """Return the query in `dialect`."""
        return write_sql(self.sql, dialect, today)

    def reference_query(self, today: date) -> str:
        """Return the reference for PostgreSQL."""
        return write_sql(self.reference, "postgres", today)


class ComputationStep(_Strict):
    """A step of the computation agent: a Python program whose variables are the inputs."""

    agent: Literal["computation"]
    id: str
    task: str
    inputs: dict[str, str] = Field(default_factory=dict)
    """Variables by name: text, or references like `@{outputs.STEP.rows}`."""
    program: str
    answer: str


class Variant(_Strict):
    """Change of a program by the user's instructions."""

    words: str
    """Words in the instructions that select this change."""
    replaces: str
    by: str


class CodeStep(_Strict):
    """A step of the code agent: a Python program that the user approves; inputs as above."""

    agent: Literal["code"]
    id: str
    task: str
    inputs: dict[str, str] = Field(default_factory=dict)
    program: str
    explanation: str
    """Explanation of the program for the user."""
    files: tuple[str, ...]
    """Names of the files that the program creates."""
    answer: str
    variants: tuple[Variant, ...] = ()


class CitedPassage(_Strict):
    """A passage that an answer cites."""

    document: str
    """File name of the document."""
    section: str
    """The last heading above it; empty where the format has none."""
    quote: str
    """The words that carry the statement."""


class RagStep(_Strict):
    """A step of the rag agent, answered from passages of documents."""

    agent: Literal["rag"]
    id: str
    task: str
    passages: tuple[CitedPassage, ...] = Field(min_length=1)
    answer: str
    """Its statements, each with its passage as `[n]`: the n-th of `passages`."""

    @property
    def inputs(self) -> dict[str, str]:
        """A search takes no input from other steps."""
        return {}


class ApiStep(_Strict):
    """A step of the api_docs agent: one call of the company's API, or a list of its endpoints."""

    agent: Literal["api_docs"]
    id: str
    task: str
    method: Literal["GET", "POST", "PATCH"] = "GET"
    path: str = ""
    """Path as documented; empty where the task asks for the list of all endpoints."""
    path_params: dict[str, str] = Field(default_factory=dict)
    query_params: dict[str, str] = Field(default_factory=dict)
    json_body: dict[str, str | list[str]] | None = None
    approved: bool = False
    """Whether the user approves the call, as it changes something."""
    reference: str = ""
    """The rows that the API must return, by a query of the database, PostgreSQL only."""
    answer: str = ""

    @property
    def inputs(self) -> dict[str, str]:
        """The plan of a call takes values from the task."""
        return {}

    def reference_query(self, today: date) -> str:
        """Return the reference for PostgreSQL."""
        return write_sql(self.reference, "postgres", today)


class CitedPage(_Strict):
    """A page of the public site that an answer cites."""

    path: str
    """Where it is on the site, as the search names it."""
    quote: str
    """The words that carry the statement."""


class WebStep(_Strict):
    """A step of the web agent, answered from pages of the public site."""

    agent: Literal["web"]
    id: str
    task: str
    tool: str = ""
    """The tool that the plan names."""
    inputs: dict[str, str] = Field(default_factory=dict)
    query: str = ""
    search_type: Literal["basic", "news", "deep"] = "basic"
    time_range: Literal["any", "day", "week", "month", "year"] = "any"
    opens: bool = False
    """Whether the model asks for whole pages before it answers."""
    pages: tuple[CitedPage, ...] = Field(min_length=1)
    answer: str
    """Its statements, each with its page as `[n]`: the n-th of `pages`."""


class FilesStep(_Strict):
    """A step of the files agent; inputs as above."""

    agent: Literal["files"]
    id: str
    task: str
    inputs: dict[str, str] = Field(default_factory=dict)
    tool: str = ""
    """Tool that the plan names."""
    operation: dict[str, Any] | None = None
    """Operation that the model replies; None where the plan says it."""
    file: str
    """Name of the file that it leaves; empty if it makes none."""


class ChartsStep(_Strict):
    """A step of the charts agent, which draws rows of an earlier step; inputs as above."""

    agent: Literal["charts"]
    id: str
    task: str
    inputs: dict[str, str]
    choice: dict[str, Any] | None = None
    """Chart that the model replies; None where the plan says enough of it."""
    mark: str
    """Mark of the chart that is drawn."""
    x: str
    y: tuple[str, ...]
    """Columns that are drawn."""
    series: str = ""
    """Column that splits into colours."""


class TextStep(_Strict):
    """A step of the text agent, which works on texts of earlier steps; inputs as above."""

    agent: Literal["text"]
    id: str
    task: str
    tool: str = ""
    """Tool that the plan names."""
    inputs: dict[str, str] = Field(default_factory=dict)
    written: str = ""
    """What the model writes; values of rows it reads as in an answer."""
    listed: tuple[str, ...] = ()
    """What it lists instead: key points, or items that it copies."""


class WrittenMail(_Strict):
    """Words of a mail that the model writes."""

    subject: str
    body: str
    """`{name}` stands for a value of an earlier step's result: a column of the first row."""


class MailStep(_Strict):
    """A step of the mail agent, in the sample mailbox; inputs as above."""

    agent: Literal["mail"]
    id: str
    task: str
    tool: str
    """Tool that the plan names; those that send wait for the user's approval."""
    inputs: dict[str, str] = Field(default_factory=dict)
    action: dict[str, Any] | None = None
    """Action that the model replies; None where the plan says enough."""
    writes: WrittenMail | None = None
    """The mail that the model writes; None if it writes none."""
    reads: tuple[str, ...] = ()
    """Words that the result must hold: without them the model has no reply."""
    answer: str

    @property
    def approved(self) -> bool:
        """Whether the user approves the mail."""
        return self.tool in ("send_email", "reply_to_message")


AnyStep = (
    SqlStep
    | ComputationStep
    | CodeStep
    | RagStep
    | ApiStep
    | WebStep
    | FilesStep
    | ChartsStep
    | TextStep
    | MailStep
)
Step = Annotated[AnyStep, Field(discriminator="agent")]


class Question(_Strict):
    """One demo question."""

    id: str
    kind: Kind
    question: str
    rationale: str
    intent: Intent = "DATA_QA"
    steps: tuple[Step, ...] = ()
    reply: str = ""
    """Answer of the composer if there are no steps."""
    facts: str | tuple[str, ...] = ()
    """Facts that the answer must mention: literals, or a PostgreSQL query for one row of values, of
    which a text may hold several separated by `|`. Empty: all values of the first row."""

    holds: tuple[str, ...] = ()
    """Texts that the last file of its steps, or its answer, holds."""

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents of the plan in order, each once."""
        return tuple(dict.fromkeys(step.agent for step in self.steps))

    def depends_on(self, step: AnyStep) -> tuple[str, ...]:
        """Return the ids of the steps whose output `step` refers to, in plan order."""
        sources = {
            match[1] for value in step.inputs.values() for match in REFERENCE.finditer(value)
        }
        return tuple(other.id for other in self.steps if other.id in sources)

    @model_validator(mode="after")
    def _has_something_to_say(self) -> Self:
        if bool(self.steps) == bool(self.reply):
            raise ValueError("give either steps or a reply")
        return self

    def facts_query(self, today: date) -> str:
        """Return the PostgreSQL query for the facts; empty if they are literals."""
        return write_sql(self.facts, "postgres", today) if isinstance(self.facts, str) else ""


def read_yaml(text: str) -> Any:
    """Parse YAML, with libyaml if PyYAML has it."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


@cache
def load_questions(*kinds: Kind) -> tuple[Question, ...]:
    """Return the demo questions of these kinds, in file order; of none: all that SQL answers."""
    return tuple(question for kind in kinds or KINDS for question in _of_kind(kind))


@cache
def load_every_question() -> tuple[Question, ...]:
    """Return the demo questions of all kinds, whichever agents they need."""
    return load_questions(*get_args(Kind))


def _of_kind(kind: Kind) -> Iterator[Question]:
    path = files("bos_demo") / "questions" / f"{kind}.yaml"
    for entry in read_yaml(path.read_text(encoding="utf-8")):
        yield Question.model_validate({"kind": kind, **entry})
