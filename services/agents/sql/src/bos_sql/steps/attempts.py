"""Correction loop: attempts at a query, four by default."""

from __future__ import annotations

import time

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType, BosError
from bos_sql.steps.execute import QueryResult
from bos_sql.steps.generate import Draft, generate_query
from bos_sql.steps.metrics import require_metrics
from bos_sql.steps.review import run_reviewed, safety_check
from bos_sql.steps.step_state import AttemptFailed, StepState, StillUnclear
from bos_sql.steps.triage import recover

ATTEMPT_FAILED = "SQL agent attempt failed"
ATTEMPT_SUCCEEDED = "SQL agent attempt succeeded"


async def run_attempts(work: StepState) -> QueryResult:
    """Run attempts until one succeeds; returns its result.

    Raises:
        AgentFailure: QueryError: blocked, stopped by triage, or out of attempts.
        AgentFailure: ClarificationLimit: the task is unclear after the last clarification turn.
        ClarificationNeeded: the step needs a reply of the user.
        NotInSource: no query on this database can answer the task.
        BosError: the model or the database service failed; ends the loop.
    """
    last = work.settings.max_attempts
    draft: Draft | None = None
    for number in range(1, last + 1):
        started = time.perf_counter()
        work.last_query = ""
        try:
            result = await _attempt(work, draft)
        except AttemptFailed as failure:
            _record(work, number, started, error=failure.error)
            if number == last:
                raise _exhausted(work, failure) from failure
            draft = await recover(work, failure)
        except StillUnclear:
            raise
        except BosError as failure:
            _record(work, number, started, error=failure.message)
            if isinstance(failure, AgentFailure):
                failure.details.setdefault("attempt_history", work.attempt_history)
            raise
        else:
            _record(work, number, started, result=result)
            return result
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _attempt(work: StepState, draft: Draft | None) -> QueryResult:
    draft = draft or await generate_query(work)
    work.last_query = draft.sql
    approved = safety_check(work, draft.sql)
    work.last_query = approved.sql
    require_metrics(work, approved)
    return await run_reviewed(work, approved)


def _record(
    work: StepState,
    number: int,
    started: float,
    *,
    error: str | None = None,
    result: QueryResult | None = None,
) -> None:
    """Record an attempt in the history and the trace."""
    latency_ms = round((time.perf_counter() - started) * 1000, 1)
    entry = {
        "attempt": number,
        "query": work.last_query,
        "success": result is not None,
        "error": error,
        "latency_ms": latency_ms,
    }
    work.attempt_history.append(entry)
    work.task.partial(attempt_history=work.attempt_history)
    row_count = 0 if result is None else result.table.row_count
    data = {"attempt": number, "query": work.last_query, "latency_ms": latency_ms}
    state = {"row_count": row_count, "state": f"ATTEMPT_{number}"}
    if result is None:
        work.task.trace.error(ATTEMPT_FAILED, error=error, **data, **state)
    else:
        work.task.trace.message(ATTEMPT_SUCCEEDED, **data, **state)


def _exhausted(work: StepState, failure: AttemptFailed) -> AgentFailure:
    count = len(work.attempt_history)
    times = "once" if count == 1 else f"{count} times"
    work.task.trace.decision("Giving up", state="FAILURE", attempts=count)
    return AgentFailure(
        AgentErrorType.QUERY_ERROR,
        f"The query failed {times}. The last error: {failure.error}",
        {
            "error": failure.error,
            "query": failure.query,
            "attempt_history": work.attempt_history,
        },
    )
