"""Settings of the gateway: what is refused before anything starts, and how lists are written."""

import base64
from pathlib import Path
from typing import Any

import pytest

from bos_chassis.auth.callers import generate_keypair
from bos_errors import ConfigurationError
from bos_gateway.permits.connections import connections_problem
from bos_gateway.settings import GatewaySettings

NEEDED = {
    "store_url": "postgresql://nowhere",
    "planner_target": "a:1",
    "composer_target": "b:1",
    "agent_targets": "sql=c:1,code=d:1",
}
SECRET = base64.b64encode(bytes(range(32))).decode()


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"approvers": {"mail.send": {"four_eyes": True}}}, "APPROVERS"),
        ({"approvers": {"send": {"roles": ["approver"]}}}, "APPROVERS"),
        ({"approvers": {"mail.send": {"roles": ["boss"]}}}, "APPROVERS"),
        ({"approvers": {"mail.send": {"groups": ["a\nb"]}}}, "APPROVERS"),
        ({"approvers": {"mail.send": {"role": ["approver"]}}}, "APPROVERS"),
        ({"agent_audiences": {"*": ["gateway"]}}, "AGENT_AUDIENCES"),
        ({"agent_audiences": {"*": ["identity"]}}, "AGENT_AUDIENCES"),
        ({"agent_audiences": {"sql": ["Gateway"]}}, "AGENT_AUDIENCES"),
        ({"agent_audiences": {"sql": ["code"]}}, "AGENT_AUDIENCES"),
        ({"agent_audiences": {"sql": ["*"]}}, "AGENT_AUDIENCES"),
        ({"agent_audiences": {"unknown": ["mcp_db"]}}, "AGENT_AUDIENCES"),
        ({"agent_targets": "mcp_db=somewhere:1"}, "AGENT_TARGETS"),
        ({"agent_targets": "Gateway=somewhere:1"}, "AGENT_TARGETS"),
        ({"max_user_day_tokens": 1000}, "MAX_RUN_TOKENS"),
        ({"max_day_tokens": 1000}, "MAX_RUN_TOKENS"),
        ({"key_profiles": "sql"}, "KEY_PROFILES"),
        ({"key_profiles": "sql="}, "KEY_PROFILES"),
        ({"key_profiles": "=research"}, "KEY_PROFILES"),
        ({"key_profiles": "sql=" + "x" * 129}, "KEY_PROFILES"),
        ({"models": "=Thorough"}, "MODELS"),
        ({"models": "two words"}, "MODELS"),
        ({"models": "a, b, a=c"}, "MODELS"),
        ({"models": "x" * 129}, "MODELS"),
        ({"models": "a=" + "x" * 65}, "MODELS"),
        ({"models": "a\u202eb"}, "MODELS"),
        ({"models": "a=b\u202e"}, "MODELS"),
        ({"models": ",".join(f"m{number}" for number in range(33))}, "MODELS"),
        ({"lease_s": 1.0, "lease_renewal_s": 0.8}, "LEASE_S"),
        (
            {"run_token_private_key": "x", "run_token_private_keys_file": Path("keys.pem")},
            "RUN_TOKEN_PRIVATE_KEYS_FILE",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], variable: str) -> None:
    with pytest.raises(ConfigurationError, match=f"BOS_GATEWAY_{variable}"):
        GatewaySettings.load(**{**NEEDED, **settings})


def test_lists_in_settings_are_read_and_keys_are_not_shown() -> None:
    assert GatewaySettings.load(**NEEDED).models == {}
    settings = GatewaySettings.load(
        **NEEDED,
        agent_audiences={"sql": ["mcp_db", "mail"], "*": []},
        max_run_tokens=10,
        max_day_tokens=1000,
        max_user_day_tokens=1000,
        key_profiles="sql=research, *=common",
        models="gpt-6-sol = Very thorough, qwen3:8b=, org/m@1 ,",
        secrets_keys=f"k1={SECRET}",
        run_token_private_key=generate_keypair()[0],
    )
    assert settings.key_profiles == {"sql": "research", "*": "common"}
    assert list(settings.models.items()) == [
        ("gpt-6-sol", "Very thorough"),
        ("qwen3:8b", "qwen3:8b"),
        ("org/m@1", "org/m@1"),
    ]
    assert SECRET not in repr(settings) + settings.model_dump_json()


def test_connections_are_allowed_to_known_agents_by_kind() -> None:
    for allowed, said in (
        ({"unknown": ["mail.imap"]}, "AGENT_TARGETS does not"),
        ({"mail": ["Mail IMAP"]}, "must list kinds"),
        ({"mail": [""]}, "must list kinds"),
    ):
        assert said in (connections_problem(allowed, ["mail"]) or "")
    assert connections_problem({"mail": ["mail.imap"]}, ["mail"]) is None
