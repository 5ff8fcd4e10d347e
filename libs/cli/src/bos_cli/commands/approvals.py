"""``bos approvals …``, and asking for a decision while a run is being followed."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import click
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos.gateway.v1 import ApprovalStatus
from bos_cli.render import make_console
from bos_cli.render.parts import show_approval, titles
from bos_cli.session import ANSWERED, client_for, print_json, run
from bos_client.text import approval_status_text, as_it_is, time_text
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from bos.gateway.v1 import Approval, RunEvent
    from bos_cli.render import RunView
    from bos_cli.session import Target
    from bos_client.client import BosClient

_SUMMARY_CHARS = 80
_STATES = {
    approval_status_text(status).replace(" ", "-"): status
    for status in (cast("ApprovalStatus", number) for number in ApprovalStatus.values()[1:])
}
_PROMPT = "Approve? y: yes, n: no, anything longer: instructions, Enter: later "
_YES, _NO = ("y", "yes"), ("n", "no")

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")


@click.group()
def approvals() -> None:
    """See what waits for your decision, and decide."""


@approvals.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most to show."
)
@click.option(
    "--status",
    type=click.Choice([*_STATES, "all"]),
    default="pending",
    show_default=True,
    help="Only requests in this state.",
)
@click.option("--page", default="", metavar="TOKEN", help="Where the previous page ended.")
@_json
@click.pass_obj
def list_approvals(target: Target, limit: int, status: str, page: str, as_json: bool) -> None:
    """The latest requests, newest first."""

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            found = await bos.list_approvals(
                page_size=limit,
                page_token=page,
                status=_STATES.get(status, ApprovalStatus.APPROVAL_STATUS_UNSPECIFIED),
            )
        if as_json:
            print_json(found)
            return ANSWERED
        console = make_console()
        grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in ("approval", "until (UTC)", "status", "what"):
            grid.add_column(column, overflow="fold")
        for listed in found.approvals:
            grid.add_row(
                Text(listed.approval_id),
                time_text(listed.expire_time),
                approval_status_text(listed.status),
                Text(titles(listed, _SUMMARY_CHARS)),
            )
        console.print(grid if found.approvals else "no requests")
        if found.next_page_token:
            more = f"bos approvals list --status {status} --page {found.next_page_token}"
            console.print(Text(f"more: {more}"))
        return ANSWERED

    run(work(), as_json=as_json)


@approvals.command()
@click.argument("approval_id")
@_json
@click.pass_obj
def show(target: Target, approval_id: str, as_json: bool) -> None:
    """One request, with everything that would be done."""
    _do(target, lambda bos: bos.get_approval(approval_id), as_json=as_json, whole=True)


@approvals.command()
@click.argument("approval_id")
@click.option(
    "--instructions",
    default="",
    help="What else to do, or instead; leads to another proposal, which you are asked about.",
)
@_json
@click.pass_obj
def approve(target: Target, approval_id: str, instructions: str, as_json: bool) -> None:
    """Allow exactly what is proposed."""
    _do(target, lambda bos: bos.approve(approval_id, instructions), as_json=as_json)


@approvals.command()
@click.argument("approval_id")
@_json
@click.pass_obj
def deny(target: Target, approval_id: str, as_json: bool) -> None:
    """Have it not done."""
    _do(target, lambda bos: bos.deny(approval_id), as_json=as_json)


def _do(
    target: Target,
    call: Callable[[BosClient], Awaitable[Approval]],
    *,
    as_json: bool,
    whole: bool = False,
) -> None:
    """Make a call about one request, and show what it is afterwards."""

    async def work() -> int:
        async with client_for(target.connection()) as bos:
            found = await call(bos)
        _tell(found, as_json=as_json, whole=whole)
        return ANSWERED

    run(work(), as_json=as_json)


def _tell(found: Approval, *, as_json: bool, whole: bool = False) -> None:
    if as_json:
        print_json(found)
        return
    console = make_console()
    status = approval_status_text(found.status)
    console.print(Text(f"Request {found.approval_id}: {status}", style="bold"))
    if not whole:
        return
    console.print(
        Text(f"run {found.run_id}, step {found.step_id}, {found.agent_name}", style="dim")
    )
    console.print(Text(f"until {time_text(found.expire_time)} UTC", style="dim"))
    for line in found.display.task:
        console.print(Text(as_it_is(line)))
    show_approval(console, found)


def asker_for(bos: BosClient) -> Asker | None:
    """Who asks at the terminal; None where there is no terminal."""
    return Asker(bos) if sys.stdin.isatty() and sys.stdout.isatty() else None


class Asker:
    """Asks for decisions while a run goes on; what is decided elsewhere is not asked any more.

    Args:
        bos: Takes the decisions.
    """

    def __init__(self, bos: BosClient) -> None:
        self._bos = bos
        self._waiting: list[Approval] = []
        self._asking: asyncio.Task[None] | None = None
        self._asked = ""

    async def heard(self, event: RunEvent, shown: RunView) -> None:
        """Take note of an event of the run."""
        if event.HasField("approval_requested"):
            self._waiting.append(event.approval_requested.approval)
        elif event.HasField("approval_resolved"):
            closed = event.approval_resolved.approval.approval_id
            self._waiting = [each for each in self._waiting if each.approval_id != closed]
            if closed == self._asked:
                await self.stop()
        elif event.HasField("run_finished"):
            self._waiting.clear()
            await self.stop()
        if self._asking is None or self._asking.done():
            shown.asking = False
            if self._waiting:
                shown.asking = True
                self._asking = asyncio.create_task(self._ask_all(shown))

    async def stop(self) -> None:
        """Ask no more."""
        task, self._asking = self._asking, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _ask_all(self, shown: RunView) -> None:
        try:
            while self._waiting:
                approval = self._waiting.pop(0)
                self._asked = approval.approval_id
                click.echo(f"{titles(approval)}\n{_PROMPT}", nl=False)
                answer = (await line_from_terminal()).strip()
                self._asked = ""  # what follows from it is no surprise
                try:
                    await self._decide(approval.approval_id, answer)
                except BosError as error:
                    click.echo(f"Not decided: {error.message}", err=True)
        finally:
            self._asked = ""
            shown.asking = False

    def _decide(self, approval_id: str, answer: str) -> Coroutine[None, None, object]:
        if answer.lower() in _NO:
            return self._bos.deny(approval_id)
        if answer.lower() in _YES:
            return self._bos.approve(approval_id)
        if answer:
            return self._bos.approve(approval_id, answer)
        return asyncio.sleep(0)


async def line_from_terminal() -> str:
    """A line from the terminal, in a way that can be given up."""
    loop = asyncio.get_running_loop()
    read: asyncio.Future[str] = loop.create_future()

    def ready() -> None:
        if not read.done():
            read.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin.fileno(), ready)
    try:
        return await read
    finally:
        loop.remove_reader(sys.stdin.fileno())
