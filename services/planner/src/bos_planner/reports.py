"""Plans of reports: queries whose rows are drawn, and no step that answers alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from bos.agent.v1 import AgentCard
from bos.planner.v1 import Step
from bos_chassis.values import to_value
from bos_plans import references_of

CHARTS_WORD = "charts"
"""Capability of agents that draw rows of other steps."""

_MAX_TASK_CHARS = 1_000
# Of the languages that most questions come in; elsewhere the intent alone says it.
_REPORT_WORDS = re.compile(
    r"\b(reports?|reporting|analys[ei]s|analy[sz]e|analytics|overview|dashboard|briefing"
    r"|berichte?s?|auswertung|überblick|rapports?|analyser|aperçu|informes?|reportes?|análisis"
    r"|relatórios?|análise|resumen|rapporto)\b",
    re.IGNORECASE,
)


def asks_for_report(question: str) -> bool:
    """Whether the question may ask for a report, by its words; the model decides."""
    return _REPORT_WORDS.search(question) is not None


def has_capability(card: AgentCard | None, word: str) -> bool:
    """Whether a capability of the card names ``word``."""
    if card is None:
        return False
    return any(word in each.lower().replace(",", " ").split() for each in card.capabilities)


def completed_report(
    steps: Sequence[Step],
    cards: Mapping[str, AgentCard],
    *,
    queries: str,
    disabled: Collection[str] = (),
    max_steps: int,
) -> list[Step]:
    """The steps of a report: with a chart where none was planned, and composed as a whole.

    The rows of the first query are drawn if no step draws any, an agent for charts exists and the
    plan has room. No step is the final answer: sections are composed of all results.

    Args:
        steps: Steps of the plan, in order; their marks as final answer are removed.
        cards: Agents that exist, by canonical name.
        queries: Capability of agents that query databases.
        disabled: Agents that the user disabled.
        max_steps: Most steps of a plan.
    """
    for step in steps:
        step.is_final_answer = False
    drawing = [name for name, card in cards.items() if has_capability(card, CHARTS_WORD)]
    usable = [name for name in drawing if name not in disabled]
    query = next((each for each in steps if has_capability(cards.get(each.agent), queries)), None)
    planned = any(step.agent in drawing for step in steps)
    if planned or not usable or query is None or len(steps) >= max_steps:
        return list(steps)
    taken = {step.step_id for step in steps}.union(*map(references_of, steps))
    step_id = f"{query.step_id}_chart"
    if step_id in taken:
        return list(steps)
    chart = Step(
        step_id=step_id,
        agent=usable[0],
        task=f"Draw as a chart: {query.task}"[:_MAX_TASK_CHARS],
        sub_task_input={"rows": to_value(f"@{{outputs.{query.step_id}.rows}}")},
    )
    return [*steps, chart]
