"""The charts agent: a table of an earlier step becomes a Vega-Lite chart and its pictures.

::

    tables of the input -> one by the question -> rules -> (model) -> rows -> specification
                                                                  -> drawing process -> PNG, SVG

Without a model the rules alone choose. A model may name mark, columns, order and title, and nothing
else of the specification.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bos.agent.v1 import SideEffectClass
from bos.common.v1 import Chart
from bos_agentkit import Agent, AgentFailure, ToolContext, optional_reply, succeeded, tool
from bos_charts import prompts
from bos_charts.card import charts_card
from bos_charts.choice import Choice, NothingToDraw, choose, with_title
from bos_charts.data import ChartData, chart_data, plain_rows
from bos_charts.formats import Formats
from bos_charts.refine import planned, refined, says_enough
from bos_charts.render.pool import NotDrawn
from bos_charts.replies import ChartChoice
from bos_charts.spec import field_names, specification
from bos_charts.tables import RawTable, Table, best_table, raw_dumps, raw_tables
from bos_errors import InvalidArgument
from bos_llm import NoReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Artefact
    from bos_agentkit import AgentTask
    from bos_charts.render.pool import Pictures, Renderer
    from bos_charts.settings import ChartsSettings
    from bos_llm import Model

NO_TABLE = "NoTable"
TABLE_TOO_LARGE = "TableTooLarge"
NOT_AGGREGATED = "NotAggregated"
NOTHING_TO_DRAW = "NothingToDraw"
NOT_DRAWN = "ChartNotDrawn"
VEGA_LITE_TYPE = "application/vnd.vegalite.v6+json"
_TOOL = "draw_chart"
_FORMATS = ("png", "svg")
_MAX_CELLS = 100_000
_NAMES = {
    "bar": "bar chart",
    "line": "line chart",
    "area": "area chart",
    "point": "scatter chart",
    "arc": "pie chart",
    "histogram": "histogram",
}


class ChartsAgent(Agent):
    """Agent that draws tables as charts.

    Args:
        settings: Limits and locale.
        renderer: Draws specifications.
        model: Refines the choice of the rules; None: the rules alone.
    """

    def __init__(self, settings: ChartsSettings, renderer: Renderer, model: Model | None) -> None:
        self._settings = settings
        self._renderer = renderer
        self._model = model
        self.card = charts_card(self.all_tools())

    @tool(
        description="Draws rows of an earlier step as a chart; without mark, x or y they are "
        "chosen from the columns and the question.",
        side_effect=SideEffectClass.SIDE_EFFECT_CLASS_NONE,
    )
    async def draw_chart(
        self,
        context: ToolContext,
        rows: Annotated[
            list[Any], Field(description="@{outputs.STEP.rows}; empty: the tables of earlier steps")
        ] = [],  # noqa: B006  pydantic copies it
        mark: Annotated[str, Field(description="bar, line, area, point, arc or histogram")] = "",
        x: Annotated[str, Field(description="Column of names or dates")] = "",
        y: Annotated[list[str] | str, Field(description="Columns of numbers")] = "",
        series: Annotated[str, Field(description="Column that splits into colours")] = "",
        order: Literal["", "value", "name", "given"] = "",
        stacked: bool | None = None,
        title: str = "",
        formats: list[Literal["png", "svg"]] = ["png", "svg"],  # noqa: B006
    ) -> dict[str, Any]:
        """Draw the chart; returns the result's data, and attaches its files to the step."""
        given = {"mark": mark, "x": x, "y": y, "series": series, "order": order, "title": title}
        arguments: dict[str, Any] = {name: value for name, value in given.items() if value}
        if stacked is not None:
            arguments["stacked"] = stacked
        task = context.task
        tables = self._tables(task, {"rows": rows} if rows else {})
        table = best_table(tables, f"{task.effective_task} {task.input.question}")
        try:
            choice = await self._chosen(task, table, arguments)
            data = chart_data(
                choice,
                max_points=self._settings.max_points,
                max_categories=self._settings.max_categories,
                max_series=self._settings.max_series,
            )
        except NothingToDraw as error:
            raise AgentFailure(NOTHING_TO_DRAW, str(error)) from error
        formatting = Formats(self._settings.locale, choice.y[0].currency)
        spec = specification(choice, data, formatting)
        task.trace.decision(
            "Chose a chart",
            table=table.name,
            mark=choice.mark,
            x=choice.x.name if choice.x else "",
            y=[column.name for column in choice.y],
        )
        pictures = await self._drawn(spec)
        files = _attach(task, choice, spec, pictures, formats)
        chart = Chart(
            title=choice.title,
            type=choice.mark,
            x_column=choice.x.name if choice.x else choice.y[0].name,
            y_columns=[column.name for column in choice.y],
            specification=files[0],
            images=files[1:],
        )
        return {
            "chart": chart,
            "mark": choice.mark,
            "title": choice.title,
            "x": choice.x.name if choice.x else choice.y[0].name,
            "y": [column.name for column in choice.y],
            "rows": plain_rows(data, field_names(choice)),
            "notes": [*data.notes, *choice.notes],
            "files": [file.name for file in files],
            "summary": _summary(choice, data, formatting),
        }

    async def execute(self, task: AgentTask) -> AgentResult:
        """Draw one chart of the step's input."""
        drawn = await task.tools.call(_TOOL, **_tool_arguments(task))
        chart, summary = drawn.pop("chart"), drawn.pop("summary")
        task.trace.result("Drew a chart", files=drawn["files"])
        answer = " ".join([summary, *drawn["notes"]])
        return succeeded(task, answer=answer, data=drawn, charts=[chart])

    def _tables(self, task: AgentTask, arguments: dict[str, Any]) -> list[Table]:
        """Tables that may be drawn, those that the plan handed over alone if there are any.

        Raises:
            AgentFailure: there is none, or all are too large or single records that were cut.
        """
        found = raw_tables({**_loose_tables(task), **arguments}, task.dependencies)
        if not found:
            raise AgentFailure(
                NO_TABLE,
                "There is no table to draw. Let a step before this one return rows, such as a "
                "query, and hand them over as rows: @{outputs.STEP.rows}.",
            )
        found = [raw for raw in found if raw.given] or found
        dumps = raw_dumps(task.dependencies)
        whole = [raw for raw in found if raw.rows not in dumps.values()]
        if not whole:
            raise AgentFailure(
                NOT_AGGREGATED,
                f"The rows of {', '.join(dumps)} are single records, of which only the first were "
                "read: charts are drawn of totals. Let that step return totals, such as by month, "
                "region or the top ten.",
            )
        found = whole
        small = [raw for raw in found if self._fits(raw)]
        if not small:
            raise AgentFailure(
                TABLE_TOO_LARGE,
                f"The table {found[0].name} has {len(found[0].rows)} rows, and charts are drawn of "
                f"at most {self._settings.max_input_rows}. Let the step before aggregate them, "
                "such as by month, region or the top ten.",
            )
        return [raw.judged() for raw in small]

    def _fits(self, raw: RawTable) -> bool:
        rows = len(raw.rows)
        if rows > self._settings.max_input_rows:
            return False
        return rows * max(len(row) for row in raw.rows) <= _MAX_CELLS

    async def _chosen(self, task: AgentTask, table: Table, arguments: dict[str, Any]) -> Choice:
        """Chart by the rules, then the plan, then the model where the plan leaves room."""
        question = f"{task.effective_task}\n{task.input.question}"
        choice = choose(table, question)
        choice, why = planned(choice, table, arguments)
        if why:
            choice = replace(choice, notes=(*choice.notes, f"Not drawn as asked, because {why}."))
        choice = choice if choice.title else with_title(choice, "")
        if says_enough(arguments):
            return choice
        try:
            reply = await optional_reply(
                task,
                self._model,
                lambda: prompts.choice_messages(task, table, choice),
                ChartChoice,
                within_s=min(self._settings.model_timeout_s, task.remaining_s() * 0.4),
            )
        except NoReply as failure:
            task.trace.message("Chosen by rules alone", error=failure.error_type)
            return choice
        given = {key: arguments[key] for key in arguments if key != "title"}
        better, why = refined(choice, table, reply)
        if given:  # what the plan says stays
            better, _ = planned(better, table, given)
        if why:
            task.trace.message("The model's chart cannot be drawn; the rules' is", why=why)
        title = str(arguments.get("title", "")) and choice.title
        return with_title(better, title or better.title)

    async def _drawn(self, spec: dict[str, Any]) -> Pictures:
        try:
            return await self._renderer.draw(spec)
        except NotDrawn as error:
            late = error.reason in ("RENDERER_TIMED_OUT", "RENDERER_NOT_STARTED")
            raise AgentFailure(
                NOT_DRAWN,
                "The chart could not be drawn. Its table is in the answer of the step before.",
                {"reason": error.reason},
                retryable=late,
            ) from error


