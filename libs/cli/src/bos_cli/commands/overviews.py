"""Runs of others as operators see them: lists, and one run with its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos.agent.v1 import AgentExecutionStatus
from bos_client.text import one_line, run_status_text, time_text

if TYPE_CHECKING:
    from rich.console import Console

    from bos.gateway.v1 import ListUserRunsResponse, RunOverview

_STATUS = "AGENT_EXECUTION_STATUS_"


def list_of_users(console: Console, found: ListUserRunsResponse, user: str) -> None:
    """A page of runs, and how the next one is asked for."""
    grid = make_grid("run", "user", "accepted (UTC)", "status", "agents", "error", "tokens")
    for run in found.runs:
        grid.add_row(
            Text(run.run_id),
            Text(one_line(run.user_id)),
            time_text(run.create_time),
            run_status_text(run.status),
            Text(one_line(", ".join(run.agents))),
            Text(one_line(run.error_type)),
            str(run.tokens),
        )
    console.print(grid if found.runs else "no runs")
    if found.next_page_token:
        of_user = f" --user {user}" if user else ""
        more = f"more: bos runs list --all-users{of_user} --page {found.next_page_token}"
        console.print(Text(more))


def show_overview(console: Console, run: RunOverview) -> None:
    """A run with its steps."""
    console.print(Text(f"Run {run.run_id}: {run_status_text(run.status)}", style="bold"))
    ended = f", ended {time_text(run.finish_time)} UTC" if run.HasField("finish_time") else ""
    accepted = f"accepted {time_text(run.create_time)} UTC{ended}"
    console.print(Text(f"of {one_line(run.user_id)}, {accepted}", style="dim"))
    if run.error_type:
        console.print(Text(f"error: {one_line(run.error_type)}", style="red"))
    tokens = run.usage.input_tokens + run.usage.output_tokens
    console.print(Text(f"{tokens} tokens, {run.usage.model_calls} model calls", style="dim"))
    grid = make_grid("step", "agent", "status", "attempts", "seconds", "error")
    for step in run.steps:
        seconds = step.latency.ToTimedelta().total_seconds()
        status = AgentExecutionStatus.Name(step.status).removeprefix(_STATUS)
        grid.add_row(
            f"{step.revision}.{step.place}",
            Text(one_line(step.agent)),
            status.lower().replace("_", " "),
            str(step.attempts),
            f"{seconds:.1f}" if step.HasField("latency") else "",
            Text(one_line(step.error_type)),
        )
    console.print(grid if run.steps else "no steps yet")


def make_grid(*columns: str) -> Grid:
    """A table without frame; texts that are too long go on in the next line."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        grid.add_column(column, overflow="fold")
    return grid
