"""Asking the questions of a set, several at a time, each with a time limit."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bos.gateway.v1 import RunStatus
from bos_cli.evaluation.criteria import grade_criteria
from bos_cli.evaluation.grading import Check, Verdict, grade, verdict_of
from bos_cli.evaluation.outcomes import Outcome, outcome_of
from bos_cli.evaluation.verdicts import Spent
from bos_errors import BosError, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from bos_cli.evaluation.grader import Grader
    from bos_cli.evaluation.questions import Question, QuestionSet
    from bos_client.client import BosClient

_ENDED = (
    RunStatus.RUN_STATUS_SUCCEEDED,
    RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED,
    RunStatus.RUN_STATUS_FAILED,
    RunStatus.RUN_STATUS_CANCELLED,
    RunStatus.RUN_STATUS_CLARIFICATION_NEEDED,
)
_WAIT_S = 20.0
# A run ends by its own time limit and says so; that has to arrive.
_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Graded:
    """One question with its outcome and its checks."""

    question: Question
    outcome: Outcome
    checks: tuple[Check, ...]
    grading: Spent = field(default_factory=Spent)
    """Model calls that its criteria took."""

    @property
    def verdict(self) -> Verdict:
        """That of the worst check."""
        return verdict_of(self.checks)

    @property
    def passed(self) -> bool:
        """Whether every rule and every criterion is kept."""
        return self.verdict == "passed"

    def as_json(self) -> dict[str, Any]:
        """The result as JSON; tables are left to their runs."""
        outcome = asdict(self.outcome)
        del outcome["tables"], outcome["sources"]
        return {
            "id": self.question.id,
            "kind": self.question.kind,
            "question": self.question.question,
            "passed": self.passed,
            "verdict": self.verdict,
            **outcome,
            "agents": list(self.outcome.agents),
            "sql": list(self.outcome.sql),
            "checks": [{"passed": check.passed, **asdict(check)} for check in self.checks],
            "grading": self.grading.as_json(),
        }


async def ask_all(
    bos: BosClient,
    questions: QuestionSet,
    *,
    at_once: int,
    timeout_s: float,
    model: str = "",
    done: Callable[[Graded], None],
    grader: Grader | None = None,
) -> list[Graded]:
    """Ask every question; returns the results in the order of the set.

    Args:
        bos: The Bos that is asked.
        questions: The set.
        at_once: Questions asked at a time.
        timeout_s: Time of each, in seconds; one that takes longer fails.
        model: Model that answers all of them; empty for those that the services are set to use.
        done: Called with each result.
        grader: Grades criteria; without one they are not graded.

    Raises:
        Unavailable, Unauthenticated: no question could be answered now.
    """
    places = asyncio.Semaphore(at_once)

    async def one(question: Question) -> Graded:
        async with places:
            outcome = await _asked(bos, question, questions.context, timeout_s, model)
            by_model, spent = await grade_criteria(question, outcome, grader)
        rules = grade(question.expect, outcome)
        graded = Graded(question, outcome, (*rules, *by_model), spent)
        done(graded)
        return graded

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(each)) for each in questions.questions]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _asked(
    bos: BosClient, question: Question, context: dict[str, Any], timeout_s: float, model: str
) -> Outcome:
    started = time.monotonic()
    run_id = ""
    try:
        async with asyncio.timeout(timeout_s + _MARGIN_S):
            run = await bos.submit(
                question.question,
                context={**context, **question.context},
                backend=question.backend,
                model=model,
                timeout_s=timeout_s,
            )
            run_id = run.run_id
            while run.status not in _ENDED:
                if run.status == RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL:
                    await bos.cancel(run_id, "an evaluation approves nothing")
                    return outcome_of(run)
                run = await bos.get_run(run_id, wait_s=_WAIT_S, after_sequence=run.last_sequence)
        return outcome_of(run)
    except (Unavailable, Unauthenticated):
        raise
    except BosError as error:
        seconds = round(time.monotonic() - started, 3)
        return Outcome("refused", run_id, error=error.message, seconds=seconds)
    except TimeoutError:
        if run_id:
            await bos.cancel(run_id, "the time of an evaluation is over")
        return Outcome("timed_out", run_id, seconds=round(time.monotonic() - started, 3))


def report_of(
    questions: QuestionSet, results: list[Graded], grader_model: str = ""
) -> dict[str, Any]:
    """The results as one JSON object, with totals; what grading took is apart from the runs."""
    spent = sum((each.grading for each in results), Spent())
    return {
        "set": questions.name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "totals": {
            "questions": len(results),
            "passed": sum(each.passed for each in results),
            "calls": sum(each.outcome.calls for each in results),
            "tokens": sum(each.outcome.tokens for each in results),
            "cost_micros": sum(each.outcome.cost_micros for each in results),
            "seconds": round(sum(each.outcome.seconds for each in results), 3),
            "not_graded": sum(each.verdict == "not_graded" for each in results),
        },
        "grader": {"model": grader_model, **spent.as_json()},
        "results": [each.as_json() for each in results],
    }
