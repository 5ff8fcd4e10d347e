"""``bos mcp``: Bos as an MCP server on stdin and stdout."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from bos_cli.commands.documents.adding import client_of
from bos_cli.session import ANSWERED, client_for, run
from bos_conversation.mcp.callers import Policy
from bos_conversation.mcp.server import build_server

if TYPE_CHECKING:
    from bos_cli.session import Target
    from bos_client.client import BosClient
    from bos_client.documents import DocumentsClient


@dataclass(frozen=True, slots=True)
class _User:
    """The signed-in user is the only caller."""

    gateway: BosClient
    found: DocumentsClient | None

    @property
    def has_documents(self) -> bool:
        return self.found is not None

    def bos(self, _: Any) -> BosClient:
        return self.gateway

    def documents(self, _: Any) -> DocumentsClient:
        assert self.found is not None, "the tool is there with documents alone"
        return self.found


@click.command("mcp")
@click.option(
    "--tool-approvals",
    is_flag=True,
    help="Let the program that calls approve actions without your own reply. Any text that its"
    " model has read may then have actions done.",
)
@click.pass_obj
def mcp(target: Target, tool_approvals: bool) -> None:
    """Be an MCP server on stdin and stdout, as the signed-in user."""

    async def work() -> int:
        connection = target.connection()
        async with AsyncExitStack() as stack:
            bos = await stack.enter_async_context(client_for(connection))
            documents = None
            if connection.documents_target:
                documents = await stack.enter_async_context(client_of(target))
            policy = Policy(tool_approvals=tool_approvals)
            await build_server(_User(bos, documents), policy).run_stdio_async()
        return ANSWERED

    run(work())
