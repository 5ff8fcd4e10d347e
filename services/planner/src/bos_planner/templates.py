"""Stored plans (templates), tried before the model.

A template file is a YAML list::

    - name: top customers
      questions: ["Top {count} customers by revenue"]
      confidence: 0.9
      steps:
        - step_id: top
          agent: sql
          task: "List the {count} customers with the highest revenue."

A question matches one of ``questions`` regardless of case, spaces and closing punctuation. A
``{name}`` in it matches any text and may be used in ``task`` and in the values of
``sub_task_input``: as a number if it is the whole value and reads like one, otherwise as text;
lists and maps keep their type. All other fields are those of the model's reply
(:mod:`bos_planner.reply`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from bos_errors import ConfigurationError
from bos_planner.reply import IntentName, NamedValue, PlannerReply, is_number, read_value
from bos_plans import without_references

MAX_FILE_BYTES = 1024 * 1024
# Matching backtracks over all divisions of the text among the placeholders, so both are bounded.
MAX_PLACEHOLDERS = 3
MAX_PLACEHOLDER_CHARS = 80
_PLACEHOLDER = re.compile(r"(?<!@)\{([a-z][a-z0-9_]*)\}")


class PlanTemplate(PlannerReply):
    """One stored plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="Unique; shown in the rationale")
    questions: tuple[str, ...] = Field(min_length=1, description="Questions it answers")
    intent: IntentName = "DATA_QA"
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class _Pattern:
    expression: re.Pattern[str]
    template: PlanTemplate


class Templates:
    """Lookup of the stored plan that matches a question."""

    def __init__(self, templates: Sequence[PlanTemplate] = ()) -> None:
        self._patterns = tuple(
            _Pattern(_compile(question), template)
            for template in templates
            for question in template.questions
        )

    def match(self, question: str) -> PlannerReply | None:
        """The first stored plan that matches ``question``, with placeholders filled in, or None."""
        text = _plain(question)
        for pattern in self._patterns:
            found = pattern.expression.fullmatch(text)
            if found is not None:
                return _filled(pattern.template, found.groupdict())
        return None


def load_templates(path: Path | None) -> Templates:
    """Load stored plans from a file; none without a file.

    Raises:
        ConfigurationError: the file is unreadable or not a list of templates.
    """
    if path is None:
        return Templates()
    setting = "BOS_PLANNER_TEMPLATES_PATH"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(f"{setting}: {path} is larger than {MAX_FILE_BYTES} bytes")
        entries = yaml.safe_load(content)
        templates = TypeAdapter(list[PlanTemplate]).validate_python(entries or [])
        return Templates(templates)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f"{setting}: {path} cannot be read as YAML; mend the file or unset the variable"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{setting}: {path}: {place}: {first['msg']}") from error


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(" .?!")


def _compile(question: str) -> re.Pattern[str]:
    text = _plain(question)
    parts, end = [], 0
    for placeholder in _PLACEHOLDER.finditer(text):
        parts.append(re.escape(text[end : placeholder.start()]))
        parts.append(f"(?P<{placeholder[1]}>.{{1,{MAX_PLACEHOLDER_CHARS}}}?)")
        end = placeholder.end()
    parts.append(re.escape(text[end:]))
    if len(parts) > 2 * MAX_PLACEHOLDERS + 1:
        raise ConfigurationError(
            f'BOS_PLANNER_TEMPLATES_PATH: the question "{question}" has more than '
            f"{MAX_PLACEHOLDERS} placeholders"
        )
    try:
        return re.compile("".join(parts), re.IGNORECASE)
    except re.error as error:
        raise ConfigurationError(
            f'BOS_PLANNER_TEMPLATES_PATH: the question "{question}" uses a placeholder twice'
        ) from error


def _filled(template: PlanTemplate, values: Mapping[str, str]) -> PlannerReply:
    def fill(text: str, written: Callable[[str], str] = str) -> str:
        return _PLACEHOLDER.sub(
            # User input must not become a reference to another step.
            lambda found: written(without_references(values.get(found[1], found[0]))),
            text,
        )

    def fill_input(item: NamedValue) -> NamedValue:
        if isinstance(read_value(item.value), dict | list):
            # Only its strings can hold placeholders.
            return item.model_copy(update={"value": fill(item.value, _in_json)})
        value = fill(item.value)
        read = read_value(value)
        if value != item.value and read != value and not is_number(read):
            # Quoted, as JSON in user input could hold an escaped reference.
            value = json.dumps(value)
        return item.model_copy(update={"value": value})

    steps = [
        step.model_copy(
            update={
                # A missing task stays missing: it means the whole question.
                **({"task": fill(step.task)} if step.task else {}),
                "sub_task_input": [fill_input(item) for item in step.sub_task_input],
            }
        )
        for step in template.steps
    ]
    rationale = template.rationale or f'The stored plan "{template.name}" fits the question.'
    return PlannerReply(
        **template.model_dump(exclude={"name", "questions", "steps", "rationale"}),
        rationale=rationale,
        steps=steps,
    )


def _in_json(text: str) -> str:
    """``text`` escaped for a JSON string, without the quotes."""
    return json.dumps(text)[1:-1]
