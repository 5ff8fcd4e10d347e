"""pytest fixtures around the scripted model; a conftest imports the names it wants."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pydantic import SecretStr

from bos_llm import ModelSettings
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bos_testkit.scripted_model.replies import Fixture

SCRIPTED_KEY = "sk-scripted-0123456789abcdef"


class ScriptedModelFactory(Protocol):
    """Starts a scripted model that ends with the test."""

    async def __call__(self, *fixtures: Path | Fixture) -> ScriptedModel:
        """The running server."""
        ...


@pytest.fixture
async def scripted_model() -> AsyncIterator[ScriptedModelFactory]:
    """Starts scripted models from fixture files and fixtures made in Python."""
    async with AsyncExitStack() as servers:

        async def start(*fixtures: Path | Fixture) -> ScriptedModel:
            return await servers.enter_async_context(ScriptedModel(fixtures))

        yield start


def model_settings(server: ScriptedModel, /, **overrides: Any) -> ModelSettings:
    """Settings that use ``server`` for every agent; nothing of them is in the environment."""
    return ModelSettings.load(
        **{
            "base_url": server.base_url,
            "api_key": SecretStr(SCRIPTED_KEY),
            "model": "scripted",
            "provider": "compatible",
            **overrides,
        }
    )
