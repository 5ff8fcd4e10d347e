import json
from pathlib import Path
from typing import Any

import pytest

from bos_a2a.settings import A2aSettings
from bos_errors import ConfigurationError

URL = {"url": "https://agents.example.com/billing"}


def test_one_remote_agent_is_served_without_being_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="Set BOS_A2A_SERVERS"):
        A2aSettings.load().chosen()
    monkeypatch.setenv("BOS_A2A_SERVERS", json.dumps({"billing": URL}))
    name, server = A2aSettings.load().chosen()
    assert (name, server.where) == ("billing", "https://agents.example.com")
    assert not server.reads, "every message needs approval unless the operator says otherwise"


@pytest.mark.parametrize(
    "entry", [{"url": ""}, {**URL, "call_timeout_s": 0}, {**URL, "tokn": "t-0p"}]
)
def test_wrong_entries_are_refused(monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any]) -> None:
    monkeypatch.setenv("BOS_A2A_SERVERS", json.dumps({"billing": entry}))
    with pytest.raises(ConfigurationError) as refused:
        A2aSettings.load()
    assert "t-0p" not in refused.value.message


def test_standalone_has_an_agent_per_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert A2aSettings.agents() == {}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"travel": URL}))
    monkeypatch.setenv("BOS_A2A_SERVERS", json.dumps({"billing": URL}))
    monkeypatch.setenv("BOS_A2A_SERVERS_FILE", str(file))
    assert list(A2aSettings.agents()) == ["billing", "travel"]
