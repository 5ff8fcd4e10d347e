"""``bos runs …`` and ``bos agents``."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click
from rich.text import Text

from bos.gateway.v1 import ListAgentsResponse, RunStatus
from bos_cli.commands.approvals import asker_for
from bos_cli.commands.ask import follow
from bos_cli.commands.feedback import feedback_line
from bos_cli.commands.files import files
from bos_cli.commands.overviews import list_of_users, make_grid, show_overview
from bos_cli.plugins import PluginGroup
from bos_cli.render import View, make_console
from bos_cli.render.parts import show_journal, show_outcome, show_plan
from bos_cli.session import ANSWERED, client_for, print_json, run
from bos_client.text import clean, one_line, run_status_text, time_text

if TYPE_CHECKING:
    from rich.console import Console

    from bos.gateway.v1 import AgentInfo, Run, RunOverview
    from bos_cli.session import Target

_QUESTION_CHARS = 80
_STATES = {
    run_status_text(status).replace(" ", "-"): status
    for status in (cast("RunStatus", number) for number in RunStatus.values()[1:])
}

_all_users = click.option(
    "--all-users",
    is_flag=True,
    help="As an operator: whosever it is, without what was asked and answered.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")


@click.group(cls=PluginGroup, plugins="bos.commands.runs")
def runs() -> None:
    """Look at runs, follow them, end them."""


@runs.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most to show."
)
@click.option("--status", type=click.Choice(list(_STATES)), help="Only runs in this state.")
@click.option("--page", default="", metavar="TOKEN", help="Where the previous page ended.")
@_all_users
@click.option("--user", default="", metavar="ID", help="With --all-users: of this user alone.")
@_json
@click.pass_obj
def list_runs(
    target: Target,
    limit: int,
    status: str | None,
    page: str,
    all_users: bool,
    user: str,
    as_json: bool,
) -> None:
    """The latest runs, newest first."""
    if user and not all_users:
        raise click.UsageError("--user is for operators: add --all-users.")

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            if all_users:
                wanted = _STATES[status] if status else RunStatus.RUN_STATUS_UNSPECIFIED
                listed_runs = await bos.list_user_runs(
                    owner_id=user, page_size=min(limit, 100), page_token=page, status=wanted
                )
                if as_json:
                    print_json(listed_runs)
                else:
                    list_of_users(make_console(), listed_runs, user)
                return ANSWERED
            found = await bos.list_runs(
                page_size=limit,
                page_token=page,
                status=_STATES[status] if status else RunStatus.RUN_STATUS_UNSPECIFIED,
            )
        if as_json:
            print_json(found)
            return ANSWERED
        console = make_console()
        grid = make_grid("run", "accepted (UTC)", "status", "question")
        for listed in found.runs:
            grid.add_row(
                Text(listed.run_id),
                time_text(listed.create_time),
                run_status_text(listed.status),
                Text(one_line(listed.question, _QUESTION_CHARS)),
            )
        console.print(grid if found.runs else "no runs")
        if found.next_page_token:
            console.print(Text(f"more: bos runs list --page {found.next_page_token}"))
        return ANSWERED

    run(work(), as_json=as_json)


@runs.command()
@click.argument("run_id")
@click.option("--rows", type=click.IntRange(min=1), default=20, show_default=True)
@_all_users
@_json
@click.pass_obj
def show(target: Target, run_id: str, rows: int, all_users: bool, as_json: bool) -> None:
    """One run: its question, plan and outcome."""

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            if all_users:
                overview = await bos.get_user_run(run_id)
                if as_json:
                    print_json(overview)
                else:
                    show_overview(make_console(), overview)
                return ANSWERED
            found = await bos.get_run(run_id)
        if as_json:
            print_json(found)
        else:
            _show(make_console(), found, View(max_rows=rows))
        return ANSWERED

    run(work(), as_json=as_json)


@runs.command()
@click.argument("run_id")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Last event already seen.")
@click.option("--trace", is_flag=True, help="Show what planner, agents and composer do.")
@click.option("--rows", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON, nothing else.")
@click.pass_obj
def watch(target: Target, run_id: str, after: int, trace: bool, rows: int, as_json: bool) -> None:
    """Follow a run until its end."""

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            events = bos.watch(run_id, after)
            return await follow(events, View(trace, rows), as_json=as_json, asker=asker_for(bos))

    run(work(), as_json=as_json)


@runs.command()
@click.argument("run_id")
@click.option("--reason", default="", help="Why; shown with the run.")
@_all_users
@_json
@click.pass_obj
def cancel(target: Target, run_id: str, reason: str, all_users: bool, as_json: bool) -> None:
    """Ask for a run to end."""

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            ask = bos.cancel_user_run if all_users else bos.cancel
            found: Run | RunOverview = await ask(run_id, reason)
        if as_json:
            print_json(found)
        else:
            click.echo(f"Run {found.run_id}: {run_status_text(found.status)}")
        return ANSWERED

    run(work(), as_json=as_json)


runs.add_command(files)


@click.command()
@_json
@click.pass_obj
def agents(target: Target, as_json: bool) -> None:
    """The agents that answer questions, and the models that a question may choose."""

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            found = await bos.access()
        if as_json:
            print_json(ListAgentsResponse(agents=found.agents, models=found.models))
            return ANSWERED
        console = make_console()
        for agent in found.agents:
            _show_agent(console, agent)
        if found.models:
            console.print(Text("Models that --model of `bos ask` takes", style="bold"))
        for model in found.models:
            label = "" if model.label == model.name else f"  {one_line(model.label)}"
            console.print(Text(f"  {one_line(model.name)}{label}"))
        return ANSWERED

    run(work(), as_json=as_json)


def _show(console: Console, found: Run, view: View) -> None:
    console.print(Text(f"Run {found.run_id}: {run_status_text(found.status)}", style="bold"))
    console.print(Text(f"accepted {time_text(found.create_time)} UTC", style="dim"))
    if found.model:
        console.print(Text(f"model {one_line(found.model)}", style="dim"))
    console.print(Text(clean(found.question)))
    if found.HasField("plan"):
        show_plan(console, found.plan, found.response.planner, found.revision)
    show_journal(console, found)
    if found.HasField("response"):
        console.print()
        console.out(clean(found.response.answer).rstrip("\n"), highlight=False)
        show_outcome(console, found.response, view)
    if given := feedback_line(found.feedback):
        console.print(Text(given))


def _show_agent(console: Console, agent: AgentInfo) -> None:
    card = agent.card
    line = Text(card.name, style="bold")
    if not agent.available:
        line.append(f"  not available: {one_line(agent.unavailable_reason)}", style="red")
    console.print(line)
    if card.description:
        console.print(Text(f"  {one_line(card.description)}"))
    for use_case in card.typical_use_cases[:3]:
        console.print(Text(f"  e.g. {one_line(use_case)}", style="dim"))
    for tool in card.tools:
        approval = " (needs approval)" if tool.requires_approval else ""
        console.print(Text(f"  tool {tool.name}{approval}", style="dim"))
