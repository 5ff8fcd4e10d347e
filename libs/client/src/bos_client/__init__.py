"""Typed client of Bos, and the ``bos`` command line."""

from bos_client.client import BosClient, Reconnect
from bos_client.errors import BosError, FieldViolation
from bos_client.requests import AskOptions

__all__ = ["AskOptions", "BosClient", "BosError", "FieldViolation", "Reconnect"]
