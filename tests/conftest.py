import os
import re
from collections.abc import Iterator

import pytest

from bos_testkit.processes import PATIENT

_SETTINGS = re.compile(r"BOS_|OPENAI_|AZURE_|OTEL_|.*_MODEL|.*_TEMPERATURE")


@pytest.fixture(autouse=True, scope="session")
def no_registrations_of_the_developer(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Standalones of these tests are not registered among the developer's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="module")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the developer's variables nor a ``.env`` file reach the product."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if _SETTINGS.match(name)]:
            patch.delenv(name)
        # Reading them takes a minute of processor time; tests that need them load them.
        patch.setenv("BOS_STANDALONE_DEMO_DOCUMENTS", "false")
        for name, value in PATIENT.items():  # tests of what happens otherwise say so
            patch.setenv(name, value)
        patch.chdir(tmp_path_factory.mktemp("working"))
        yield
