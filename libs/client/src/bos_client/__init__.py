"""Typed client of Bos, and the ``bos`` command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bos_client.client import BosClient, Reconnect
    from bos_client.render.plain_json import plain_json
    from bos_client.requests import AskOptions

__all__ = ["AskOptions", "BosClient", "Reconnect", "plain_json"]

_HOMES = {
    "AskOptions": "requests",
    "BosClient": "client",
    "Reconnect": "client",
    "plain_json": "render.plain_json",
}


def __getattr__(name: str) -> object:
    # Importing gRPC takes a while, and has to wait for what `bos_client.entry` sets.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
