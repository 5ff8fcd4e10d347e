"""The ``bos`` command line. Exit codes are in :mod:`bos_client.cli.session`."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import click

from bos_client.cli.ask import ask, plan
from bos_client.cli.runs import agents, runs
from bos_client.cli.session import Target

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_PLUGINS = "bos.commands"


class _Commands(click.Group):
    """Our commands, and those of other packages by entry point; loaded when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_plugins()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        plugin = _plugins().get(cmd_name)
        if own is not None or plugin is None:
            return own
        try:
            command: click.Command = plugin.load()
        except ImportError as error:
            return _unusable(cmd_name, f"{plugin.value} cannot be loaded: {error}")
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--target", envvar="BOS_TARGET", help="Gateway as host:port.  [env: BOS_TARGET]")
@click.option(
    "--api-key", envvar="BOS_API_KEY", help="Key for the gateway; better set by BOS_API_KEY."
)
@click.version_option(package_name="bos-client", message="bos %(version)s")
@click.pass_context
def main(ctx: click.Context, target: str | None, api_key: str | None) -> None:
    """Ask questions, and see how they are answered.

    Without --target the local `bos serve all` is asked, by its file .data/standalone.json.
    """
    # The gRPC library tells of every lost connection on stderr; we tell what it means instead.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    ctx.obj = Target(target, api_key)


def _unusable(name: str, why: str) -> click.Command:
    """Stands in for a command that cannot be loaded, so that all others still work."""

    def fail() -> None:
        raise click.ClickException(why)

    return click.Command(name, callback=fail, short_help="Not available.", help=why)


def _plugins() -> dict[str, EntryPoint]:
    return {plugin.name: plugin for plugin in entry_points(group=_PLUGINS)}


for _command in (ask, plan, runs, agents):
    main.add_command(_command)
