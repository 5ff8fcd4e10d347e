"""State of one step, and exceptions that end an attempt or the step early."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from bos.common.v1 import ClarifyingQuestion
from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_sql.grounding.schema_excerpt import GroundingPack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit import AgentTask
    from bos_llm import Message
    from bos_sql.database.metadata import Overview
    from bos_sql.grounding.catalog import Metric
    from bos_sql.grounding.index import MetadataIndex
    from bos_sql.model_calls import ModelCalls
    from bos_sql.prompts import QueryPrompts
    from bos_sql.settings import SqlSettings
    from bos_sql.steps.guard import QueryGuard, SafetyDecision
    from bos_sql.steps.replies import Question

CLARIFICATION_LIMIT = "ClarificationLimit"
"""``AgentError.type`` of a task that stays unclear, without assumptions."""

_MAX_QUESTIONS = 5
_MAX_OPTIONS = 8


@dataclass(slots=True)
class StepState:
    """State shared by the phases of one step."""

    task: AgentTask
    settings: SqlSettings
    model: ModelCalls
    overview: Overview
    index: MetadataIndex
    guard: QueryGuard
    prompts: QueryPrompts = field(init=False)
    """Prompts with the described tables; set by ``describe``."""
    pack: GroundingPack = field(default_factory=GroundingPack)
    named_metrics: tuple[Metric, ...] = ()
    """Metrics that the question names, and the query has to compute as they are defined."""
    examples: str = ""
    """Verified queries for similar questions, as prompts show them; usually none."""
    metric_corrections: int = 0
    """How often a query was sent back because it computes a named metric in another way."""
    described: tuple[str, ...] = ()
    """Tables whose columns are in the prompts."""
    assumptions: list[str] = field(default_factory=list)
    """Assumptions of the query beyond the task."""
    stated_assumptions: list[str] = field(default_factory=list)
    """Those that the answer states: what goes beyond the task, or stands instead of a question."""
    messages: list[Message] = field(default_factory=list)
    """Conversation with the model about the query."""
    followups: list[str] = field(default_factory=list)
    """Follow-up questions suggested by the draft."""
    last_query: str = ""
    attempt_history: list[dict[str, Any]] = field(default_factory=list)
    """One entry per attempt."""

    @property
    def may_ask_user(self) -> bool:
        """Whether a clarifying question is still allowed."""
        taken = self.task.input.clarification_turn_count
        return taken < self.settings.max_clarification_turns


class StillUnclear(AgentFailure):
    """The task is unclear, no more questions are allowed, and there are no assumptions."""

    def __init__(self, message: str) -> None:
        super().__init__(CLARIFICATION_LIMIT, message)


class NotInSource(Exception):
    """The model replies that no query on this database can answer the task.

    Args:
        reason: The model's reason, in a sentence.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AttemptFailed(Exception):
    """An attempt failed with a query that may be corrected.

    Args:
        error: Feedback for the model.
        query: The query.
        from_database: Whether the error is of the database, not of guard or review.
    """

    def __init__(self, error: str, query: str, *, from_database: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.query = query
        self.from_database = from_database


class MetricDisagreement(AttemptFailed):
    """The query computes a named metric in another way than its definition."""


class ClarificationNeeded(Exception):
    """There are questions to the user; ends the step NEEDS_CLARIFICATION."""

    def __init__(self, questions: Sequence[ClarifyingQuestion], assumptions: Sequence[str]) -> None:
        super().__init__("clarification needed")
        self.questions = tuple(questions)
        self.assumptions = tuple(assumptions)


def ask_user(
    work: StepState, questions: Sequence[Question], assumptions: Sequence[str]
) -> NoReturn:
    """End the step with questions to the user.

    Raises:
        ClarificationNeeded: always.
    """
    # The date comes from the request's context, so it is an assumption to show to the user.
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
    """Failure of a blocked query."""
    return AgentFailure(
        AgentErrorType.QUERY_ERROR,
        decision.user_message,
        {"violations": [dict(each) for each in decision.violations], "query": query},
    )
