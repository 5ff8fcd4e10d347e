"""Prompt sections of text agents: user profile, entities, dependencies, source text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.common.v1 import Value
from bos_chassis.values import render_value
from bos_llm.prompts import NOTHING, SETTLED, mark_untrusted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos.common.v1 import ValueMap

MAX_DEPENDENCY_CHARS = 500
MAX_SOURCE_CHARS = 5000


def format_entities(entities: Mapping[str, Value]) -> str:
    """``k=v`` pairs joined by commas, sorted by key; ``none`` if there are none."""
    return ", ".join(f"{k}={render_value(entities[k])}" for k in sorted(entities)) or NOTHING


def format_dependencies(outputs: Mapping[str, ValueMap]) -> str:
    """One line ``- **{agent_id}**: {data}`` per upstream step, data truncated to 500 characters."""
    lines = (
        f"- **{step}**: {render_value(Value(map_value=outputs[step]))[:MAX_DEPENDENCY_CHARS]}"
        for step in sorted(outputs)
    )
    return "\n".join(lines) or NOTHING


def prompt_sections(
    *,
    task: str,
    entities: str,
    dependencies: str,
    source_text: str,
    instructions: str,
    profile: str = NOTHING,
    settled: str = NOTHING,
    tainted: bool = False,
) -> str:
    """Build the prompt of a text agent: the user's profile, then the sections.

    Args:
        task: The effective task.
        entities: From :func:`format_entities`.
        dependencies: From :func:`format_dependencies`.
        source_text: Text to process; truncated to 5000 characters.
        instructions: Instructions for the model.
        profile: From :func:`bos_llm.prompts.format_user_profile`.
        settled: From :func:`bos_llm.prompts.format_clarifications`.
        tainted: Whether to mark context and source text as untrusted.
    """
    fence = mark_untrusted if tainted else str
    sections = (
        ("### Task", task),
        ("### Entities", entities),
        ("### Context from other agents", fence(dependencies)),
        ("### Source Text", fence(source_text[:MAX_SOURCE_CHARS])),
        ("### Instructions", instructions),
    )
    about_user = "" if profile == NOTHING else f"About the user:\n{profile}\n\n"
    if settled != NOTHING:
        about_user += f"{SETTLED}:\n{settled}\n\n"
    return about_user + "\n\n".join(f"{heading}\n{body}" for heading, body in sections)
