import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from rig import FIXTURES, Rig

from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory


@pytest.fixture
async def rig(scripted_model: ScriptedModelFactory) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        yield Rig(await scripted_model(*FIXTURES), stack)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No key of the developer and no .env file takes part."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BOS_MODEL", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def unused_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
