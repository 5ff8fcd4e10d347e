"""Commands ``bos serve`` and ``bos demo``; imports are lazy, so that ``--help`` is fast."""

from __future__ import annotations

import runpy
import sys
import time
from typing import TYPE_CHECKING

import click

from bos_cli.render import View, make_console, show_run
from bos_cli.session import ANSWERED, FAILED, INTERRUPTED, exit_code, run
from bos_client import BosClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_cli.session import Target
    from bos_standalone.service import Standalone

DEMO_QUESTION = (
    "Which five customers brought the most revenue last quarter, "
    "and what share of the total is that?"
)
ALL = "all"
_SHOWN_QUESTIONS = 6
_DOCUMENTS_WITHIN_S = 300.0


class _ServiceName(click.ParamType[str]):
    """Name of a service or an installed agent; agents are looked up only for other names."""

    name = "service"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from bos_standalone.agents import SERVICES

        if value in (ALL, *SERVICES):
            return value
        agents = _installed_agents()
        if value not in agents:
            names = ", ".join((ALL, *SERVICES, *agents))
            self.fail(f"{value!r} is not one of {names}", param, ctx)
        return value


@click.command()
@click.argument("service", type=_ServiceName(), metavar="all|SERVICE")
def serve(service: str) -> None:
    """Run every service in one process ("all"), or one service as a process of its own.

    One service takes its settings from the environment (BOS_GATEWAY_..., BOS_PLANNER_...), "all"
    from BOS_STANDALONE_... and those of the services.
    """
    if service != ALL:
        runpy.run_module(_package(service), run_name="__main__")
        return
    started = time.monotonic()
    from bos_standalone.process import run_standalone

    async def stay(standalone: Standalone) -> int:
        _introduce(standalone, time.monotonic() - started, await _console(standalone))
        name = await standalone.group.unexpected_end()
        click.echo(f"Error: the service {name} ended; see the log.", err=True)
        return FAILED

    sys.exit(run_standalone(stay, log_level="info"))


@click.command()
@click.argument("question", default=DEMO_QUESTION)
@click.option("--trace", is_flag=True, help="Show what planner, agents and composer do.")
def demo(question: str, trace: bool) -> None:
    """Start everything, ask one question about the sample company, show it, stop."""
    started = time.monotonic()
    from bos_standalone.process import run_standalone

    async def ask(standalone: Standalone) -> int:
        took = time.monotonic() - started
        click.echo(f"Bos is up after {took:.1f} s; model: {standalone.model}.")
        if standalone.rest_url or standalone.rest_missing:
            click.echo(standalone.rest_missing or f"REST: {standalone.rest_url}/docs")
        await _documents_read(standalone, question)
        click.echo(f"Question: {question}")
        async with BosClient(standalone.target, api_key=standalone.api_key) as bos:
            events = bos.ask_stream(question, context=standalone.context, trace=trace)
            try:
                response = await show_run(events, make_console(), View(trace=trace))
            finally:
                await events.aclose()
        return FAILED if response is None else exit_code(response)

    sys.exit(run_standalone(ask, log_level="warning", code_on_signal=INTERRUPTED))


async def _documents_read(standalone: Standalone, question: str) -> None:
    """Wait until the sample documents are read, if the question is about them."""
    from bos_demo.questions import load_questions

    over_documents = (*load_questions("documents"), *load_questions("web"))
    asked = any(each.question == question and "rag" in each.agents for each in over_documents)
    if standalone.documents is None or not asked:
        return
    click.echo("Reading the documents of the sample company; at the first start alone.")
    if not await standalone.documents.ready(_DOCUMENTS_WITHIN_S):
        click.echo("Some documents are not read yet.", err=True)


def _package(service: str) -> str:
    from bos_standalone.agents import SERVICES

    if service in SERVICES:
        return f"bos_{service}"
    return _installed_agents()[service].partition(":")[0].rpartition(".")[0]


def _installed_agents() -> Mapping[str, str]:
    from bos_chassis.process import EXIT_CONFIGURATION
    from bos_errors import ConfigurationError
    from bos_standalone.agents import installed_agents

    try:
        return installed_agents()
    except ConfigurationError as error:
        click.echo(f"Error: {error.message}", err=True)
        sys.exit(EXIT_CONFIGURATION)


@click.command()
@click.pass_obj
def console(target: Target) -> None:
    """Print an address that opens the web console, and signs your browser in once.

    It works for a quarter of an hour, for the Bos that runs on this machine.
    """
    from bos_standalone.console import console_address, local_rest

    async def work() -> int:
        connection = target.to_sign_in()
        click.echo(await console_address(local_rest(connection), connection.api_key or ""))
        return ANSWERED

    run(work())


async def _console(standalone: Standalone) -> str:
    """Address of the console; one that does not sign in if no link can be made."""
    from bos_errors import Unavailable
    from bos_standalone.console import console_address

    if not standalone.rest_url:
        return ""
    try:
        return await console_address(standalone.rest_url, standalone.api_key)
    except Unavailable:
        return f"{standalone.rest_url}/"


def _introduce(standalone: Standalone, took_s: float, console_at: str) -> None:
    lines = [f"Bos is up after {took_s:.1f} s; model: {standalone.model}.", ""]
    width = max(len(name) for name in standalone.addresses)
    lines += [f"  {name.ljust(width)}  {at}" for name, at in standalone.addresses.items()]
    if standalone.rest_url:
        once = "  (signs in once; `bos console` prints another)" if "#" in console_at else ""
        lines += [
            "",
            f"Console: {console_at}{once}",
            f"REST: {standalone.rest_url}, interactive pages at {standalone.rest_url}/docs",
        ]
    elif standalone.rest_missing:
        lines += ["", standalone.rest_missing]
    if standalone.questions:
        others = standalone.questions[:: max(1, len(standalone.questions) // _SHOWN_QUESTIONS)]
        lines += ["", "In another terminal:", ""]
        lines += [f'  bos ask "{question}"' for question in dict.fromkeys((DEMO_QUESTION, *others))]
    if standalone.bootstrap_file is not None:
        token = f'"$(cat {standalone.bootstrap_file})"'
        lines += ["", "Others are invited; the first account, the administrator's, is made by:", ""]
        lines += [f"  bos register NAME --invitation {token}"]
    lines += ["", f"Log: {standalone.log_file}. Ctrl-C stops."]
    click.echo("\n".join(lines))
