"""Model keys in files that change while calls are made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from bos_errors import ConfigurationError
from bos_llm import ModelNotConfigured, user
from bos_llm.settings import ModelSettings
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from conftest import Rig

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


def sent(rig: Rig) -> list[str]:
    """The keys of all requests so far, in order, by their ends."""
    return [request.key_end for request in rig.server.requests]


async def test_a_refused_key_that_was_replaced_meanwhile_fails_no_call(
    rig: Rig, key_file: Path
) -> None:
    rig.server.knobs.fail_next(9, status=401, key=OLD)
    model = await rig.model(api_key=None, api_key_file=key_file, max_attempts=1)
    with pytest.raises(ModelNotConfigured):
        await model.text(HELLO)
    assert sent(rig) == ["aaaa"]
    write(key_file, NEW)  # well before the file would be read again
    await model.text(HELLO)
    await model.text(HELLO)
    assert sent(rig) == ["aaaa", "aaaa", "bbbb", "bbbb"]
    replaced = [entry for entry in rig.telemetry.logs if entry["event"] == "secret replaced"]
    assert replaced
    assert OLD not in str(rig.telemetry.logs)
    assert NEW not in str(rig.telemetry.logs)


async def test_a_key_that_the_file_no_longer_holds_is_not_sent_again(
    rig: Rig, key_file: Path
) -> None:
    write(key_file, f"{OLD}\n{NEW}\n")
    model = await rig.model(
        api_key=None, api_key_file=key_file, key_files_refresh_s=1e-9, max_attempts=1
    )
    await model.text(HELLO)
    write(key_file, f"{NEW}\n{OTHER}\n")
    await model.text(HELLO)
    assert sent(rig) == ["aaaa", "bbbb"]


@pytest.mark.parametrize("content", ["", " \n", "ключ", " ".join(f"k{i}" for i in range(33))])
async def test_damaged_file_keeps_the_keys_and_is_logged(
    rig: Rig, key_file: Path, content: str
) -> None:
    model = await rig.model(
        api_key=None, api_key_file=key_file, key_files_refresh_s=1e-9, max_attempts=1
    )
    await model.text(HELLO)
    write(key_file, content)
    await model.text(HELLO)
    assert sent(rig) == ["aaaa", "aaaa"]
    labels = {"service": "test", "variable": "OPENAI_API_KEY_FILE"}
    await eventually(lambda: rig.metric("bos_secret_file_unusable", **labels) == 1)
    write(key_file, NEW)
    await model.text(HELLO)
    assert sent(rig)[-1] == "bbbb"
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
