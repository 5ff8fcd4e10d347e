from pathlib import Path

import pytest
from pydantic import SecretStr

from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_llm import AgentModelConfig, ModelNotConfigured, Models, ModelSettings, user


def configured(settings: ModelSettings, agent: str = "planner") -> bool:
    return not settings.missing(agent, settings.get_agent_model_config(agent))


@pytest.mark.requirement("N-08")
def test_a_key_is_all_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    settings = ModelSettings.load()
    assert configured(settings)
    assert settings.get_agent_model_config("planner") == AgentModelConfig(
        "openai", "gpt-6-luna", 0.0, reasoning_effort="none"
    )
    sql = settings.get_agent_model_config("sql")
    assert (sql.model, sql.reasoning_effort) == ("gpt-6-sol", "low")


def test_a_base_url_and_a_model_are_all_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1")
    settings = ModelSettings.load()
    missing = settings.missing("sql", settings.get_agent_model_config("sql"))
    assert missing == ("BOS_MODEL or SQL_MODEL",)
    monkeypatch.setenv("BOS_MODEL", "qwen")
    settings = ModelSettings.load()
    assert configured(settings)
    assert configured(settings, "sql")
    assert settings.get_agent_model_config("sql") == AgentModelConfig("compatible", "qwen", 0.0)


@pytest.mark.requirement("N-02", "N-03")
def test_each_agent_has_its_own_provider_model_and_temperature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234567890")
    monkeypatch.setenv("SUMMARY_MODEL_PROVIDER", "openai")
    monkeypatch.setenv("SUMMARY_MODEL", "gpt-4o-mini")
    monkeypatch.setenv("SUMMARY_TEMPERATURE", "0.3")
    monkeypatch.setenv("API_DOCS_MODEL", "gpt-4.1-nano")
    monkeypatch.setenv("BOS_MODEL", "gpt-4o")
    monkeypatch.setenv("BOS_MODEL_TEMPERATURE", "0.1")
    settings = ModelSettings.load()
    look_up = settings.get_agent_model_config
    assert look_up("summary") == AgentModelConfig("openai", "gpt-4o-mini", 0.3)
    assert look_up("api_docs") == AgentModelConfig("openai", "gpt-4.1-nano", 0.1)
    assert look_up("planner") == AgentModelConfig("openai", "gpt-4o", 0.1)


@pytest.mark.requirement("N-01")
def test_any_compatible_provider_is_selectable_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SQL_MODEL_PROVIDER", "Gemini")
    monkeypatch.setenv("SQL_MODEL", "gemini-pro")
    settings = ModelSettings.load()
    config = settings.get_agent_model_config("sql")
    assert settings.missing("sql", config) == ("GEMINI_BASE_URL",)
    monkeypatch.setenv("GEMINI_BASE_URL", "https://models.example/v1")
    monkeypatch.setenv("GEMINI_API_KEY", "gemini-key-123")
    settings = ModelSettings.load()
    access = settings.access("gemini")
    assert (access.kind, access.base_url) == ("compatible", "https://models.example/v1")
    assert access.keys == (SecretStr("gemini-key-123"),)
    assert configured(settings, "sql")
    assert not configured(settings, "planner")


def test_keys_of_providers_that_no_agent_uses_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEARCH_API_KEY", "search-key-123")
    assert dict(ModelSettings.load().variables) == {}


@pytest.mark.requirement("N-04")
def test_azure_needs_endpoint_key_and_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://example.openai.azure.com")
    settings = ModelSettings.load()
    config = settings.get_agent_model_config("sql")
    assert config.provider == "azure"
    missing = settings.missing("sql", config)
    assert missing == (
        "AZURE_OPENAI_API_KEY or AZURE_OPENAI_AUTH=managed_identity",
        "BOS_MODEL or SQL_MODEL",
    )
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key-123")
    monkeypatch.setenv("SQL_MODEL", "my-deployment")
    assert configured(ModelSettings.load(), "sql")
    monkeypatch.delenv("AZURE_OPENAI_API_KEY")
    monkeypatch.setenv("AZURE_OPENAI_AUTH", "managed_identity")
    assert configured(ModelSettings.load(), "sql")


def test_settings_come_from_a_dotenv_file_below_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-file-123\nSQL_MODEL=a\nCODE_MODEL=b\n")
    monkeypatch.setenv("CODE_MODEL", "c")
    settings = ModelSettings.load()
    assert settings.api_key == SecretStr("sk-file-123")
    assert settings.get_agent_model_config("sql").model == "a"
    assert settings.get_agent_model_config("code").model == "c"


