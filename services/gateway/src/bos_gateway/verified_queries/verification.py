"""Verification of a run's query: its step, its question, and SQL that passes the guard.

Nothing is believed here because a run holds it: agents write results, and reviewers correct them.
The guard says whether a text only reads; whether its tables may be read is decided by the agent and
by the service in front of the database whenever it is used.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bos.common.v1 import DatabaseQuery
from bos.gateway.v1 import VerifiedQuery
from bos_errors import FailedPrecondition, InvalidArgument
from bos_gateway.core.agent_input import question_of_step
from bos_gateway.core.run_state import SUCCEEDED
from bos_sqlguard import DIALECTS, Guard, GuardPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos.gateway.v1 import CreateVerifiedQueryRequest
    from bos_gateway.core.run_state import RunState, StepState
    from bos_sqlguard import Verdict

MAX_QUESTION_CHARS: Final = 2_000
MAX_SQL_CHARS: Final = 6_000
_MAX_TABLES: Final = 64
_MAX_NAME_CHARS: Final = 256
# Rows and columns of a result are bounded where the query runs.
_ROWS, _COLUMNS = 2**31 - 2, 10_000


def verified_of(state: RunState, asked: CreateVerifiedQueryRequest) -> VerifiedQuery:
    """Make a verified query from a run of the caller's, with the corrected SQL if it was sent.

    Raises:
        FailedPrecondition: the run has not ended, asked no database, or is too long.
        InvalidArgument: there is no such step, or there are several; the correction is refused.
    """
    if state.response is None:
        raise FailedPrecondition("The run has not ended yet; wait for it.", reason="RUN_UNFINISHED")
    step_id, step = _step(state, asked.step_id)
    question = question_of_step(state, step.sub_task)
    if "\0" in question or not 0 < len(question) <= MAX_QUESTION_CHARS:
        raise _unfit(f"its question has {len(question)} characters ({MAX_QUESTION_CHARS} may be)")
    assert step.result is not None
    ran, given = step.result.query, asked.corrected_sql.strip()
    query = _corrected(ran, given) if given and given != ran.sql.strip() else _as_it_ran(ran)
    return VerifiedQuery(
        question=question,
        query=query,
        group=asked.group,
        run_id=state.run_id,
        step_id=step_id,
        corrected=query.sql != ran.sql,
    )


def _step(state: RunState, step_id: str) -> tuple[str, StepState]:
    """The step that asked a database."""
    having = {
        name: step
        for name, step in state.steps.items()
        if step.result is not None and step.result.status == SUCCEEDED and step.result.query.sql
    }
    if not having:
        raise FailedPrecondition(
            "No step of this run asked a database and succeeded, so there is no query to verify.",
            reason="NO_QUERY",
        )
    chosen = step_id or (next(iter(having)) if len(having) == 1 else "")
    if chosen not in having:
        what = "names no step that" if step_id else "name one, as several steps"
        raise InvalidArgument.field("step_id", f"{what} asked a database: {', '.join(having)}")
    return chosen, having[chosen]


def _as_it_ran(ran: DatabaseQuery) -> DatabaseQuery:
    names = (ran.database, ran.dialect, ran.default_schema, *ran.tables)
    if len(ran.sql) > MAX_SQL_CHARS:
        raise _unfit(f"its query has {len(ran.sql)} characters ({MAX_SQL_CHARS} may be)")
    if len(ran.tables) > _MAX_TABLES or any(map(_is_odd, names)) or "\0" in ran.sql:
        raise _unfit("its agent described the query in an unknown way")
    verdict = _guard(ran, ran.tables).check(ran.sql)
    if not verdict.is_safe:
        raise _unfit(f"its query is refused now. {verdict.user_message}")
    return ran


def _corrected(ran: DatabaseQuery, sql: str) -> DatabaseQuery:
    """``ran`` with another text, which may read other tables."""
    if len(sql) > MAX_SQL_CHARS:
        raise InvalidArgument.field("corrected_sql", f"has over {MAX_SQL_CHARS} characters")
    tables = frozenset(ran.tables)
    verdict = _guard(ran, tables).check(sql)
    others = _others(verdict)
    if others and len(tables | others) <= _MAX_TABLES:
        with suppress(FailedPrecondition):  # one of them is none of the database's own
            verdict = _guard(ran, tables | others).check(sql)
    if not verdict.is_safe:
        raise InvalidArgument.field("corrected_sql", verdict.user_message)
    corrected = DatabaseQuery()
    corrected.CopyFrom(ran)
    corrected.sql = sql
    corrected.tables[:] = verdict.used_tables
    return corrected


def _others(verdict: Verdict) -> frozenset[str]:
    """Tables outside the run's, if they are the guard's only objection."""
    if {each.rule for each in verdict.violations} != {"TABLE_NOT_ALLOWED"}:
        return frozenset()
    return frozenset(each.detail for each in verdict.violations)


def _guard(ran: DatabaseQuery, tables: Iterable[str]) -> Guard:
    """Guard of the database's dialect for these tables.

    Raises:
        FailedPrecondition: the dialect is unknown, or a table is a system catalogue.
    """
    if ran.dialect not in DIALECTS:
        raise _unfit(f'queries in the dialect "{ran.dialect[:40]}" cannot be checked')
    try:
        policy = GuardPolicy(
            ran.dialect,
            frozenset(tables),
            default_schema=ran.default_schema,
            max_rows=_ROWS,
            max_columns=_COLUMNS,
        )
    except ValueError:
        raise _unfit("it reads what is no ordinary table") from None
    return Guard(policy)


def _is_odd(name: str) -> bool:
    return len(name) > _MAX_NAME_CHARS or not (name == "" or name.isprintable())


def _unfit(why: str) -> FailedPrecondition:
    return FailedPrecondition(f"This cannot be verified: {why}.", reason="QUERY_UNFIT")
