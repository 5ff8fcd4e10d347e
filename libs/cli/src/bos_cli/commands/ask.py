"""``bos ask`` and ``bos plan``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from bos_cli.commands.approvals import asker_for
from bos_cli.commands.clarifying import asks, is_interactive, reply_to
from bos_cli.render import RunView, View, make_console
from bos_cli.render.images import chart_images, image_protocol, image_text
from bos_cli.render.parts import show_clarification, show_plan
from bos_cli.session import (
    ANSWERED,
    FAILED,
    INTERRUPTED,
    client_for,
    exit_code,
    print_json,
    run,
)
from bos_client.text import run_status_text
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bos.gateway.v1 import OrchestratorResponse, RunEvent
    from bos_cli.commands.approvals import Asker
    from bos_cli.render.images import ImageProtocol
    from bos_cli.session import Target
    from bos_client import BosClient
    from bos_client.requests import AskOptions


_MAX_INT32 = 2**31 - 1


def _context(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """``key=text`` or ``key:=json``, as a map."""
    context: dict[str, Any] = {}
    for entry in given:
        key, separator, text = entry.partition("=")
        if not separator or not key.strip(":"):
            raise click.BadParameter(f"{entry!r} is not of the form key=text or key:=json")
        if not key.endswith(":"):
            context[key] = text
            continue
        try:
            context[key[:-1]] = json.loads(text)
        except ValueError:
            raise click.BadParameter(f"{entry!r}: {text!r} is not JSON") from None
    return context


def _question(_: click.Context, __: click.Parameter, given: str) -> str:
    if not given.strip():
        raise click.BadParameter("must not be empty")
    return given


def _shaping(command: Callable[..., None]) -> Callable[..., None]:
    """The argument and options that shape a plan."""
    for decorate in (
        click.option(
            "--continue",
            "continues",
            metavar="RUN_ID",
            help="Run whose questions the text answers; it goes on with that run's question.",
        ),
        click.option("--disable", multiple=True, metavar="AGENT", help="Agent to leave out."),
        click.option("--prefer", multiple=True, metavar="AGENT", help="Agent to prefer."),
        click.option(
            "--context",
            multiple=True,
            metavar="KEY=TEXT",
            callback=_context,
            help="Context of the question; KEY:=JSON for anything but text.",
        ),
        click.option("--model", metavar="NAME", help="Model that answers; see `bos agents`."),
        click.argument("question", callback=_question),
    ):
        command = decorate(command)
    return command


@click.command()
@_shaping
@click.option("--trace", is_flag=True, help="Show what planner, agents and composer do.")
@click.option("--conversation", metavar="ID", help="Conversation that it follows up.")
@click.option("--system-prompt", metavar="TEXT", help="Instructions for writing the answer.")
@click.option(
    "--tainted",
    is_flag=True,
    help="Question or context hold text that others wrote: every action needs your approval.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time the run may take.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1, _MAX_INT32),
    metavar="N",
    help="Most rows of a table that an agent queries or returns.",
)
@click.option(
    "--max-columns",
    type=click.IntRange(1, _MAX_INT32),
    metavar="N",
    help="Most columns of such a table.",
)
@click.option("--backend", metavar="NAME", help="Configured database to ask.")
@click.option("--no-data", is_flag=True, help="Leave tables out of the response.")
@click.option(
    "--rows", type=click.IntRange(min=1), default=20, show_default=True, help="Rows to show."
)
@click.option("--no-images", is_flag=True, help="Do not show charts within the terminal.")
@click.option(
    "--detach",
    is_flag=True,
    help="Have it stored and leave: print the run's id and how to follow it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the response as JSON, nothing else.")
@click.pass_obj
def ask(
    target: Target,
    question: str,
    context: dict[str, Any],
    prefer: Sequence[str],
    disable: Sequence[str],
    continues: str | None,
    model: str | None,
    trace: bool,
    conversation: str | None,
    system_prompt: str | None,
    tainted: bool,
    timeout: float | None,
    max_rows: int | None,
    max_columns: int | None,
    backend: str | None,
    no_data: bool,
    rows: int,
    no_images: bool,
    detach: bool,
    as_json: bool,
) -> None:
    """Ask a question and watch it being answered.

    At a terminal you are asked what the question leaves open, and the answer follows your reply.
    """
    options: AskOptions = {
        "context": context,
        "prefer_agents": prefer,
        "disable_agents": disable,
        "trace": trace,
        "include_data": not no_data,
        "tainted": tainted,
    }
    if continues:
        options["continues_run_id"] = continues
    if conversation:
        options["conversation_id"] = conversation
    if system_prompt:
        options["system_prompt"] = system_prompt
    if timeout is not None:
        options["timeout_s"] = timeout
    if max_rows is not None:
        options["max_rows"] = max_rows
    if max_columns is not None:
        options["max_columns"] = max_columns
    if backend:
        options["backend"] = backend
    if model:
        options["model"] = model
    if detach:
        run(_submit(target, question, options, as_json), as_json=as_json)
    shown_here = not (no_images or as_json) and sys.stdout.isatty()
    protocol = image_protocol(os.environ) if shown_here else None
    work = _ask(target, question, options, View(trace, rows), as_json, protocol)
    run(work, as_json=as_json)


async def _submit(target: Target, question: str, options: AskOptions, as_json: bool) -> int:
    connection = target.connection()
    options["context"] = connection.context_for(options["context"])
    async with client_for(connection) as bos:
        submitted = await bos.submit(question, **options)
    if as_json:
        print_json(submitted)
    else:
        click.echo(f"Run {submitted.run_id}: {run_status_text(submitted.status)}")
        click.echo(_ways_back(submitted.run_id))
    return ANSWERED


async def _ask(
    target: Target,
    question: str,
    options: AskOptions,
    view: View,
    as_json: bool,
    protocol: ImageProtocol | None,
) -> int:
    connection = target.connection()
    options["context"] = connection.context_for(options["context"])
    async with client_for(connection) as bos:
        while True:
            events = bos.ask_stream(question, **options)
            code, response = await _followed(events, view, as_json, asker_for(bos))
            if response is not None and protocol is not None:
                await _show_images(bos, response, protocol)
            if response is None or as_json or not asks(response) or not is_interactive():
                return code
            question = await reply_to(response.clarification)
            if not question:
                return code
            options["continues_run_id"] = response.run_id


async def _show_images(
    bos: BosClient, response: OrchestratorResponse, protocol: ImageProtocol
) -> None:
    """Show the charts within the terminal; one that cannot be fetched is named with the files."""
    columns = make_console().width
    for image in chart_images(response):
        try:
            content = await bos.download_file(response.run_id, image.digest)
        except BosError:
            continue
        sys.stdout.write(image_text(content, protocol, columns))
        sys.stdout.flush()


async def follow(events: Any, view: View, *, as_json: bool, asker: Asker | None = None) -> int:
    """Show a stream of events, or print its outcome as JSON; returns the exit code."""
    code, _ = await _followed(events, view, as_json, asker)
    return code


async def _followed(
    events: Any, view: View, as_json: bool, asker: Asker | None
) -> tuple[int, OrchestratorResponse | None]:
    """The exit code and the outcome, if there is one.

    On a terminal ``asker`` asks for the approvals that the run waits for, one after the other.
    Ctrl-C ends the showing and says how to get back to the run, which goes on.
    """
    with RunView(make_console(), view) as shown:
        try:
            async with aclosing(events):
                event: RunEvent
                async for event in events:
                    if not as_json:
                        shown.show(event)
                        if asker is not None:
                            await asker.heard(event, shown)
                        continue
                    shown.run_id = event.run_id
                    if event.HasField("run_finished"):
                        shown.response = event.run_finished.response
        except asyncio.CancelledError:
            shown.interrupt()
            click.echo(_goes_on(shown.run_id), err=True)
            return INTERRUPTED, None
        finally:
            if asker is not None:
                await asker.stop()
    if shown.response is None:
        return FAILED, None
    if as_json:
        print_json(shown.response)
    return exit_code(shown.response), shown.response


def _goes_on(run_id: str) -> str:
    if not run_id:
        return "\nInterrupted. If the question was accepted, it goes on: see `bos runs list`."
    return f"\n{_ways_back(run_id)}"


def _ways_back(run_id: str) -> str:
    return (
        f"The run goes on. To see its end:  bos runs watch {run_id}\n"
        f"To end it:                        bos runs cancel {run_id}"
    )


@click.command()
@_shaping
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, nothing else.")
@click.pass_obj
def plan(
    target: Target,
    question: str,
    context: dict[str, Any],
    prefer: Sequence[str],
    disable: Sequence[str],
    continues: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Show how a question would be answered, without running anything."""

    async def work() -> int:
        connection = target.connection()
        async with client_for(connection) as bos:
            planned = await bos.plan(
                question,
                context=connection.context_for(context),
                prefer_agents=prefer,
                disable_agents=disable,
                continues_run_id=continues or "",
                model=model or "",
            )
        if as_json:
            print_json(planned)
            return 0
        console = make_console()
        if planned.HasField("clarification"):
            show_clarification(console, planned.clarification)
        show_plan(console, planned.plan, planned.decision)
        for number, stage in enumerate(planned.stages, 1):
            console.print(f"  stage {number}: {', '.join(stage.step_ids)}", markup=False)
        return 0

    run(work(), as_json=as_json)
