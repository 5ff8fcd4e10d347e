"""The SQL agent: from a task to a guarded query to an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import SideEffectClass
from bos.common.v1 import DatabaseQuery, Outcome
from bos_agentkit import (
    Agent,
    AgentFailure,
    ToolContext,
    needs_clarification,
    succeeded,
    tool,
)
from bos_chassis.values import table_rows
from bos_errors import NEUTRAL_INTERNAL_MESSAGE, BosError, Internal
from bos_sql.card import sql_card
from bos_sql.checks.run import Checked, checked
from bos_sql.database.file_words import sounds_like_files
from bos_sql.database.metadata import bounded, database_sources, list_tables, load_index
from bos_sql.database.prefetch import PrefetchedOverviews
from bos_sql.database.table_listing import asks_for_tables, tables_result
from bos_sql.database.uploaded_files import FILES_DATABASE, files_overview
from bos_sql.grounding.cache import MetadataIndexes
from bos_sql.model_calls import ModelCalls
from bos_sql.steps.attempts import run_attempts
from bos_sql.steps.clarity import choose_tables
from bos_sql.steps.describe import describe, take_examples
from bos_sql.steps.guard import Guards
from bos_sql.steps.interpret import has_no_values, interpret
from bos_sql.steps.step_state import ClarificationNeeded, NotInSource, StepState
from bos_sql.steps.variants import query_variants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos.agent.v1 import AgentResult, TaskMetadata
    from bos_agentkit import AgentTask
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Model
    from bos_sql.database.mcp import McpClient
    from bos_sql.database.metadata import Overview, ReadSchema
    from bos_sql.grounding.index import MetadataIndex
    from bos_sql.metrics import SqlMetrics
    from bos_sql.settings import SqlSettings
    from bos_sql.steps.interpret import Interpretation
    from bos_sqlguard import Dialect

_SCHEMA = "mcp_db_schema"
_SCHEMA_TIMEOUT_S = 15.0
# mcp_db cancels a query at its time limit and then sends the error.
_REPLY_TIME_S = 2.0
_TRACED_FILES = 20


class SqlAgent(Agent):
    """Agent that writes, checks and runs one query per step; caches guards and metadata indexes.

    Args:
        settings: Database and limits.
        database: Client of mcp_db.
        model: The agent's model; None: answers from metadata only.
        telemetry: For the log of unexpected failures.
        indexes: Cache of metadata indexes, shared by steps.
        metrics: Where the guard's verdicts are counted; None: nowhere.
    """

    def __init__(
        self,
        settings: SqlSettings,
        database: McpClient,
        model: Model | None,
        telemetry: Telemetry,
        indexes: MetadataIndexes,
        metrics: SqlMetrics | None = None,
    ) -> None:
        self._settings = settings
        self._database = database
        self._model = model
        self._guards = Guards(metrics)
        self._metrics = metrics
        self._indexes = indexes
        # Of their own, so that users' files displace no index of a database.
        self._file_indexes = MetadataIndexes(None, ttl_s=settings.metadata_ttl_s)
        self._prefetched = PrefetchedOverviews()
        self._log = telemetry.logger("bos.sql")
        self.card = sql_card(self.all_tools())

    @tool(
        description="Lists the readable tables of a database, or describes some of them with their"
        " columns, keys and frequent values.",
        side_effect=SideEffectClass.SIDE_EFFECT_CLASS_NONE,
    )
    async def mcp_db_schema(
        self, context: ToolContext, database: str = "", tables: list[str] | None = None
    ) -> dict[str, Any]:
        """Call mcp_db's tool of the same name."""
        context.task.usage.api_call()
        arguments = {"database": database, **({"tables": tables} if tables else {})}
        return await self._database.call("mcp_db_schema", arguments, timeout_s=_SCHEMA_TIMEOUT_S)

    @tool(
        description="Runs one read-only SELECT against a database and returns its rows.",
        side_effect=SideEffectClass.SIDE_EFFECT_CLASS_NONE,
    )
    async def mcp_db_query(
        self,
        context: ToolContext,
        query: str,
        database: str = "",
        max_rows: int = 200,
        max_cols: int = 50,
        timeout_s: float = 30.0,
    ) -> dict[str, Any]:
        """Call mcp_db's tool of the same name."""
        context.task.usage.api_call()
        arguments = {
            "query": query,
            "database": database,
            "max_rows": max_rows,
            "max_cols": max_cols,
            "timeout_s": timeout_s,
        }
        return await self._database.call(
            "mcp_db_query", arguments, timeout_s=timeout_s + _REPLY_TIME_S
        )

    async def prepare(self, metadata: TaskMetadata, question: str) -> None:
        """Prefetch the table overview for the run's steps, and the index where it is cached."""

        async def read(arguments: dict[str, Any]) -> Mapping[str, Any]:
            return await self._database.call(_SCHEMA, arguments, timeout_s=_SCHEMA_TIMEOUT_S)

        overview = await list_tables(read, self._settings)
        self._prefetched.keep((metadata.user_id, metadata.run_id), overview)
        if self._indexes.keeps(overview.fingerprint):
            await load_index(read, self._settings, overview, self._indexes)

    async def execute(self, task: AgentTask) -> AgentResult:
        """Answer one task."""
        try:
            return await self._execute(task)
        except ClarificationNeeded as needed:
            return needs_clarification(task, needed.questions, assumptions=needed.assumptions)
        except NotInSource as absent:
            return _not_in_source(task, absent.reason)
        except Exception as error:
            if isinstance(error, BosError) and type(error) is not Internal:
                raise
            # Unlike in other agents, unexpected errors are not retryable.
            self._log.error("sql step failed unexpectedly", exc_info=error)
            raise AgentFailure(type(error).__name__, NEUTRAL_INTERNAL_MESSAGE) from error

    async def _execute(self, task: AgentTask) -> AgentResult:
        settings = self._settings
        overview = await self._overview(task)
        if asks_for_tables(task.effective_task, overview):
            return tables_result(task, overview)
        guard = self._guards.for_overview(overview)
        index = await self._index(task, overview)
        work = StepState(task, settings, ModelCalls(self._model, task), overview, index, guard)
        take_examples(work, self._metrics)
        describe(work)
        if work.model.tier == "small":
            await choose_tables(work)
        result = await run_attempts(work)
        task.partial(**_data(work, Checked(result, is_aggregated=True), {}))
        task.trace.decision("Result found", state="SUCCESS", attempts=len(work.attempt_history))
        found = await checked(work, result)
        words, variants = await asyncio.gather(
            interpret(work, found.result, found.caveats), query_variants(work, found.result)
        )
        return _answered(work, found, words, variants)

    async def _index(self, task: AgentTask, overview: Overview) -> MetadataIndex:
        backend, indexes = task.input.backend, self._indexes
        if overview.database == FILES_DATABASE:
            backend, indexes = FILES_DATABASE, self._file_indexes
        return await load_index(_reading(task), self._settings, overview, indexes, backend)

    async def _overview(self, task: AgentTask) -> Overview:
        """Table overview as the request bounds it, prefetched for this run or read now."""
        return bounded(await self._own_or_asked(task), task.input)

    async def _own_or_asked(self, task: AgentTask) -> Overview:
        if (files := await self._uploaded(task)) is not None:
            return files
        metadata, allowed = task.input.metadata, task.input.tools
        overview = (
            self._prefetched.get((metadata.user_id, metadata.run_id)) if metadata.run_id else None
        )
        backend = task.input.backend
        if overview is not None and backend not in ("", overview.database):
            overview = None
        prepared = overview is not None and (not allowed or _SCHEMA in allowed)
        if overview is None or not prepared:
            overview = await list_tables(_reading(task), self._settings, backend)
        else:
            arguments = {"database": overview.database}
            task.trace.tool(_SCHEMA, arguments=arguments, duration_ms=0.0, prepared=True)
        task.trace.message(
            "list_tables",
            database=overview.database,
            tables=len(overview.tables),
            prepared=prepared,
        )
        return overview

    async def _uploaded(self, task: AgentTask) -> Overview | None:
        """Overview of the uploaded files that the task is about; None if it is about none."""
        backend, text = task.input.backend, task.effective_task
        if backend == FILES_DATABASE:
            task.taint()  # the author of the file wrote its content
            return None
        if backend or not sounds_like_files(text):
            return None
        files = await files_overview(_reading(task), self._settings, text)
        if files is not None:
            task.taint()
            task.trace.decision(
                "The task is about uploaded files",
                files=[table.title for table in files.tables][:_TRACED_FILES],
            )
        return files


