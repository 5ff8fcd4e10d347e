"""What became of a question: read from the response of its run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from bos.gateway.v1 import RunStatus

if TYPE_CHECKING:
    from bos.common.v1 import Table, Value
    from bos.gateway.v1 import OrchestratorResponse, Run
    from bos_cli.evaluation.questions import Cell

Rows = list[list["Cell"]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, as far as rules look at it."""

    status: str
    run_id: str = ""
    answer: str = ""
    agents: tuple[str, ...] = ()
    tables: tuple[Rows, ...] = ()
    sources: tuple[str, ...] = ()
    sql: tuple[str, ...] = ()
    calls: int = 0
    tokens: int = 0
    cost_micros: int = 0
    seconds: float = 0.0
    error: str = ""


def outcome_of(run: Run) -> Outcome:
    """Outcome of a run that has ended or waits for an approval."""
    response = run.response
    usage = response.metadata.usage
    tables = [response.data, *(each.table for each in response.agent_results)]
    queries = [
        each.data.fields["sql"].string_value
        for each in response.agent_results
        if each.agent_name == "sql" and "sql" in each.data.fields
    ]
    return Outcome(
        status=RunStatus.Name(run.status).removeprefix("RUN_STATUS_").casefold(),
        run_id=run.run_id,
        answer=response.answer or _asked(response),
        agents=tuple(dict.fromkeys(response.metadata.agents))
        or tuple(dict.fromkeys(step.agent for step in run.plan.steps)),
        tables=tuple(_rows(each) for each in tables if each.columns),
        sources=tuple(
            " ".join((each.title, each.reference, each.uri, each.section, each.excerpt))
            for each in response.sources
        ),
        sql=tuple(queries),
        calls=usage.model_calls,
        tokens=usage.input_tokens + usage.output_tokens,
        cost_micros=usage.cost_micros,
        seconds=round(response.metadata.latency.ToMilliseconds() / 1000, 3),
        error=response.error.message,
    )


def _asked(response: OrchestratorResponse) -> str:
    """What the user is asked back, with the choices that are offered."""
    return "\n".join(
        " ".join((each.question, *(f"[{option}]" for option in each.options)))
        for each in response.clarification.questions
    )


def _rows(table: Table) -> Rows:
    return [[cell_of(each) for each in row.values] for row in table.rows]


def cell_of(value: Value) -> Cell:
    """A typed cell: numbers are exact, dates are dates; lists and maps are texts."""
    match value.WhichOneof("kind"):
        case None | "null_value":
            return None
        case "bool_value":
            return value.bool_value
        case "int64_value":
            return value.int64_value
        case "double_value":
            return Decimal(repr(value.double_value))
        case "decimal_value":
            return Decimal(value.decimal_value)
        case "string_value":
            return value.string_value
        case "bytes_value":
            return value.bytes_value.hex()
        case "date_value":
            day = value.date_value
            return date(day.year, day.month, day.day)
        case "timestamp_value":
            return value.timestamp_value.ToDatetime(UTC).replace(tzinfo=None)
    return " ".join(str(value).split())


def plain(cell: Cell) -> Cell:
    """A cell as it is compared: one kind of number, dates and moments as their ISO texts."""
    if isinstance(cell, bool) or cell is None:
        return cell
    if isinstance(cell, int | Decimal):
        return Decimal(cell)
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ")
    return cell.isoformat() if isinstance(cell, date) else cell
