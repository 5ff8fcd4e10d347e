import sys
from pathlib import Path

import pytest
from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import AuthSettings, ServerSettings, Settings, require_loopback
from bos_errors import ConfigurationError

sys.path.append(str(Path(__file__).parents[1]))
from settings_reference import variables


class SampleSettings(Settings):
    model_config = SettingsConfigDict(env_prefix="BOS_SAMPLE_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    max_steps: int = Field(default=20, ge=1, description="Steps that one plan may hold")
    api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY", min_length=8)
    tags: tuple[str, ...] = ()


class RequiredSettings(Settings):
    model_config = SettingsConfigDict(env_prefix="BOS_REQUIRED_")

    dsn: str = Field(description="Where the database is")


class DescribedBelow(Settings):
    model_config = SettingsConfigDict(env_prefix="BOS_BELOW_", use_attribute_docstrings=True)

    steps: int = Field(default=20, ge=1)
    """Steps that
    one plan may hold"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_service_prefix_beats_the_shared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_SERVER_GRACE_S", "3")
    monkeypatch.setenv("BOS_SERVER_PORT", "1000")
    monkeypatch.setenv("BOS_SAMPLE_SERVER__PORT", "2000")
    server = SampleSettings.load().server
    assert (server.grace_s, server.port) == (3, 2000)


@pytest.mark.requirement("S-15")
def test_overrides_beat_environment_and_environment_beats_file(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / ".env").write_text("BOS_SAMPLE_MAX_STEPS=5\nUNRELATED=1\n")
    assert SampleSettings.load().max_steps == 5
    monkeypatch.setenv("BOS_SAMPLE_MAX_STEPS", "6")
    assert SampleSettings.load().max_steps == 6
    assert SampleSettings.load(max_steps=7).max_steps == 7


def test_every_wrong_variable_is_named_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_SAMPLE_MAX_STEPS", "many")
    monkeypatch.setenv("BOS_SAMPLE_SERVER__PORT", "99999")
    with pytest.raises(ConfigurationError) as caught:
        SampleSettings.load()
    assert "BOS_SAMPLE_MAX_STEPS" in caught.value.message
    assert "Steps that one plan may hold" in caught.value.message
    assert "BOS_SAMPLE_SERVER__PORT or BOS_SERVER_PORT" in caught.value.message


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match="BOS_REQUIRED_DSN: must be set"):
        RequiredSettings.load()


def test_description_over_two_lines_is_shown_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_BELOW_STEPS", "0")
    with pytest.raises(ConfigurationError) as caught:
        DescribedBelow.load()
    assert "(Steps that one plan may hold)" in caught.value.message
    (variable,) = variables(DescribedBelow)
    assert variable.purpose == "Steps that one plan may hold"


def test_refused_secrets_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-123")
    with pytest.raises(ConfigurationError) as caught:
        SampleSettings.load()
    assert "OPENAI_API_KEY" in caught.value.message
    assert "sk-123" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_broken_json_names_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_SAMPLE_TAGS", "a,b")
    with pytest.raises(ConfigurationError, match="BOS_SAMPLE_TAGS"):
        SampleSettings.load()


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_SAMPLE_MAX_STEPS", "")
    assert SampleSettings.load().max_steps == 20


@pytest.mark.requirement("R-09")
def test_settings_are_frozen_and_hide_secrets() -> None:
    settings = AuthSettings.load(static_key="0123456789abcdef")
    with pytest.raises(ValidationError):
        settings.static_key = None  # type: ignore[misc]
    assert "0123456789abcdef" not in repr(settings)


@pytest.mark.parametrize("host", ["127.1.2.3", "[::1]", "localhost"])
def test_loopback_needs_no_authentication(host: str) -> None:
    require_loopback(host, configured=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1.evil"])
def test_the_network_needs_authentication(host: str) -> None:
    require_loopback(host, configured=True)
    with pytest.raises(ConfigurationError, match="BOS_AUTH_STATIC_KEY"):
        require_loopback(host, configured=False)


class TwoNames(Settings):
    model_config = SettingsConfigDict(env_prefix="BOS_TWO_")

    wait_s: float = Field(
        default=120, ge=1, validation_alias=AliasChoices("BOS_TWO_WAIT_S", "OTHER_WAIT_SECONDS")
    )


@pytest.mark.parametrize("name", ["BOS_TWO_WAIT_S", "OTHER_WAIT_SECONDS"])
@pytest.mark.requirement("N-08")
def test_a_setting_with_two_names_is_set_by_either(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path, name: str
) -> None:
    assert TwoNames.load().wait_s == 120
    (elsewhere / ".env").write_text(f"{name}=30\n")
    assert TwoNames.load().wait_s == 30
    monkeypatch.setenv(name, "7")
    assert TwoNames.load().wait_s == 7
    assert TwoNames.load(wait_s=9).wait_s == 9


def test_two_names_may_say_the_same_and_must_not_contradict(
    monkeypatch: pytest.MonkeyPatch, elsewhere: Path
) -> None:
    monkeypatch.setenv("BOS_TWO_WAIT_S", "30")
    monkeypatch.setenv("OTHER_WAIT_SECONDS", "30")
    assert TwoNames.load().wait_s == 30
    monkeypatch.setenv("OTHER_WAIT_SECONDS", "")
    assert TwoNames.load().wait_s == 30
    monkeypatch.delenv("OTHER_WAIT_SECONDS")
    (elsewhere / ".env").write_text("OTHER_WAIT_SECONDS=31\n")
    with pytest.raises(
        ConfigurationError, match="BOS_TWO_WAIT_S and OTHER_WAIT_SECONDS mean the same"
    ) as raised:
        TwoNames.load()
    assert "31" not in raised.value.message


@pytest.mark.parametrize("wrong", ["0", "soon"])
def test_a_wrong_value_names_both_names(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("OTHER_WAIT_SECONDS", wrong)
    with pytest.raises(ConfigurationError, match="BOS_TWO_WAIT_S or OTHER_WAIT_SECONDS: "):
        TwoNames.load()
