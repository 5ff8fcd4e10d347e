"""Model keys and key profiles in files that change while calls are made."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from rig import Rig

from bos_errors import ConfigurationError
from bos_llm import ModelNotConfigured, set_key_profile, user
from bos_llm.settings import ModelSettings
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.security

HELLO = [user("hello")]
OLD, NEW, OTHER = "sk-first-000000-aaaa", "sk-second-00000-bbbb", "sk-third-000000-cccc"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{OLD}\n")
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_a_refused_key_that_was_replaced_meanwhile_fails_no_call(
    rig: Rig, key_file: Path
) -> None:
    rig.server.knobs.fail_next(9, status=401, key=OLD)
    model = await rig.model(api_key=None, api_key_file=key_file, max_attempts=1)
    with pytest.raises(ModelNotConfigured):
        await model.text(HELLO)
    assert rig.keys_sent == ["aaaa"]
    write(key_file, NEW)  # well before the file would be read again
    await model.text(HELLO)
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa", "aaaa", "bbbb", "bbbb"]
    replaced = [entry for entry in rig.telemetry.logs if entry["event"] == "secret replaced"]
    assert replaced
    assert OLD not in str(rig.telemetry.logs)
    assert NEW not in str(rig.telemetry.logs)


async def test_key_that_file_no_longer_holds_is_not_sent_again(rig: Rig, key_file: Path) -> None:
    write(key_file, f"{OLD}\n{NEW}\n")
    model = await rig.model(
        api_key=None, api_key_file=key_file, key_files_refresh_s=1e-9, max_attempts=1
    )
    await model.text(HELLO)
    write(key_file, f"{NEW}\n{OTHER}\n")
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa", "bbbb"]


@pytest.mark.parametrize("content", ["ключ", " ".join(f"k{i}" for i in range(33))])
async def test_damaged_file_keeps_the_keys_and_is_logged(
    rig: Rig, key_file: Path, content: str
) -> None:
    model = await rig.model(
        api_key=None, api_key_file=key_file, key_files_refresh_s=1e-9, max_attempts=1
    )
    await model.text(HELLO)
    write(key_file, content)
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa", "aaaa"]
    labels = {"service": "test", "variable": "OPENAI_API_KEY_FILE"}
    await eventually(lambda: rig.metric("bos_secret_file_unusable", **labels) == 1)
    write(key_file, NEW)
    await model.text(HELLO)
    assert rig.keys_sent[-1] == "bbbb"
    assert rig.metric("bos_secret_file_unusable", **labels) == 0


async def test_variables_of_every_provider_may_be_files(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI", "AZURE_OPENAI", "MISTRAL"):
        monkeypatch.setenv(f"{name}_API_KEY_FILE", str(key_file))
    monkeypatch.setenv("BOS_MODEL_PROVIDER", "mistral")
    settings = ModelSettings.load()
    for provider in ("openai", "azure", "mistral"):
        assert settings.access(provider).keys == (SecretStr(OLD),)
    monkeypatch.setenv("MISTRAL_API_KEY", NEW)
    with pytest.raises(ConfigurationError, match="MISTRAL_API_KEY_FILE are set; remove one"):
        ModelSettings.load().access("mistral")


async def test_a_missing_file_is_named_at_the_start(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"OPENAI_API_KEY_FILE: .*cannot be read"):
        await rig.model(api_key=None, api_key_file=tmp_path / "missing")


AT_ONCE = 1e-9


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "profiles.json"
    write_profiles(path, {"research": OLD})
    return path


def write_profiles(path: Path, profiles: Any) -> None:
    path.write_text(profiles if isinstance(profiles, str) else json.dumps(profiles))


def unusable(rig: Rig) -> float:
    labels = {"service": "test", "variable": "BOS_MODEL_KEYS_FILE"}
    return rig.metric("bos_secret_file_unusable", **labels)


async def test_keys_of_profile_change_and_old_ones_are_not_sent_again(rig: Rig, file: Path) -> None:
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=AT_ONCE)
    set_key_profile("research")
    await model.text(HELLO)
    write_profiles(file, {"research": [NEW, NEW]})
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa", "bbbb"]
    assert "secret replaced" in {each["event"] for each in rig.telemetry.logs}
    assert OLD not in str(rig.telemetry.logs)
    assert NEW not in str(rig.telemetry.logs)


async def test_profiles_come_and_go(rig: Rig, file: Path) -> None:
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=AT_ONCE)
    set_key_profile("team")
    with pytest.raises(ConfigurationError, match="'team'"):
        await model.text(HELLO)
    write_profiles(file, {"research": OLD, "team": NEW})
    await model.text(HELLO)
    assert rig.keys_sent == ["bbbb"]
    write_profiles(file, {"research": OLD})
    with pytest.raises(ConfigurationError, match="'team'"):
        await model.text(HELLO)
    write_profiles(file, {"team": {"keys": [NEW], "provider": "openai"}, "research": OLD})
    with pytest.raises(ConfigurationError, match="for openai only"):
        await model.text(HELLO)
    assert rig.keys_sent == ["bbbb"], "and nothing was sent elsewhere"


async def test_the_address_of_a_profile_changes_too(
    rig: Rig, file: Path, scripted_model: ScriptedModelFactory
) -> None:
    other = await scripted_model(fixture("greeting", ["hello"], text="Hello from elsewhere."))
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=AT_ONCE)
    set_key_profile("research")
    await model.text(HELLO)
    write_profiles(file, {"research": {"keys": [NEW], "base_url": other.base_url}})
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa"], "the new key is for the new address alone"
    assert [request.key_end for request in other.requests] == ["bbbb"]


@pytest.mark.parametrize(
    "content",
    [
        *("{", "{}", '["sk-second-00000-bbbb"]', '{"research": []}', "[" * 50_000),
        '{"research": {"keys": ["sk-second-00000-bbbb"], "url": "x"}}',
        json.dumps({f"p{number}": NEW for number in range(65)}),
    ],
    ids=lambda content: content[:24],
)
async def test_damaged_file_keeps_the_profiles_and_is_logged(
    rig: Rig, file: Path, content: str
) -> None:
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=AT_ONCE)
    set_key_profile("research")
    await model.text(HELLO)
    write_profiles(file, content)
    await model.text(HELLO)
    assert rig.keys_sent == ["aaaa", "aaaa"]
    assert unusable(rig) == 1
    assert "secret not replaced" in {each["event"] for each in rig.telemetry.logs}
    assert NEW not in str(rig.telemetry.logs)
    write_profiles(file, {"research": NEW})
    await model.text(HELLO)
    assert rig.keys_sent[-1] == "bbbb"
    assert unusable(rig) == 0


async def test_what_cannot_be_used_at_the_start_is_named(
    rig: Rig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_MODEL_KEYS_FILE", str(file))
    assert ModelSettings.load().access("openai", "research").keys[0].get_secret_value() == OLD
    monkeypatch.setenv("BOS_MODEL_KEYS", '{"team": "sk-x"}')
    with pytest.raises(ConfigurationError, match="BOS_MODEL_KEYS_FILE are set; remove one"):
        ModelSettings.load()
    monkeypatch.delenv("BOS_MODEL_KEYS")
    with pytest.raises(ConfigurationError, match=r"BOS_MODEL_KEYS_FILE: .*cannot be read"):
        await rig.models(key_profiles_file=file.with_name("missing"))
