import json
from pathlib import Path
from typing import Any

import pytest

from bos_errors import ConfigurationError
from bos_http import HttpPolicy
from bos_mcp.server.http import server_policy
from bos_mcp.settings import McpSettings

URL = {"url": "https://mcp.example.com/mcp"}
PROGRAM = {"command": ["/usr/bin/server", "--root", "/srv"]}


def load(monkeypatch: pytest.MonkeyPatch, servers: Any, **settings: Any) -> McpSettings:
    monkeypatch.setenv("BOS_MCP_SERVERS", json.dumps(servers))
    return McpSettings.load(**settings)


def test_one_server_is_served_without_being_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name, server = load(monkeypatch, {"crm": URL}).chosen()
    assert (name, server.where) == ("crm", "https://mcp.example.com")


def test_of_several_servers_the_named_one_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"crm": URL, "notes": PROGRAM}
    name, server = load(monkeypatch, servers, agent="notes").chosen()
    assert (name, server.where) == ("notes", "server")
    for agent in ("", "other"):
        with pytest.raises(ConfigurationError, match=r"BOS_MCP_AGENT.*crm, notes"):
            load(monkeypatch, servers, agent=agent).chosen()


def test_process_without_a_server_says_how_one_is_configured() -> None:
    with pytest.raises(ConfigurationError, match="Set BOS_MCP_SERVERS"):
        McpSettings.load().chosen()


def test_standalone_has_agent_per_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert McpSettings.agents() == {}
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"notes": PROGRAM}))
    monkeypatch.setenv("BOS_MCP_SERVERS", json.dumps({"crm": URL}))
    monkeypatch.setenv("BOS_MCP_SERVERS_FILE", str(file))
    assert McpSettings.agents() == {"crm": {"agent": "crm"}, "notes": {"agent": "notes"}}


def test_wrong_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    expected: list[tuple[dict[str, Any], str]] = [
        ({}, "give either url or command"),
        ({**URL, **PROGRAM}, "give either url or command"),
        ({**PROGRAM, "token": "t-0p"}, "belong to a url"),
        ({**URL, "env": {"A": "t-0p"}}, "belongs to a command"),
        ({**PROGRAM, "env": {"A=B": "t-0p"}}, "no environment variables"),
        ({**PROGRAM, "env": {"A": "t-0p\0"}}, "NUL"),
        ({**URL, "reads": ["x"], "writes": ["x"]}, "x: either in reads or in writes"),
        ({**URL, "tokn": "t-0p"}, "TOKN"),
    ]
    for server, why in expected:
        with pytest.raises(ConfigurationError) as refused:
            load(monkeypatch, {"crm": server})
        assert why in refused.value.message
        assert "t-0p" not in refused.value.message


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read"),
        ("{", "Invalid JSON"),
        (json.dumps({"crm": URL}), "both have crm"),
        (json.dumps({"notes": {**PROGRAM, "token": "t-0p"}}), "notes: Value error, token"),
    ],
)
def test_wrong_file_is_refused_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "servers.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError, match="BOS_MCP_SERVERS_FILE") as refused:
        load(monkeypatch, {"crm": URL}, servers_file=file).chosen()
    assert why in refused.value.message
    assert "t-0p" not in refused.value.message


@pytest.mark.parametrize("name", ["2nd", "a-b"])
def test_name_that_no_agent_may_have_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case letters"):
        load(monkeypatch, {name: URL})


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {
        "crm": {**URL, "token": "t-0p", "headers": {"X-Api-Key": "k-0p"}},
        "notes": {**PROGRAM, "env": {"KEY": "e-0p"}},
    }
    shown = repr(load(monkeypatch, servers))
    assert not any(secret in shown for secret in ("t-0p", "k-0p", "e-0p"))


def test_policy_reaches_the_endpoint_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = HttpPolicy.load(
        hosts=("*",), allow_http=True, internal_origins={"http://erp.corp:80": ["10.0.0.0/8"]}
    )
    _, public = load(monkeypatch, {"crm": {"url": "https://mcp.example.com:8443/mcp"}}).chosen()
    policy = server_policy(public, wide)
    assert policy.hosts == ("mcp.example.com",)
    assert policy.ports == (8443,)
    assert not policy.internal_origins
    inside = {"url": "http://crm.corp:8080/mcp", "networks": ["10.1.0.0/16"]}
    policy = server_policy(load(monkeypatch, {"crm": inside}).chosen()[1], wide)
    assert policy.hosts == ()
    (origin,) = policy.internal_origins
    assert origin == "http://crm.corp:8080"
