from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_llm import Model
    from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory
    from bos_testkit.scripted_model.server import ScriptedModel


@pytest.fixture
async def scripted(scripted_model: ScriptedModelFactory) -> ScriptedModel:
    return await scripted_model(fixture("greeting", ["greet"], text="Good day."))


@pytest.fixture
async def model(scripted: ScriptedModel) -> AsyncIterator[Model]:
    async with Models(model_settings(scripted), Telemetry.for_tests("models")) as models:
        yield models.for_agent("one_call")
