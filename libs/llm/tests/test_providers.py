"""Which provider is at an address, and what of the settings reaches which agent."""

from typing import Any

import pytest
from pydantic import BaseModel
from rig import Rig

from bos_errors import ConfigurationError
from bos_llm import ModelSettings, user
from bos_llm.endpoints.providers import PROVIDERS, Capabilities, provider_row, recognise


@pytest.mark.parametrize(
    ("address", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://api.anthropic.com/v1/", "anthropic"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "bedrock"),
        ("https://res.openai.azure.com/openai/v1/", "azure"),
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("http://proxy.internal:4000", "litellm"),
        ("http://ollama:11434/v1", "ollama"),
        ("http://my-vllm.elb.amazonaws.com/v1", "compatible"),
        ("https://openai.azure.com.example.org/v1", "compatible"),
        ("https://evil-openrouter.ai/v1", "compatible"),
        ("https://example.org:port/v1", "compatible"),
        ("", "compatible"),
    ],
)
def test_a_provider_is_recognised_by_its_address(address: str, provider: str) -> None:
    assert recognise(address) == provider


def test_key_with_a_foreign_address_is_not_taken_for_openai() -> None:
    settings = ModelSettings.load(api_key="sk-1234567890", base_url="https://api.mistral.ai/v1")
    config = settings.get_agent_model_config("planner")
    assert (config.provider, config.model) == ("mistral", "")
    assert settings.missing("planner", config) == ("BOS_MODEL or PLANNER_MODEL",)
    access = settings.access("mistral")
    assert (access.base_url, access.key_variable) == ("https://api.mistral.ai/v1", "OPENAI_API_KEY")


def test_a_proxy_in_front_of_openai_can_be_named_as_such() -> None:
    settings = ModelSettings.load(
        api_key="sk-1234567890", base_url="https://proxy.example/v1", provider="openai"
    )
    assert settings.get_agent_model_config("planner").model == "gpt-6-luna"


def test_a_named_provider_takes_its_own_variables_before_openais(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOS_MODEL_PROVIDER", "mistral")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "shared-key-123")
    assert ModelSettings.load().access("mistral").base_url == "https://gateway.example/v1"
    monkeypatch.setenv("MISTRAL_BASE_URL", "https://api.mistral.ai/v1")
    monkeypatch.setenv("MISTRAL_API_KEY", "own-key-123")
    own = ModelSettings.load().access("mistral")
    assert own.base_url == "https://api.mistral.ai/v1"
    assert [key.get_secret_value() for key in own.keys] == ["own-key-123"]


def test_shared_key_never_goes_to_agents_other_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "shared-key-123")
    monkeypatch.setenv("SQL_MODEL_PROVIDER", "mistral")
    access = ModelSettings.load().access("mistral")
    assert access.keys == ()
    assert access.base_url is None


@pytest.mark.parametrize(
    ("endpoint", "version", "base_url", "api_version"),
    [
        ("https://r.openai.azure.com", None, "https://r.openai.azure.com/openai/v1/", ""),
        ("https://r.openai.azure.com/", "v1", "https://r.openai.azure.com/openai/v1/", ""),
        ("https://r.openai.azure.com/openai/v1", None, "https://r.openai.azure.com/openai/v1", ""),
        ("https://r.openai.azure.com", "2024-10-21", "https://r.openai.azure.com", "2024-10-21"),
    ],
)
def test_azure_is_reached_at_v1_unless_a_date_is_set(
    endpoint: str, version: str | None, base_url: str, api_version: str
) -> None:
    options: dict[str, Any] = {} if version is None else {"azure_api_version": version}
    access = ModelSettings.load(azure_endpoint=endpoint, **options).access("azure")
    assert (access.base_url, access.api_version) == (base_url, api_version)


def test_profile_with_its_own_azure_address_is_reached_same_way() -> None:
    profile = {"eu": {"keys": ["k-1234567890"], "base_url": "https://eu.openai.azure.com"}}
    options = {"azure_endpoint": "https://us.openai.azure.com", "key_profiles": profile}
    access = ModelSettings.load(**options).access("azure", "eu")
    assert (access.base_url, access.api_version) == ("https://eu.openai.azure.com/openai/v1/", "")
    dated = ModelSettings.load(azure_api_version="2024-10-21", **options).access("azure", "eu")
    assert (dated.base_url, dated.api_version) == ("https://eu.openai.azure.com", "2024-10-21")


def test_azure_by_openais_variables_needs_name_of_deployment() -> None:
    settings = ModelSettings.load(
        api_key="k-1234567890", base_url="https://r.openai.azure.com/openai/v1/"
    )
    config = settings.get_agent_model_config("planner")
    assert config.provider == "openai"
    assert settings.missing("planner", config) == ("BOS_MODEL",)


def test_agents_have_parameters_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    monkeypatch.setenv("BOS_MODEL_EXTRA_BODY", '{"seed": 7, "top_p": 0.5}')
    monkeypatch.setenv("SQL_EXTRA_BODY", '{"top_p": 1}')
    monkeypatch.setenv("SQL_MODEL_TIER", "small")
    monkeypatch.setenv("SQL_REASONING_EFFORT", "high")
    monkeypatch.setenv("SQL_MAX_REPLY_TOKENS", "1000")
    settings = ModelSettings.load()
    sql, planner = map(settings.get_agent_model_config, ("sql", "planner"))
    assert sql.extra_body == {"seed": 7, "top_p": 1}
    assert (sql.tier, sql.reasoning_effort, sql.max_reply_tokens) == ("small", "high", 1000)
    assert planner.extra_body == {"seed": 7, "top_p": 0.5}
    assert (planner.tier, planner.reasoning_effort) == ("standard", "none")
    assert planner.max_reply_tokens == 4096


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SQL_MODEL_TIER", "tiny"),
        ("SQL_REASONING_EFFORT", "very much"),
        ("SQL_MAX_REPLY_TOKENS", "0"),
        ("SQL_EXTRA_BODY", "{"),
        ("SQL_EXTRA_BODY", '{"messages": []}'),
        ("BOS_MODEL_EXTRA_BODY", '{"messages": []}'),
        ("SQL_TEMPERATURE", "3"),
        ("SQL_TEMPERATURE", "hot"),
        ("BOS_MODEL_TEMPERATURE", "-1"),
        ("OPENAI_BASE_URL", "example.com"),
    ],
)
def test_a_wrong_parameter_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=variable):
        ModelSettings.load().get_agent_model_config("sql")


def test_unknown_provider_is_compatible_endpoint_of_that_name() -> None:
    row = provider_row("research")
    assert (row.name, row.takes) == ("research", Capabilities())


def test_providers_are_distinguished_by_host_and_port() -> None:
    rows = PROVIDERS.values()
    for known in (
        [host for row in rows for host in row.hosts],
        [row.port for row in rows if row.port],
    ):
        assert len(set(known)) == len(known) > 2


@pytest.mark.parametrize(
    ("provider", "setting", "in_prompt"),
    [
        ("openai", "auto", False),
        ("openai", "always", True),
        ("compatible", "auto", True),
        ("compatible", "never", False),
        ("anthropic", "never", True),
    ],
)
async def test_form_of_the_reply_is_in_the_prompt_where_needed(
    rig: Rig, provider: str, setting: str, in_prompt: bool
) -> None:
    class Plan(BaseModel):
        steps: list[str]

    model = await rig.model(
        provider=provider, schema_in_prompt=setting, base_url=rig.server.base_url
    )
    await model.structured([user("top five")], Plan)
    prompt = rig.server.requests[-1].prompt
    assert ("one JSON object" in prompt) is in_prompt
