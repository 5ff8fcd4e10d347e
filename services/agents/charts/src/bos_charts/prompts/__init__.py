"""Prompts of the charts agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bos_agentkit import UNTRUSTED_NOTICE, format_entities, mark_untrusted, prompt_sections
from bos_charts.columns import Kind
from bos_llm import Message, prompt_file, system, user

if TYPE_CHECKING:
    from bos_agentkit import AgentTask
    from bos_charts.choice import Choice
    from bos_charts.columns import Column
    from bos_charts.tables import Table

_MAX_EXAMPLES = 4
_CHOOSE = prompt_file(__name__, "choose")


def choice_messages(task: AgentTask, table: Table, choice: Choice) -> list[Message]:
    """Messages that request a chart of the table, beginning with that of the rules."""
    columns = "\n".join(map(_described, table.columns))
    prompt = prompt_sections(
        task=task.effective_task,
        entities=format_entities(task.input.entities),
        dependencies=mark_untrusted(f"{table.row_count} rows; columns:\n{columns}"),
        source_text=task.input.question or task.effective_task,
        instructions=f"The chart that the rules chose:\n{mark_untrusted(_chosen(choice))}",
        profile=task.profile,
        settled=task.settled,
        conversation=task.conversation,
    )
    return [system(_CHOOSE.fill(untrusted_notice=UNTRUSTED_NOTICE)), user(prompt)]


def _described(column: Column) -> str:
    examples = list(dict.fromkeys(str(cell) for cell in column.cells if cell is not None))
    shown = "" if column.kind is Kind.NUMBER else f", such as {'; '.join(examples[:_MAX_EXAMPLES])}"
    return f"- {column.name}: {column.kind}, {column.distinct} different{shown}"


def _chosen(choice: Choice) -> str:
    chosen = {
        "mark": choice.mark,
        "x": choice.x.name if choice.x else None,
        "y": [column.name for column in choice.y],
        "series": choice.series.name if choice.series else None,
        "order": choice.order,
        "stacked": choice.stacked,
        "title": choice.title,
    }
    return json.dumps(chosen, ensure_ascii=False)
