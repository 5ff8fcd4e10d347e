from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTINGS = re.compile(r"BOS_|OPENAI_|AZURE_|OTEL_|.*_MODEL|.*_TEMPERATURE")


@pytest.fixture(scope="module")
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the developer's variables nor a ``.env`` file reach the product."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if _SETTINGS.match(name)]:
            patch.delenv(name)
        patch.chdir(tmp_path_factory.mktemp("working"))
        yield