def _reading(task: AgentTask) -> ReadSchema:
    """Reader of the schema through the step's toolbox, which checks permission."""

    async def read(arguments: dict[str, Any]) -> Mapping[str, Any]:
        envelope: Mapping[str, Any] = await task.tools.call(_SCHEMA, **arguments)
        return envelope

    return read


def _answered(
    work: StepState, found: Checked, words: Interpretation, variants: Mapping[Dialect, str]
) -> AgentResult:
    result = found.result
    return succeeded(
        work.task,
        answer=words.answer,
        table=result.table,
        data=_data(work, found, variants),
        sources=database_sources(work.overview, result.query.used_tables),
        highlights=words.highlights,
        followups=words.followups,
        assumptions=work.stated_assumptions,
        caveats=found.caveats,
        outcome=_outcome(found),
        query=DatabaseQuery(
            database=work.overview.database,
            dialect=work.overview.dialect,
            default_schema=work.overview.default_schema,
            sql=result.query.sql,
            tables=result.query.used_tables,
        ),
    )


def _not_in_source(task: AgentTask, reason: str) -> AgentResult:
    task.trace.decision("The data do not hold this", reason=reason)
    return succeeded(
        task,
        answer=f"The data do not hold this. {reason}",
        outcome=Outcome.OUTCOME_NOT_IN_SOURCE,
    )


def _outcome(found: Checked) -> Outcome:
    if has_no_values(found.result.table):
        return Outcome.OUTCOME_EMPTY
    return Outcome.OUTCOME_PARTLY if found.is_cut else Outcome.OUTCOME_ANSWERED


def _data(work: StepState, found: Checked, variants: Mapping[Dialect, str]) -> dict[str, Any]:
    """Data for references; the agent's fields take precedence over columns of the same name."""
    result = found.result
    rows = table_rows(result.table)
    return {
        **(rows[0] if len(rows) == 1 else {}),
        "sql": result.query.sql,
        "sql_postgres": variants.get("postgres", ""),
        "sql_mysql": variants.get("mysql", ""),
        "sql_server": variants.get("tsql", ""),
        "sql_sqlite": variants.get("sqlite", ""),
        "used_tables": list(result.query.used_tables),
        "assumptions": list(work.assumptions),
        "metrics": [{"name": each.name, "formula": each.formula} for each in work.named_metrics],
        "execution_stats": {**result.stats, "aggregated": found.is_aggregated},
        "checks": found.done,
        "rows": rows,
        "units": {each.name: each.unit for each in result.table.columns if each.unit},
        "row_count": result.table.row_count,
        "attempt_history": work.attempt_history,
        "citations": [
            {"doc_id": each.doc_id, "snippet": each.snippet} for each in work.pack.citations
        ],
    }
