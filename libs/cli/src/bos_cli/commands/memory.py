"""``bos conversations …`` and ``bos memory …``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos.common.v1 import MessageRole
from bos_cli.render import make_console
from bos_cli.session import ANSWERED, print_json, run
from bos_client.memory import MemoryClient
from bos_client.text import clean, one_line, time_text

if TYPE_CHECKING:
    from bos.common.v1 import LongTermMemory
    from bos_cli.session import Target

_TITLE_CHARS = 80
_PAGE = 200
_TAINTED = (
    "Some of this was found in a conversation that rests on content that others wrote, so every "
    "action needs your approval. If all of it is right: bos memory confirm"
)
_WROTE = {MessageRole.MESSAGE_ROLE_USER: "You", MessageRole.MESSAGE_ROLE_ASSISTANT: "Bos"}

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")


@click.group()
def conversations() -> None:
    """Look at conversations, find, rename and delete them."""


@conversations.command("list")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most to show."
)
@click.option("--page", default="", metavar="TOKEN", help="Where the previous page ended.")
@click.option("--query", default="", metavar="WORDS", help="Only those that hold these words.")
@_json
@click.pass_obj
def list_conversations(target: Target, limit: int, page: str, query: str, as_json: bool) -> None:
    """Your conversations, the one used last first."""

    async def work() -> int:
        async with _client(target) as memory:
            found = await memory.conversations(page_size=limit, page_token=page, query=query)
        if as_json:
            print_json(found)
            return ANSWERED
        console = make_console()
        grid = Grid("conversation", "last used (UTC)", "turns", "title", box=box.SIMPLE_HEAD)
        for each in found.conversations:
            grid.add_row(
                Text(one_line(each.conversation_id)),
                time_text(each.update_time),
                str(each.turn_count),
                Text(one_line(each.title, _TITLE_CHARS)),
            )
        console.print(grid if found.conversations else "no conversations")
        if found.next_page_token:
            console.print(Text(f"more: bos conversations list --page {found.next_page_token}"))
        return ANSWERED

    run(work(), as_json=as_json)


@conversations.command("show")
@click.argument("conversation_id")
@click.pass_obj
def show_conversation(target: Target, conversation_id: str) -> None:
    """What was said in a conversation."""

    async def work() -> int:
        async with _client(target) as memory:
            found = await memory.conversation(conversation_id)
            click.echo(one_line(found.title))
            token = ""
            while True:
                page = await memory.messages(conversation_id, page_size=_PAGE, page_token=token)
                for message in page.messages:
                    click.echo(f"\n{_WROTE.get(message.role, 'System')}: {clean(message.content)}")
                token = page.next_page_token
                if not token:
                    return ANSWERED

    run(work())


@conversations.command("rename")
@click.argument("conversation_id")
@click.argument("title")
@click.pass_obj
def rename_conversation(target: Target, conversation_id: str, title: str) -> None:
    """Give a conversation another title."""

    async def work() -> int:
        async with _client(target) as memory:
            changed = await memory.rename(conversation_id, title)
        click.echo(one_line(changed.title))
        return ANSWERED

    run(work())


@conversations.command("delete")
@click.argument("conversation_id")
@click.pass_obj
def delete_conversation(target: Target, conversation_id: str) -> None:
    """Delete a conversation with everything in it. Its runs stay."""

    async def work() -> int:
        async with _client(target) as memory:
            await memory.delete_conversation(conversation_id)
        click.echo("Deleted.")
        return ANSWERED

    run(work())


@click.group("memory")
def memory_group() -> None:
    """See what is remembered about you across conversations, and have it forgotten."""


@memory_group.command()
@_json
@click.pass_obj
def show(target: Target, as_json: bool) -> None:
    """What is remembered about you."""

    async def work() -> int:
        async with _client(target) as memory:
            found = await memory.remembered()
        if as_json:
            print_json(found)
        else:
            click.echo("\n".join(_lines(found)) or "Nothing is remembered about you.")
        return ANSWERED

    run(work(), as_json=as_json)


@memory_group.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def confirm(target: Target, yes: bool) -> None:
    """Say that what is remembered is right, although others may have written it."""

    async def work() -> int:
        async with _client(target) as memory:
            found = await memory.remembered()
            lines = _lines(found)
            click.echo("\n".join(lines) or "Nothing is remembered about you.")
            if found.tainted and (yes or click.confirm("Is all of it right?", abort=True)):
                found.tainted = False
                await memory.remember(found)
                click.echo("Confirmed.")
        return ANSWERED

    run(work())


@memory_group.command()
@click.confirmation_option(prompt="Forget everything that is remembered about you?")
@click.pass_obj
def forget(target: Target) -> None:
    """Forget all of it. Conversations stay; `bos conversations delete` removes them."""

    async def work() -> int:
        async with _client(target) as memory:
            await memory.forget()
        click.echo("Forgotten.")
        return ANSWERED

    run(work())


def _client(target: Target) -> MemoryClient:
    connection = target.connection()
    return MemoryClient(
        connection.memory_target or connection.target,
        api_key=connection.api_key,
        tokens=connection.tokens,
    )


def _lines(memory: LongTermMemory) -> list[str]:
    facts, wishes = memory.critical, memory.preferences
    named = (
        ("Name", facts.user_name),
        ("Company", facts.company_name),
        ("Job title", facts.job_title),
        ("Projects", ", ".join(facts.recent_projects)),
        ("Tone", wishes.tone),
        ("Level of detail", wishes.detail_level),
        ("Language", wishes.language),
    )
    lines = [f"{name}: {one_line(value)}" for name, value in named if value]
    return [*lines, *([_TAINTED] if memory.tainted else [])]
