"""Key profiles in a file that changes while calls are made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bos_errors import ConfigurationError
from bos_llm import ModelNotConfigured, set_key_profile, user
from bos_llm.settings import ModelSettings
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory
from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from conftest import Rig

pytestmark = pytest.mark.security
HELLO = [user("hello")]
OLD, NEW = "sk-first-000000-aaaa", "sk-second-00000-bbbb"
AT_ONCE, NEVER = 1e-9, 36000.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "profiles.json"
    write(path, {"research": OLD})
    return path


def write(path: Path, profiles: Any) -> None:
    path.write_text(profiles if isinstance(profiles, str) else json.dumps(profiles))


def sent(rig: Rig) -> list[str]:
    """The keys of all requests so far, in order, by their ends."""
    return [request.key_end for request in rig.server.requests]


def unusable(rig: Rig) -> float:
    labels = {"service": "test", "variable": "BOS_MODEL_KEYS_FILE"}
    return rig.metric("bos_secret_file_unusable", **labels)


async def test_keys_of_a_profile_change_and_the_old_ones_are_not_sent_again(
    rig: Rig, file: Path
) -> None:
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=AT_ONCE)
    set_key_profile("research")
    await model.text(HELLO)
    write(file, {"research": [NEW, NEW]})
    await model.text(HELLO)
    assert sent(rig) == ["aaaa", "bbbb"]
    assert "secret replaced" in {each["event"] for each in rig.telemetry.logs}
    assert OLD not in str(rig.telemetry.logs)
    assert NEW not in str(rig.telemetry.logs)


async def test_a_refused_key_that_was_replaced_meanwhile_fails_no_call(
    rig: Rig, file: Path
) -> None:
    rig.server.knobs.fail_next(9, status=401, key=OLD)
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=NEVER, max_attempts=1)
    set_key_profile("research")
    with pytest.raises(ModelNotConfigured):
        await model.text(HELLO)
    write(file, {"research": NEW})
    await model.text(HELLO)
    assert sent(rig) == ["aaaa", "aaaa", "bbbb"]


async def test_profiles_come_and_go(rig: Rig, file: Path) -> None:
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=AT_ONCE)
    set_key_profile("team")
    with pytest.raises(ConfigurationError, match="'team'"):
        await model.text(HELLO)
    write(file, {"research": OLD, "team": NEW})
    await model.text(HELLO)
    assert sent(rig) == ["bbbb"]
    write(file, {"research": OLD})
    with pytest.raises(ConfigurationError, match="'team'"):
        await model.text(HELLO)
    write(file, {"team": {"keys": [NEW], "provider": "openai"}, "research": OLD})
    with pytest.raises(ConfigurationError, match="for openai only"):
        await model.text(HELLO)
    assert sent(rig) == ["bbbb"], "and nothing was sent elsewhere"


async def test_the_address_of_a_profile_changes_too(
    rig: Rig, file: Path, scripted_model: ScriptedModelFactory
) -> None:
    other = await scripted_model(fixture("greeting", ["hello"], text="Hello from elsewhere."))
    model = await rig.model(key_profiles_file=file, key_files_refresh_s=AT_ONCE)
    set_key_profile("research")
    await model.text(HELLO)
    write(file, {"research": {"keys": [NEW], "base_url": other.base_url}})
    await model.text(HELLO)
    assert sent(rig) == ["aaaa"], "the new key is for the new address alone"
    assert [request.key_end for request in other.requests] == ["bbbb"]


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "{}", "[]", '["sk-second-00000-bbbb"]', '{"research": []}', "[" * 50_000),
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
    write(file, content)
    await model.text(HELLO)
    assert sent(rig) == ["aaaa", "aaaa"]
    assert unusable(rig) == 1
    assert "secret not replaced" in {each["event"] for each in rig.telemetry.logs}
    assert NEW not in str(rig.telemetry.logs)
    write(file, {"research": NEW})
    await model.text(HELLO)
    assert sent(rig)[-1] == "bbbb"
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