def _summary(choice: Choice, data: ChartData, formats: Formats) -> str:
    """Summary of the chart, with its highest and lowest value."""
    said = f"{choice.title}: {_NAMES[choice.mark]}."
    points = [point for point in data.points if point.y is not None]
    if choice.mark in ("histogram", "point") or len(points) < 2:
        return f"{said} {len(points)} points." if choice.mark == "point" else said
    ends = []
    for name, pick in (("Highest", max), ("Lowest", min)):
        point = pick(points, key=lambda each: each.y or 0.0)
        place = formats.position(point.x, data.step)
        place += f" ({point.series})" if point.series else ""
        ends.append(f"{name}: {place}, {formats.number(point.y or 0.0, data.unit)}.")
    return " ".join([said, *ends])


def _tool_arguments(task: AgentTask) -> dict[str, Any]:
    """The plan's input as arguments of the tool; tables under other names are found there.

    Raises:
        InvalidArgument: a wanted format is unknown.
    """
    known = ("mark", "x", "y", "series", "order", "stacked", "title", "formats")
    given = {name: value for name, value in task.arguments.items() if name in known}
    if isinstance(given.get("formats"), str):
        given["formats"] = [given["formats"]]
    if any(name not in _FORMATS for name in given.get("formats") or ()):
        raise InvalidArgument.field("sub_task_input.formats", "must be png or svg")
    rows = task.arguments.get("rows")
    if isinstance(rows, list):
        given["rows"] = rows
    return {name: value for name, value in given.items() if value is not None}


def _loose_tables(task: AgentTask) -> dict[str, Any]:
    """Inputs of the plan that may hold tables, under any name."""
    return {
        name: value
        for name, value in task.arguments.items()
        if isinstance(value, list | dict) and name not in ("rows", "y", "formats")
    }


def _attach(
    task: AgentTask,
    choice: Choice,
    spec: dict[str, Any],
    pictures: Pictures,
    formats: Sequence[str],
) -> list[Artefact]:
    """Attach specification and pictures; returns their references, the specification's first."""
    stem = file_stem(choice.title)
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    attached = [task.attach_file(f"{stem}.vl.json", VEGA_LITE_TYPE, text.encode())]
    contents = {"png": ("image/png", pictures.png), "svg": ("image/svg+xml", pictures.svg)}
    for wanted in dict.fromkeys(formats or _FORMATS):
        media_type, content = contents[wanted]
        attached.append(task.attach_file(f"{stem}.{wanted}", media_type, content))
    return attached


def file_stem(title: str) -> str:
    """Name of a file from a title, in letters of any script."""
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else "-" for c in title.lower())
    return re.sub("-+", "-", kept).strip("-")[:60] or "chart"
