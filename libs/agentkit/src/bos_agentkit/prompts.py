"""Prompt sections: user profile, conversation, entities, dependencies, source text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bos.common.v1 import ConversationMessage, MessageRole, Value, ValueMap
from bos_chassis.values import render_value
from bos_llm.prompts import NOTHING, SETTLED, mark_untrusted

Section = tuple[str, str]
"""A heading and its text, which may be empty."""
MAX_DEPENDENCY_CHARS = 500
MAX_SOURCE_CHARS = 5000
_MAX_MESSAGES = 10
_MAX_MESSAGE_CHARS = 1000


def format_entities(entities: Mapping[str, Value]) -> str:
    """``k=v`` pairs joined by commas, sorted by key; ``none`` if there are none."""
    return ", ".join(f"{k}={render_value(entities[k])}" for k in sorted(entities)) or NOTHING


def format_conversation(messages: Sequence[ConversationMessage]) -> str:
    """The last ten messages, one per line, marked as untrusted; ``none`` if there are none.

    Messages are truncated to 1000 characters.
    """
    lines = []
    for message in messages[-_MAX_MESSAGES:]:
        role = MessageRole.Name(message.role).removeprefix("MESSAGE_ROLE_").lower()
        lines.append(f"{role}: {' '.join(message.content.split())[:_MAX_MESSAGE_CHARS]}")
    return mark_untrusted("\n".join(lines)) if lines else NOTHING


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
    conversation: str = NOTHING,
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
        conversation: From :func:`format_conversation`.
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
    if conversation != NOTHING:
        about_user += f"Conversation so far:\n{conversation}\n\n"
    if settled != NOTHING:
        about_user += f"{SETTLED}:\n{settled}\n\n"
    return about_user + "\n\n".join(f"{heading}\n{body}" for heading, body in sections)
