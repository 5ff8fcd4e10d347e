"""The working state of one step, and how the steps of an attempt end it early."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from bos.common.v1 import ClarifyingQuestion
from bos_agentkit import QUERY_ERROR, AgentFailure
from bos_sql.grounding.schema_excerpt import GroundingPack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_llm import Message
    from bos_sql.database.metadata import Overview
    from bos_sql.grounding.index import MetadataIndex
    from bos_sql.model_calls import Asker
    from bos_sql.prompts import QueryPrompts
    from bos_sql.settings import SqlSettings
    from bos_sql.steps.guard import QueryGuard, SafetyDecision
    from bos_sql.steps.replies import Question

CLARIFICATION_LIMIT = "ClarificationLimit"
"""``AgentError.type`` of a task that stayed unclear and offers nothing to assume."""

_MAX_QUESTIONS = 5
_MAX_OPTIONS = 8


@dataclass(slots=True)
class Work:
    """What the steps know and share; lives as long as the step."""

    task: AgentTask
    settings: SqlSettings
    ask: Asker
    overview: Overview
    index: MetadataIndex
    guard: QueryGuard
    prompts: QueryPrompts = field(init=False)
    """Of the tables described; ``describe`` sets it."""
    pack: GroundingPack = field(default_factory=GroundingPack)
    described: tuple[str, ...] = ()
    """The tables whose columns the model has seen."""
    assumptions: list[str] = field(default_factory=list)
    """What the query rests on beyond the task."""
    told_assumptions: list[str] = field(default_factory=list)
    """Those that the answer must name, because nobody was asked any more."""
    messages: list[Message] = field(default_factory=list)
    """The conversation in which the query is written."""
    followups: list[str] = field(default_factory=list)
    """Questions to ask next, as the draft suggests them."""
    last_query: str = ""
    attempt_history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per attempt."""

    @property
    def may_ask_user(self) -> bool:
        """Whether a clarifying question is still allowed."""
        taken = self.task.input.clarification_turn_count
        return taken < self.settings.max_clarification_turns


class StillUnclear(AgentFailure):
    """Nothing may be asked any more, and nothing sensible can be assumed."""

    def __init__(self, message: str) -> None:
        super().__init__(CLARIFICATION_LIMIT, message)


class AttemptFailed(Exception):
    """A query that did not work out and may be corrected.

    Args:
        error: What the model is told about it.
        query: The query.
        from_database: Whether the database said so, rather than guard or review.
    """

    def __init__(self, error: str, query: str, *, from_database: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.query = query
        self.from_database = from_database


class ClarificationNeeded(Exception):
    """The user has to settle something first."""

    def __init__(self, questions: Sequence[ClarifyingQuestion], assumptions: Sequence[str]) -> None:
        super().__init__("clarification needed")
        self.questions = tuple(questions)
        self.assumptions = tuple(assumptions)


def ask_user(work: Work, questions: Sequence[Question], assumptions: Sequence[str]) -> NoReturn:
    """End the step with questions to the user.

    Raises:
        ClarificationNeeded: always.
    """
    # Today is injected, so it is an assumption that the user should see.
    fields = work.task.input.context.fields
    today = fields["current_date"].string_value if "current_date" in fields else ""
    raise ClarificationNeeded(
        [
            ClarifyingQuestion(question=each.question, options=each.options[:_MAX_OPTIONS])
            for each in questions[:_MAX_QUESTIONS]
        ],
        [*assumptions, *([f"Today is {today} (UTC)."] if today else [])],
    )


def refusal(decision: SafetyDecision, query: str) -> AgentFailure:
    """The failure of a query that was blocked."""
    return AgentFailure(
        QUERY_ERROR,
        decision.user_message,
        {"violations": [dict(each) for each in decision.violations], "query": query},
    )
