import json
from pathlib import Path
from typing import Any

import pytest

from bos_a2a.settings import A2aSettings
from bos_errors import ConfigurationError

URL = {"url": "https://agents.example.com/billing"}


def load(monkeypatch: pytest.MonkeyPatch, servers: Any, **settings: Any) -> A2aSettings:
    monkeypatch.setenv("BOS_A2A_SERVERS", json.dumps(servers))
    return A2aSettings.load(**settings)


def test_one_remote_agent_is_served_without_being_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name, server = load(monkeypatch, {"billing": URL}).chosen()
    assert (name, server.where) == ("billing", "https://agents.example.com")
    assert not server.reads, "every message needs approval unless the operator says otherwise"


def test_of_several_the_named_one_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"billing": URL, "travel": {"url": "https://travel.example.com"}}
    assert load(monkeypatch, servers, agent="travel").chosen()[0] == "travel"
    for agent in ("", "other"):
        with pytest.raises(ConfigurationError, match=r"BOS_A2A_AGENT.*billing, travel"):
            load(monkeypatch, servers, agent=agent).chosen()


def test_process_without_a_remote_agent_says_how_one_is_configured() -> None:
    with pytest.raises(ConfigurationError, match="Set BOS_A2A_SERVERS"):
        A2aSettings.load().chosen()


def test_standalone_has_one_agent_for_each_entry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert A2aSettings.agents() == {}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"travel": URL}))
    monkeypatch.setenv("BOS_A2A_SERVERS", json.dumps({"billing": URL}))
    monkeypatch.setenv("BOS_A2A_SERVERS_FILE", str(file))
    assert list(A2aSettings.agents()) == ["billing", "travel"]


def test_wrong_entries_are_refused_without_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    expected: list[tuple[dict[str, Any], str]] = [
        ({"url": ""}, "URL"),
        ({"url": "ftp://example.com/a"}, "https://host/path"),
        ({**URL, "token": "t-0p", "token_file": "/t"}, "either token or token_file"),
        ({**URL, "call_timeout_s": 0}, "CALL_TIMEOUT_S"),
        ({**URL, "tokn": "t-0p"}, "TOKN"),
    ]
    for server, why in expected:
        with pytest.raises(ConfigurationError) as refused:
            load(monkeypatch, {"billing": server})
        assert why in refused.value.message
        assert "t-0p" not in refused.value.message


@pytest.mark.parametrize("name", ["Billing", "a-b", ""])
def test_name_that_no_agent_may_have_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case letters"):
        load(monkeypatch, {name: URL})


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"billing": {**URL, "token": "t-0p", "headers": {"X-Api-Key": "k-0p"}}}
    shown = repr(load(monkeypatch, servers))
    assert "t-0p" not in shown
    assert "k-0p" not in shown