def test_temperature_none_leaves_it_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQL_TEMPERATURE", "none")
    assert ModelSettings.load().get_agent_model_config("sql").temperature is None


def test_prices_are_read_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_MODEL_PRICES", '{"gpt-4.1": {"input": 2, "output": 8}}')
    assert ModelSettings.load().prices["gpt-4.1"].of(1_000_000, 500_000) == 6.0


async def test_without_a_model_calls_say_which_variables_to_set() -> None:
    async with Models(ModelSettings.load(), Telemetry.for_tests()) as models:
        assert not models.configured
        model = models.for_agent("sql")
        assert not model.configured
        with pytest.raises(ModelNotConfigured) as caught:
            await model.text([user("hello")])
        assert "OPENAI_API_KEY" in caught.value.message
        assert "OPENAI_BASE_URL and BOS_MODEL" in caught.value.message
        with pytest.raises(ModelNotConfigured):
            await anext(model.stream([user("hello")]))


def test_tokens_of_the_machine_never_go_where_a_profile_points() -> None:
    settings = ModelSettings.load(
        azure_endpoint="https://ours.example",
        azure_auth="managed_identity",
        key_profiles={"theirs": {"keys": ["k"], "base_url": "https://theirs.example"}},
    )
    assert settings.access("azure").managed_identity
    theirs = settings.access("azure", "theirs")
    assert theirs.base_url == "https://theirs.example/openai/v1/"
    assert not theirs.managed_identity


@pytest.mark.requirement("N-05")
def test_several_keys_and_named_profiles_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-a, sk-b\n")
    monkeypatch.setenv("BOS_MODEL_KEYS", '{"research": ["sk-c", "sk-d"], "team": "sk-e"}')
    monkeypatch.setenv("SQL_MODEL_KEYS", "research")
    settings = ModelSettings.load()
    assert settings.access("openai").keys == (SecretStr("sk-a"), SecretStr("sk-b"))
    assert settings.get_agent_model_config("sql").keys == "research"
    assert settings.access("openai", "research").keys == (SecretStr("sk-c"), SecretStr("sk-d"))
    assert settings.access("openai", "team").keys == (SecretStr("sk-e"),)
    assert settings.get_agent_model_config("planner").keys == ""


@pytest.mark.requirement("N-05")
def test_an_agent_whose_profile_is_missing_names_both_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SQL_MODEL_KEYS", "research")
    settings = ModelSettings.load()
    with pytest.raises(ConfigurationError, match=r"SQL_MODEL_KEYS.*BOS_MODEL_KEYS"):
        settings.get_agent_model_config("sql")


@pytest.mark.parametrize(
    "value",
    [
        '{"research": ["sk-very-secret"',
        '{"research": {"keys": ["sk-very-secret"], "url": "x"}}',
        '{"research": {"keys": ["sk-very-secret"], "base_url": "sk-very-secret"}}',
        '["sk-very-secret"]',
    ],
)
def test_wrong_profiles_name_the_variable_and_show_no_key(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("BOS_MODEL_KEYS", value)
    with pytest.raises(ConfigurationError, match="BOS_MODEL_KEYS") as caught:
        ModelSettings.load()
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("M-17")
def test_classifier_of_instructions_has_its_own_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    usual = ModelSettings.load().get_agent_model_config("hitl_classifier")
    assert usual.provider == "openai"
    monkeypatch.setenv("HITL_CLASSIFIER_PROVIDER", "acme")
    monkeypatch.setenv("HITL_CLASSIFIER_MODEL", "tiny")
    monkeypatch.setenv("ACME_BASE_URL", "http://127.0.0.1:1/v1")
    settings = ModelSettings.load()
    chosen = settings.get_agent_model_config("hitl_classifier")
    assert (chosen.provider, chosen.model) == ("acme", "tiny")
    assert settings.access("acme").base_url == "http://127.0.0.1:1/v1"


def test_two_providers_of_the_classifier_contradict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITL_CLASSIFIER_PROVIDER", "acme")
    monkeypatch.setenv("HITL_CLASSIFIER_MODEL_PROVIDER", "acme")
    assert ModelSettings.load().get_agent_model_config("hitl_classifier").provider == "acme"
    monkeypatch.setenv("HITL_CLASSIFIER_MODEL_PROVIDER", "openai")
    with pytest.raises(ConfigurationError, match="HITL_CLASSIFIER_PROVIDER mean the same"):
        ModelSettings.load()
