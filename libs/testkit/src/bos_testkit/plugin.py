"""The pytest plugin: every fixture of the testkit, wherever the testkit is installed."""

from __future__ import annotations

import signal

from bos_testkit.postgres import postgres_dsn, postgres_server
from bos_testkit.scripted_model.pytest_fixtures import scripted_model

__all__ = ["postgres_dsn", "postgres_server", "pytest_configure", "scripted_model"]


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start, also when the tests run in the background.

    A shell starts background jobs with SIGINT ignored, and every process below them inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
