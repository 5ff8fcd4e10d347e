"""Typed client of Bos, and the ``bos`` command line."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bos_client.client import BosClient, Reconnect
    from bos_client.requests import AskOptions
    from bos_plainjson import plain_json

__all__ = ["AskOptions", "BosClient", "Reconnect", "plain_json"]

_HOMES = {
    "AskOptions": "bos_client.requests",
    "BosClient": "bos_client.client",
    "Reconnect": "bos_client.client",
    "plain_json": "bos_plainjson",
}


def __getattr__(name: str) -> object:
    # Importing gRPC takes a while, and has to wait for what `bos_cli.entry` sets.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
