"""docs/models.md: every block of settings is tried against a double of its provider."""

import re
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import BaseModel, Field

from bos_chassis.telemetry import Telemetry
from bos_llm import Completion, Models, ModelSettings, TextDelta, system, user
from bos_llm.endpoints.providers import PROVIDERS
from bos_testkit.scripted_model.quirks import JSON_WORD, THINKING_TEMPERATURE, Quirks
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
_BLOCK = re.compile(r"^```sh (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: dict[str, dict[str, str]] = {
    name: dict(line.split("=", 1) for line in text.strip().splitlines())
    for name, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
}

# How each endpoint differs from OpenAI's interface, as its documentation and users tell.
BEHAVIOUR: dict[str, Quirks] = {
    "openai": Quirks(refuses={THINKING_TEMPERATURE: "openai", "max_tokens": "openai"}),
    "azure": Quirks(refuses={"max_tokens": "openai"}, odd_chunks=("no_delta",)),
    "ollama": Quirks(thinks="reasoning", refuses={"max_completion_tokens": "plain"}),
    "vllm": Quirks(thinks="content", refuses={"max_completion_tokens": "forbidden"}),
    "llamacpp": Quirks(loading=1, thinks="reasoning_content"),
    "lmstudio": Quirks(thinks="content", refuses={"json_object": "string"}),
    "litellm": Quirks(refuses={THINKING_TEMPERATURE: "plain"}),
    "openrouter": Quirks(odd_chunks=("comment",), thinks="reasoning"),
    "mistral": Quirks(
        in_parts=True,
        refuses={
            "max_completion_tokens": "forbidden",
            "stream_options": "forbidden",
            "reasoning_effort": "forbidden",
        },
    ),
    "groq": Quirks(refuses={"json_schema": "openai", JSON_WORD: "openai"}),
    "deepseek": Quirks(refuses={"json_schema": "plain", JSON_WORD: "plain"}),
    "anthropic": Quirks(ignores_response_format=True, refuses={"reasoning_effort": "plain"}),
    "gemini": Quirks(odd_chunks=("null_choices",)),
    "bedrock": Quirks(ignores_response_format=True, wraps="prose_and_fence"),
    "compatible": Quirks(wraps="fence"),
}
# Properties that no row can know, as the model's name does not show them.
UNKNOWN = {"litellm": ["does not take temperature"]}


class Choice(BaseModel):
    """What is asked for."""

    reason: str = Field(description="Why, in one line")
    tables: list[str]


REPLIES = (
    fixture("choice", [], schema="Choice", json={"reason": "It says so.", "tables": ["orders"]}),
    fixture("greeting", ["hello"], text="Good day to you, dear reader."),
)


@pytest.fixture(autouse=True)
def _nothing_else_is_set(clean_environment: None) -> None:
    """Neither the developer's variables nor a ``.env`` file take part."""


def load(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> ModelSettings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return ModelSettings.load()


def redirected(name: str, url: str) -> dict[str, str]:
    """The block, with its endpoint on this machine and named, as the address no longer shows it."""
    block = {"BOS_MODEL_PROVIDER": name, "OPENAI_BASE_URL": url, **BLOCKS[name]}
    if name == "azure":
        del block["OPENAI_BASE_URL"]
        return block | {"AZURE_OPENAI_ENDPOINT": url.removesuffix("/v1")}
    return block | {"OPENAI_BASE_URL": url}


def test_the_page_has_a_block_and_a_row_for_every_provider() -> None:
    assert set(BLOCKS) - {"slow"} == set(PROVIDERS) == set(BEHAVIOUR)
    page = PAGE.read_text(encoding="utf-8")
    for name in PROVIDERS:
        assert re.search(rf"^\| `{name}` \| (works|degraded) \| \w", page, re.MULTILINE), name


@pytest.mark.parametrize("name", sorted(PROVIDERS))
async def test_a_block_is_complete_and_gets_replies_of_its_provider(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        settings = load(patch, BLOCKS[name])
        for agent in ("planner", "sql", "composer"):
            config = settings.get_agent_model_config(agent)
            assert (config.provider, settings.missing(agent, config)) == (name, ())
        if name != "openai":
            address = urlsplit(settings.access(name).base_url or "").hostname
            assert address
            assert address in "\n".join(BLOCKS[name].values())
    async with ScriptedModel(REPLIES) as server:
        server.quirks = BEHAVIOUR[name]
        settings = load(monkeypatch, redirected(name, server.base_url))
        async with Models(settings, Telemetry.for_tests(), sleep=_at_once) as models:
            model = models.for_agent("planner")
            text = await model.text([user("hello")])
            value = await model.structured([system("Choose."), user("Which tables?")], Choice)
            async with aclosing(model.stream([user("hello")])) as stream:
                items: list[Any] = [item async for item in stream]
            assert models.learnt("planner") == UNKNOWN.get(name, [])
    assert text.text == "Good day to you, dear reader."
    assert value.value.tables == ["orders"]
    assert not value.repaired
    assert isinstance(items[-1], Completion)
    pieces = "".join(item.text for item in items if isinstance(item, TextDelta))
    assert pieces == items[-1].text == text.text
    assert server.calls <= 4


@pytest.mark.parametrize("name", sorted(set(PROVIDERS) - {"azure"}))
async def test_the_same_endpoint_under_no_name_is_learnt(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy hides who is behind it: more requests the first time, the same replies."""
    async with ScriptedModel(REPLIES) as server:
        server.quirks = BEHAVIOUR[name]
        block = redirected(name, server.base_url) | {"BOS_MODEL_PROVIDER": "compatible"}
        settings = load(monkeypatch, {"BOS_MODEL": "m", **block})
        async with Models(settings, Telemetry.for_tests(), sleep=_at_once) as models:
            model = models.for_agent("planner")
            value = await model.structured([system("Choose."), user("Which tables?")], Choice)
            assert value.value.tables == ["orders"]
            before = server.calls
            await model.structured([system("Choose."), user("Which tables?")], Choice)
            assert server.calls == before + 1


def test_the_block_for_slow_models_names_settings_that_exist() -> None:
    configuration = (
        PAGE.with_name("reference").joinpath("configuration.md").read_text(encoding="utf-8")
    )
    missing = [name for name in BLOCKS["slow"] if f"`{name}`" not in configuration]
    assert missing == []


async def _at_once(seconds: float) -> None:
    """Waits take no time here."""
