"""Criteria in plain words: graded by a model where one is named, and otherwise not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_cli.evaluation.grading import CRITERIA, Check
from bos_cli.evaluation.verdicts import Spent

if TYPE_CHECKING:
    from bos_cli.evaluation.grader import Grader
    from bos_cli.evaluation.grading import Verdict
    from bos_cli.evaluation.outcomes import Outcome
    from bos_cli.evaluation.questions import Question

_NOT_GRADED = "no model is named that grades it (--grader-model)"
_NO_ANSWER = "there is no answer"


async def grade_criteria(
    question: Question, outcome: Outcome, grader: Grader | None
) -> tuple[tuple[Check, ...], Spent]:
    """One check for each criterion of ``question``, and the model calls that they took.

    Without a grader they are not graded; without an answer they fail, and no model is called.
    """
    checks: list[Check] = []
    spent = Spent()
    for criterion in question.expect.criteria:
        if grader is None:
            checks.append(Check(CRITERIA, "not_graded", criterion, _NOT_GRADED))
        elif not outcome.answer.strip():
            checks.append(Check(CRITERIA, "failed", criterion, _NO_ANSWER))
        else:
            grade, taken = await grader.grade(question.question, outcome.answer, criterion)
            spent += taken
            verdict: Verdict = "error" if grade.error else "passed" if grade.met else "failed"
            checks.append(Check(CRITERIA, verdict, criterion, grade.reason))
    return tuple(checks), spent
