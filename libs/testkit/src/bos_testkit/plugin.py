"""The pytest plugin: every fixture of the testkit, wherever the testkit is installed."""

from __future__ import annotations

import gc
import signal
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings

import bos_chassis  # noqa: F401  # before anything imports gRPC: see there
from bos_testkit.fixtures.agent_harness import stack, start_agent
from bos_testkit.fixtures.first_start import started_before
from bos_testkit.postgres import (
    empty_postgres_dsn,
    postgres_dsn,
    postgres_server,
    postgres_template,
)
from bos_testkit.scripted_model.pytest_fixtures import scripted_model

__all__ = [
    "empty_postgres_dsn",
    "postgres_dsn",
    "postgres_server",
    "postgres_template",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "scripted_model",
    "stack",
    "start_agent",
    "started_before",
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests that use a database by any fixture: ``-m "not postgres"``."""
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave thousands of collected tests, and all modules, out of each later look for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # Hypothesis itself looks for the profile
def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and let Ctrl-C reach the processes that tests start.

    A shell starts background jobs with SIGINT ignored, and every process below them inherits that.
    """
    config.addinivalue_line("markers", "postgres: asks for a database; set by the testkit")
    # By default an example may take 200 ms, and slow making of examples fails a test: no property
    # test is to fail because the machine is busy.
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("random", patient, derandomize=False, max_examples=1000)
    # The same examples in every run, or a run fails by what its change has nothing to do with.
    settings.register_profile("bos", patient, derandomize=True, database=None)
    settings.load_profile(config.getoption("--hypothesis-profile", "") or "bos")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
