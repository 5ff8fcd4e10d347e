from collections.abc import AsyncIterator

import pytest

from bos_chassis.telemetry import Telemetry
from bos_llm import Model, Models
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel


@pytest.fixture
async def scripted(scripted_model: ScriptedModelFactory) -> ScriptedModel:
    return await scripted_model(
        fixture("greeting", ["greet"], text="Good day."),
        fixture("as JSON", ["greet"], schema="Greeting", json={"text": "Good day."}),
    )


@pytest.fixture
async def model(scripted: ScriptedModel) -> AsyncIterator[Model]:
    settings = model_settings(scripted, key_profiles={"research": "sk-research-000-rsch"})
    async with Models(settings, Telemetry.for_tests("models")) as models:
        yield models.for_agent("one_call")
