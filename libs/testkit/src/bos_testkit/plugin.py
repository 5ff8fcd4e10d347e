"""The pytest plugin: every fixture of the testkit, wherever the testkit is installed."""

from __future__ import annotations

from bos_testkit.models import scripted_model
from bos_testkit.postgres import postgres_dsn, postgres_server

__all__ = ["postgres_dsn", "postgres_server", "scripted_model"]
