"""Which key profile a step must use: from a setting into the log, and from there to the agent."""

import pytest
from gateway_harness.harness import Harness
from gateway_harness.run_logs import START, accepted, planned

from bos_errors import ConfigurationError
from bos_gateway.core.decide import Record, decide
from bos_gateway.core.fold import fold
from bos_gateway.settings import GatewaySettings
from bos_testkit.agents import EchoAgent
from bos_testkit.plans import step


@pytest.mark.parametrize(
    ("profiles", "chosen"),
    [
        ({}, {"sql": "", "code": ""}),
        ({"sql": "research"}, {"sql": "research", "code": ""}),
        ({"sql": "research", "*": "common"}, {"sql": "research", "code": "common"}),
    ],
)
@pytest.mark.requirement("N-07")
def test_dispatch_names_the_profile_that_the_log_froze(
    profiles: dict[str, str], chosen: dict[str, str]
) -> None:
    start = accepted()
    start.run_accepted.settings.api_keys_config_refs.update(profiles)
    state = fold("r", [start, planned(step("a", "sql"), step("b", "code"))])
    (record,) = decide(state, START)
    assert isinstance(record, Record)
    tasks = [each.step_dispatched.sub_task for each in record.events]
    assert {task.assigned_agent_role: task.api_keys_config_ref for task in tasks} == chosen
    assert state.request.settings.api_keys_config_refs == profiles  # asking a map adds to it


@pytest.mark.requirement("N-07")
async def test_profiles_of_the_settings_alone_reach_the_agents(harness: Harness) -> None:
    """Users could spend keys of others: a request chooses no profile."""
    agents = {name: EchoAgent(name) for name in ("echo", "other")}
    for agent in agents.values():
        await harness.add_agent(agent)
    harness.planner.steps = [step("a", "echo"), step("b", "other")]
    async with harness.gateway(key_profiles={"echo": "research", "*": "common"}) as gateway:
        await gateway.ask(context={"api_keys_config_ref": "of another user"})
    given = {name: agent.inputs[-1].api_keys_config_ref for name, agent in agents.items()}
    assert given == {"echo": "research", "other": "common"}


@pytest.mark.parametrize("value", ["sql", "sql=", "=research", "sql=" + "x" * 129])
def test_profiles_are_written_as_agent_and_profile(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    for name, given in (
        ("STORE_URL", "postgresql://x/y"),
        ("PLANNER_TARGET", "p"),
        ("COMPOSER_TARGET", "c"),
        ("AGENT_TARGETS", "sql=s"),
    ):
        monkeypatch.setenv(f"BOS_GATEWAY_{name}", given)
    monkeypatch.setenv("BOS_GATEWAY_KEY_PROFILES", "sql=research, *=common")
    assert GatewaySettings.load().key_profiles == {"sql": "research", "*": "common"}
    monkeypatch.setenv("BOS_GATEWAY_KEY_PROFILES", value)
    with pytest.raises(ConfigurationError, match="BOS_GATEWAY_KEY_PROFILES"):
        GatewaySettings.load()
