"""Prepared replies of the scripted model: their file format, validation and choice.

A fixture file is a YAML list::

    - name: top customers, plan              # unique over all files
      when:
        schema: PlannerReply                 # name of the JSON schema asked for; null: a text call
        model: null                          # optional: only for this model
        contains: ["Which five customers"]   # all must occur in the prompt
        excludes: []                         # none may occur in it
      capture: {total: 'total=([0-9.]+)'}    # regexes over the prompt; their first group...
      reply:
        text: "The total is ${total}."       # ...is usable in text, and in any string inside json
                                             # or `json: {...}` instead of `text`

The prompt is the text of all messages, instructions included. ``contains`` and ``excludes`` ignore
case and line breaks. The fixture with the most ``contains`` answers; of two with equally many, the
one that names a model. ``$${`` writes a literal ``${``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import yaml  # type: ignore[import-untyped]
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{(\w+)\}")
_FILE_SUFFIXES = (".yaml", ".yml")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, where PyYAML has it


class FixtureError(ValueError):
    """A fixture file is wrong; the message names the file, the fixture and the fix."""


class AmbiguousPromptError(LookupError):
    """Two fixtures fit one prompt equally well; the message names both."""


class CaptureError(LookupError):
    """A fixture fits a prompt in which one of its captures finds nothing."""


def _plain(text: str) -> str:
    """The form in which texts are compared: lower case, single spaces."""
    return " ".join(text.casefold().split())


def _needle(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank: it would occur in every prompt")
    return _plain(text)


def _capture(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if groups < 1:
        raise ValueError("needs a group in parentheses around the text to capture")
    return pattern


_Needle = Annotated[str, AfterValidator(_needle)]
_Capture = Annotated[str, AfterValidator(_capture)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )


class When(_Strict):
    """The prompts that a fixture answers."""

    schema_name: str | None = Field(alias="schema")
    """Name of the JSON schema that the call asks for; None for calls that want text."""
    model: str | None = None
    contains: tuple[_Needle, ...] = ()
    """None at all: every prompt of this schema for which nothing more specific is prepared."""
    excludes: tuple[_Needle, ...] = ()

    @property
    def rank(self) -> tuple[int, int]:
        """How specific this is; the highest rank answers."""
        return len(self.contains), int(self.model is not None)

    def accepts(self, *, schema: str | None, model: str, plain_prompt: str) -> bool:
        """Whether a call with this normalised prompt is one of these."""
        return (
            self.schema_name == schema
            and self.model in (None, model)
            and all(needle in plain_prompt for needle in self.contains)
            and not any(needle in plain_prompt for needle in self.excludes)
        )

    def covers(self, other: When) -> bool:
        """Whether every prompt that ``other`` accepts is accepted here as well."""
        return (
            self.schema_name == other.schema_name
            and self.model in (None, other.model)
            and all(any(mine in theirs for theirs in other.contains) for mine in self.contains)
            and all(any(theirs in mine for theirs in other.excludes) for mine in self.excludes)
        )


class Reply(_Strict):
    """What the model says: ``text``, or ``json`` for a call that asks for a schema."""

    text: str | None = Field(default=None, min_length=1)
    json_value: dict[str, JsonValue] | None = Field(default=None, alias="json")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.text is None) == (self.json_value is None):
            raise ValueError("give exactly one of `text` and `json`")
        return self


class Fixture(_Strict):
    """One prepared reply. In Python: ``Fixture.model_validate({...})`` or :func:`fixture`."""

    name: str = Field(min_length=1)
    when: When
    capture: dict[str, _Capture] = Field(default_factory=dict)
    reply: Reply

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        if self.when.schema_name is None and self.reply.json_value is not None:
            raise ValueError("`when.schema: null` is a text call: give `reply.text`")
        unknown = sorted(_placeholders(self.reply) - set(self.capture))
        if unknown:
            raise ValueError(f"reply uses ${{{unknown[0]}}}, which `capture` does not define")
        return self

    def render(self, prompt: str) -> str | dict[str, JsonValue]:
        """The reply with every ``${name}`` replaced by what its capture finds in ``prompt``.

        Raises:
            CaptureError: a capture finds nothing.
        """
        found: dict[str, str] = {}
        for name, pattern in self.capture.items():
            match = re.search(pattern, prompt)
            if match is None or match.group(1) is None:
                raise CaptureError(
                    f"fixture {self.name!r}: capture {name!r} finds nothing in the prompt"
                )
            found[name] = match.group(1)
        if self.reply.text is not None:
            return _substitute_text(self.reply.text, found)
        json_value = self.reply.json_value or {}
        return {key: _substitute(value, found) for key, value in json_value.items()}


def fixture(
    name: str,
    contains: Sequence[str],
    *,
    schema: str | None = None,
    model: str | None = None,
    excludes: Sequence[str] = (),
    capture: Mapping[str, str] | None = None,
    json: Mapping[str, Any] | None = None,
    text: str | None = None,
) -> Fixture:
    """A fixture written in Python, validated like one from a file."""
    return Fixture.model_validate(
        {
            "name": name,
            "when": {
                "schema": schema,
                "model": model,
                "contains": list(contains),
                "excludes": list(excludes),
            },
            "capture": dict(capture or {}),
            "reply": {"json": None if json is None else dict(json), "text": text},
        }
    )


class FixtureBook:
    """A validated set of fixtures, asked for the one that answers a prompt."""

    def __init__(self, fixtures: Sequence[Fixture]) -> None:
        _refuse_conflicts(fixtures)
        self._fixtures = tuple(sorted(fixtures, key=lambda each: each.when.rank, reverse=True))

    def __len__(self) -> int:
        return len(self._fixtures)

    def find(self, *, schema: str | None, model: str, prompt: str) -> Fixture | None:
        """The most specific fixture for a call, or None if nothing is prepared.

        Raises:
            AmbiguousPromptError: two fixtures are equally specific.
        """
        plain = _plain(prompt)
        fitting = [
            each
            for each in self._fixtures
            if each.when.accepts(schema=schema, model=model, plain_prompt=plain)
        ]
        if len(fitting) > 1 and fitting[0].when.rank == fitting[1].when.rank:
            raise AmbiguousPromptError(
                f"fixtures {fitting[0].name!r} and {fitting[1].name!r} fit this prompt equally "
                "well; add to `contains` of the one that is meant, or to `excludes` of the other"
            )
        return fitting[0] if fitting else None


def load_fixtures(sources: Sequence[Path | Fixture]) -> FixtureBook:
    """Read fixture files, folders of them, and fixtures made in Python.

    Raises:
        FixtureError: a file is unreadable or wrong, a name occurs twice, or a fixture can never
            be chosen because another one fits all of its prompts as well.
    """
    fixtures: list[Fixture] = []
    for source in sources:
        if isinstance(source, Fixture):
            fixtures.append(source)
            continue
        for path in _files(source):
            fixtures.extend(_read(path))
    return FixtureBook(fixtures)


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    files = sorted(path for path in source.iterdir() if path.suffix in _FILE_SUFFIXES)
    if not files:
        raise FixtureError(f"{source}: holds no *.yaml file")
    return files


def _read(path: Path) -> list[Fixture]:
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        _refuse_repeated_keys(path, node)
        entries = None if node is None else loader.construct_document(node)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FixtureError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(entries, list):
        raise FixtureError(
            f"{path}: must hold a YAML list of fixtures, each starting with `- name:`"
        )
    return [_parse(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _parse(path: Path, number: int, entry: object) -> Fixture:
    try:
        return Fixture.model_validate(entry)
    except ValidationError as error:
        name = entry.get("name") if isinstance(entry, dict) else None
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'fixture'}: {problem['msg']}"
            for problem in error.errors(include_url=False)
        )
        raise FixtureError(f"{path}: fixture {number} ({name or 'unnamed'}): {problems}") from None


def _refuse_repeated_keys(path: Path, node: Any) -> None:
    """YAML readers keep the last of two equal keys, which hides half of a fixture."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise FixtureError(f"{path}: line {line}: key {key.value!r} is given twice")
            seen.add(key.value)
            _refuse_repeated_keys(path, value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(path, item)


def _refuse_conflicts(fixtures: Sequence[Fixture]) -> None:
    names: set[str] = set()
    for each in fixtures:
        if each.name in names:
            raise FixtureError(f"two fixtures are named {each.name!r}; names must be unique")
        names.add(each.name)
    # Only fixtures of one kind of call can tie: hundreds are not compared each with each.
    rivals: dict[object, list[tuple[Fixture, str]]] = {}
    for one in fixtures:
        kind = (one.when.rank, one.when.schema_name, one.when.model)
        # A needle of one that is in no needle of the other settles nearly all pairs at once.
        mine = "\n\n".join(one.when.contains)
        earlier = rivals.setdefault(kind, [])
        for other, theirs in earlier:
            if not (
                all(map(mine.__contains__, other.when.contains))
                or all(map(theirs.__contains__, one.when.contains))
            ):
                continue
            if other.when.covers(one.when) or one.when.covers(other.when):
                raise FixtureError(
                    f"fixtures {other.name!r} and {one.name!r} tie: they are equally specific and "
                    "one fits every prompt of the other; add to `contains` of the one that is "
                    "meant to win, or to `excludes` of the other"
                )
        earlier.append((one, mine))


def _placeholders(reply: Reply) -> set[str]:
    def strings(value: JsonValue) -> list[str]:
        if isinstance(value, str):
            return [value]
        if isinstance(value, dict):
            return [text for item in value.values() for text in strings(item)]
        if isinstance(value, list):
            return [text for item in value for text in strings(item)]
        return []

    texts = strings(reply.json_value) if reply.text is None else [reply.text]
    return {match[1] for text in texts for match in _PLACEHOLDER.finditer(text) if match[1]}


def _substitute(value: JsonValue, found: Mapping[str, str]) -> JsonValue:
    if isinstance(value, str):
        return _substitute_text(value, found)
    if isinstance(value, dict):
        return {key: _substitute(item, found) for key, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, found) for item in value]
    return value


def _substitute_text(text: str, found: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: found[match[1]] if match[1] else "${", text)
