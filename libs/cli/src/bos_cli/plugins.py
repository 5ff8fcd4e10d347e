"""Groups of commands that other packages add to, by entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click


class PluginGroup(click.Group):
    """Our commands, and those of other packages by entry point; loaded when they are called.

    Args:
        plugins: Group of entry points, each of which names a click command.
    """

    def __init__(self, *args: Any, plugins: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._group = plugins

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *self._plugins()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; ours come first."""
        own = super().get_command(ctx, cmd_name)
        plugin = self._plugins().get(cmd_name)
        if own is not None or plugin is None:
            return own
        try:
            command: click.Command = plugin.load()
        except ImportError as error:
            return _unusable(cmd_name, f"{plugin.value} cannot be loaded: {error}")
        return command

    def _plugins(self) -> dict[str, EntryPoint]:
        return {plugin.name: plugin for plugin in entry_points(group=self._group)}


def _unusable(name: str, why: str) -> click.Command:
    """Stands in for a command that cannot be loaded, so that all others still work."""

    def fail() -> None:
        raise click.ClickException(why)

    return click.Command(name, callback=fail, short_help="Not available.", help=why)
