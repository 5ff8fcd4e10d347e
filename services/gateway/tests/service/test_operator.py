"""``bos doctor``, ``bos runs log`` and ``bos runs adopted`` against real services."""

import asyncio
import fcntl
import json
import socket
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from gateway_harness.harness import Harness, gateway_process
from gateway_harness.ownership_rows import insert_run
from gateway_harness.stored import fetch, fetchval
from gateway_harness.streamed import run_under_way

from bos.gateway.v1 import ListRunsRequest
from bos.planner.v1 import Step
from bos_agentkit import agent_card
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.settings import AuthSettings
from bos_cli.main import main
from bos_client.local import FILE, LOCK, register, write_private
from bos_gateway.operator.commands import models as operator_models
from bos_gateway.operator.commands import targets
from bos_gateway.run_log.session import MOST_SESSIONS, SCHEMA
from bos_postgres import connect
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

SECRET = "do-not-print-me"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No .env and no standalone of the developer; and no model."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BOS_MODEL", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def closed_target() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def environment(harness: Harness, **settings: str) -> dict[str, str]:
    agents = harness.agent_targets or {"echo": closed_target()}
    given = {
        "STORE_URL": harness.dsn,
        "PLANNER_TARGET": harness.planner_target,
        "COMPOSER_TARGET": harness.composer_target,
        "AGENT_TARGETS": ",".join(f"{n}={t}" for n, t in agents.items()),
        "FALLBACK_AGENT": "echo",
        **settings,
    }
    return {f"BOS_GATEWAY_{name}": value for name, value in given.items()}


async def bos(*arguments: str, env: dict[str, str]) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, arguments, env=env)


async def examined(env: dict[str, str]) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Exit code and findings by check."""
    result = await bos("doctor", "--json", env=env)
    report = json.loads(result.stdout)
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in report["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return result.exit_code, found


def levels(findings: list[dict[str, Any]]) -> set[str]:
    return {finding["level"] for finding in findings}


async def test_all_is_well_with_keys_a_gateway_and_its_agents(harness: Harness) -> None:
    private, public = generate_keypair()
    auth = AuthSettings.load(static_key=None, run_token_public_keys=public)
    card = agent_card("echo", "Echoes.", keywords=["echo"])
    await harness.add_agent(EchoAgent("echo", card=card), auth=auth)
    async with gateway_process(harness, run_token_private_key=private):
        env = environment(harness, RUN_TOKEN_PRIVATE_KEY=private)
        code, found = await examined(env)
        shown = await bos("doctor", env=env)

    async with connect(harness.dsn, schema=SCHEMA) as session:  # nothing of the probe stays
        assert await session.fetchval("SELECT count(*) FROM run_events") == 0
    assert code == 0
    for check in ("settings", "store", "clock", "sessions", "migrations", "writing", "gateways"):
        assert levels(found[check]) == {"ok"}, found[check]
    assert levels(found["runs"] + found["cards"] + found["run tokens"]) == {"ok"}
    assert [f["level"] for f in found["echo"]] == ["ok", "ok"]
    assert "accepts the gateway's run token" in found["echo"][1]["text"]
    # Planner and composer of this harness have no authentication, which is only a warning.
    assert any("also without a run token" in f["text"] for f in found["planner"])
    assert all(f["advice"] for group in found.values() for f in group if f["level"] != "ok")
    assert shown.exit_code == 0
    assert "0 problem" in shown.stdout
    assert "PRIVATE KEY" not in shown.stdout


async def test_doctor_reports_cards_that_ask_for_more_audiences(harness: Harness) -> None:
    wanted = ["gateway", "memory", "mail", "mcp_db"]
    for name, asks in (("greedy", wanted), ("modest", ["mcp_db"])):
        card = agent_card(name, "Echoes.", keywords=[name], downstream_audiences=asks)
        await harness.add_agent(EchoAgent(name, card=card))
    _, found = await examined(environment(harness))
    findings = found["card of greedy"]
    assert levels(findings) == {"warning"}
    assert ["gateway, memory" in findings[0]["text"], "call mail" in findings[1]["text"]] == [
        True,
        True,
    ]
    assert "BOS_GATEWAY_AGENT_AUDIENCES" in findings[1]["advice"]
    assert "card of modest" not in found

    _, found = await examined(environment(harness, AGENT_AUDIENCES='{"*": ["mail"]}'))
    assert ["mcp_db" in each["text"] for each in found["card of greedy"]] == [False, True]
    assert "call mcp_db" in found["card of modest"][0]["text"]


async def test_doctor_reports_tokens_of_a_bounded_day(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = []
    env = environment(harness)
    async with harness.gateway() as gateway:
        await gateway.ask()
        _, found = await examined(env)
        assert "tokens" not in found
    async with harness.gateway(max_run_tokens=10_000, max_day_tokens=50_000) as gateway:
        await gateway.ask()
        _, found = await examined(env)
    (finding,) = found["tokens"]
    assert finding["level"] == "ok"
    assert "held or consumed today (UTC) by 1 user(s)" in finding["text"]


async def test_models_are_called_only_when_asked(harness: Harness) -> None:
    env = environment(harness)
    _, found = await examined(env)
    assert levels(found["models"]) == {"warning"}
    assert all("OPENAI_API_KEY" in finding["advice"] for finding in found["models"])

    replies = [
        fixture("ok", ["Say: ok"], text="ok"),
        fixture("json", [], schema="ProbeAnswer", json={"reason": "It is.", "prime": True}),
    ]
    async with ScriptedModel(replies) as model:
        env |= {"OPENAI_BASE_URL": model.base_url, "BOS_MODEL": "scripted"}
        _, found = await examined(env)
        assert levels(found["models"]) == {"ok"}
        assert len(model.requests) == 0
        result = await bos("doctor", "--model", env=env)
        for probe in ("text: replied in", "json: JSON by a JSON schema", "stream: first text"):
            assert probe in result.stdout
        assert len(model.requests) == 3  # the same model for all of them
        offered = env | {"BOS_GATEWAY_MODELS": "large=Thorough, small"}
        _, found = await examined(
            offered | {"BOS_MODEL_PRICES": '{"large": {"input": 1, "output": 2}}'}
        )
        (warned,) = [each for each in found["models"] if each["level"] == "warning"]
        assert "may choose small of compatible, which has no price" in warned["text"]
        assert "BOS_MODEL_PRICES" in warned["advice"]
        result = await bos("doctor", "--model", env=offered)
        assert "small of compatible, text: replied in" in result.stdout
        asked = [request.model for request in list(model.requests)[3:]]
        assert [asked.count(name) for name in ("scripted", "large", "small")] == [3, 3, 3]
        model.quirks.refuses["temperature"] = "openai"
        result = await bos("doctor", "--model", env=env)
        assert "learnt: the endpoint does not take temperature" in result.stdout
        model.quirks.refuses.clear()
        model.knobs.prose_next(2, schema="ProbeAnswer")
        result = await bos("doctor", "--model", env=env)
        assert result.exit_code == 2
        assert "json: The reply of the model scripted" in result.stdout
    result = await bos("doctor", "--model", env=env)
    assert result.exit_code == 2
    assert "could not be reached" in result.stdout


@pytest.mark.parametrize("installed", [True, False])
async def test_a_managed_identity_needs_its_package(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(operator_models, "identity_available", lambda: installed)
    azure = {
        "AZURE_OPENAI_ENDPOINT": "https://example.openai.azure.com",
        "AZURE_OPENAI_AUTH": "managed_identity",
        "BOS_MODEL": "my-deployment",
    }
    _, found = await examined(environment(harness) | azure)
    problems = [f["advice"] for f in found["models"] if f["level"] == "problem"]
    assert problems == ([] if installed else ["Install bos-llm[azure], or use a key."])


async def test_doctor_ends_within_its_bound_when_everything_is_down(harness: Harness) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and never says a word
    port = silent.getsockname()[1]
    env = environment(
        harness,
        STORE_URL=f"postgresql://bos:{SECRET}@127.0.0.1:{port}/bos",
        PLANNER_TARGET=f"127.0.0.1:{port}",
        COMPOSER_TARGET=closed_target(),
        AGENT_TARGETS=f"echo={closed_target()}",
    )
    with silent:
        async with asyncio.timeout(60):
            code, found = await examined(env)
    assert code == 2
    for check in ("store", "planner", "composer", "echo"):
        assert levels(found[check]) == {"problem"}
        assert found[check][0]["advice"]
    assert SECRET not in json.dumps(found)


async def test_a_name_server_that_never_answers_holds_up_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, answered = socket.getaddrinfo, threading.Event()

    def hang(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "hanging.invalid":
            answered.wait(600)
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    env = environment(harness, STORE_URL="postgresql://bos@hanging.invalid/bos")
    try:
        async with asyncio.timeout(60):
            _, found = await examined(env)
    finally:
        answered.set()
    assert levels(found["store"]) == {"problem"}


async def test_doctor_reports_too_few_connections(harness: Harness) -> None:
    async with harness.gateway():
        _, found = await examined(environment(harness))
        (few,) = found["connections"]
        usable = int(await fetchval(harness.dsn, "SHOW max_connections"))
        await fetch(
            harness.dsn,
            "INSERT INTO replicas (replica_id, lease_until) SELECT gen_random_uuid(), "
            "now() + interval '1 hour' FROM generate_series(1, $1)",
            usable // MOST_SESSIONS,
        )
        _, found = await examined(environment(harness))
        (many,) = found["connections"]
    assert (few["level"], many["level"]) == ("ok", "warning")
    assert "max_connections" in many["advice"]


async def test_a_gateway_opens_no_more_connections_than_it_is_said_to(harness: Harness) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    most = 0
    async with connect(harness.dsn) as session, harness.gateway() as gateway:
        busy = asyncio.gather(
            *(gateway.ask() for _ in range(20)),
            *(gateway.call(ListRunsRequest()) for _ in range(200)),
        )
        while not busy.done():
            most = max(most, await session.fetchval(count) - 1)
        await busy
    assert 8 < most <= MOST_SESSIONS


async def test_doctor_reports_unowned_runs_with_their_age(harness: Harness, pool: Any) -> None:
    owner = uuid4()
    await pool.execute("INSERT INTO replicas VALUES ($1, now() - interval '90 s', now())", owner)
    await insert_run(pool, owner)
    code, found = await examined(environment(harness))
    assert code == 2
    assert "no gateway holds a lease" in found["gateways"][0]["text"]
    assert "1 of dead gateways" in found["runs"][0]["text"]
    assert "up to 9" in found["runs"][0]["text"]
    assert "Start a gateway" in found["runs"][0]["advice"]


async def test_a_standalone_is_found_by_its_file(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data = tmp_path / ".data"
    data.mkdir()
    await harness.add_agent(EchoAgent("echo"))
    with (data / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with harness.gateway() as gateway:
            operator = {
                "store_url": harness.dsn,
                "planner_target": harness.planner_target,
                "composer_target": harness.composer_target,
                "agent_targets": harness.agent_targets,
                "model": "the scripted demo model",
            }
            target = gateway.server.address
            content = {"target": target, "api_key": SECRET, "operator": operator, **register(data)}
            write_private(data / FILE, json.dumps(content))
            _, found = await examined({})
        assert "standalone" in found["settings"][0]["text"]
        assert "answers the gateway's signed calls" in found["echo"][1]["text"]
        assert levels(found["gateway"] + found["models"]) == {"ok"}
        assert SECRET not in json.dumps(found)

        _, found = await examined({})
        assert "bos serve all" in found["gateway"][0]["advice"]


@pytest.mark.requirement("P-07", "P-09")
async def test_the_log_of_a_run_is_shown_whole(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [
        Step(step_id="a", agent="echo", task="say it\x1b[31m"),
        Step(step_id="b", agent="echo", task="use @{outputs.a.nowhere}"),
    ]
    harness.planner.revisions = [[Step(step_id="c", agent="echo", task="do without")]]
    async with harness.gateway() as gateway:
        response = await gateway.ask()
    env = environment(harness)
    shown = await bos("runs", "log", response.run_id, env=env)
    assert shown.exit_code == 0, shown.output
    attempts = [line for line in shown.stdout.splitlines() if line.startswith("attempt")]
    lines = [line for line in shown.stdout.splitlines() if line not in attempts]
    assert "run_accepted" in lines[0]
    assert "run_finished" in lines[-1]
    assert attempts[0] == "attempt  execution attempt 1 started"
    assert "attempt  replanning 1 succeeded" in attempts
    assert attempts[-1] == "attempt  execution attempt 2 ended: 1 of 1 steps succeeded"
    assert "\x1b" not in shown.stdout

    whole = await bos("runs", "log", response.run_id, "--json", env=env)
    events = [json.loads(line) for line in whole.stdout.splitlines()]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["event"]["run_accepted"]["request"]["question"] == "What is new?"

    unknown = await bos("runs", "log", str(uuid4()), env=env)
    assert unknown.exit_code == 1
    assert "There is no run" in unknown.stderr


async def test_adopted_runs_are_listed_with_reason_and_end(harness: Harness) -> None:
    agent = await harness.plan(SlowAgent("slow"))
    env = environment(harness)
    async with gateway_process(harness) as (process, gateway):
        run_id = await run_under_way(gateway, agent)
        assert "no run changed" in (await bos("runs", "adopted", env=env)).stdout
        process.kill()
        await process.wait()
    agent.release.set()
    async with gateway_process(harness) as (_, gateway):
        await gateway.watch(run_id)
    (line,) = (await bos("runs", "adopted", env=env)).stdout.splitlines()
    assert line.startswith(run_id)
    assert "1 x lease_expired" in line
    assert line.endswith("succeeded")
    (as_json,) = (await bos("runs", "adopted", "--json", env=env)).stdout.splitlines()
    assert json.loads(as_json)["reasons"] == {"lease_expired": 1}
    assert (await bos("runs", "adopted", "--since", "soon", env=env)).exit_code == 2


async def test_doctor_distinguishes_wrong_missing_expired_and_unreadable_keys(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (private, _), (signing, another) = generate_keypair(), generate_keypair()
    auth = AuthSettings.load(static_key=None, run_token_public_keys=another)
    await harness.add_agent(EchoAgent("echo"), auth=auth)

    code, found = await examined(environment(harness, RUN_TOKEN_PRIVATE_KEY=private))
    assert code == 2
    assert "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS" in found["echo"][1]["advice"]

    code, found = await examined(environment(harness))
    assert code == 2
    assert "asks for a run token" in found["echo"][1]["text"]

    file = tmp_path / "keys.pem"
    file.write_text(signing + private)
    env = environment(harness, RUN_TOKEN_PRIVATE_KEYS_FILE=str(file))
    _, found = await examined(env)
    assert "accepts the gateway's run token" in found["echo"][1]["text"]

    # What a token of a second looks like to a clock that is eleven seconds ahead.
    monkeypatch.setattr(targets, "_TOKEN_S", -10.0)
    code, found = await examined(env)
    assert code == 2
    assert "its clock is ahead" in found["echo"][1]["text"]

    file.write_text(SECRET)
    for name, value in (("KEY", SECRET), ("KEYS_FILE", str(file))):
        code, found = await examined(environment(harness, **{f"RUN_TOKEN_PRIVATE_{name}": value}))
        assert code == 2
        assert found["run tokens"][0]["level"] == "problem"
        assert f"RUN_TOKEN_PRIVATE_{name}" in json.dumps(found["run tokens"])
        assert SECRET not in json.dumps(found)


async def test_missing_and_wrong_settings_are_named(harness: Harness) -> None:
    env = environment(harness)
    for variables, check, named in (
        ({"BOS_GATEWAY_STORE_URL": "postgresql://x/y"}, "settings", "BOS_GATEWAY_PLANNER_TARGET"),
        ({}, "settings", "bos serve all"),
        ({**env, "PLANNER_MODEL_KEYS": "research"}, "models", "PLANNER_MODEL_KEYS"),
        ({**env, "BOS_MODEL_PRICES_FILE": "none.json"}, "models", "BOS_MODEL_PRICES_FILE"),
        (
            {**env, "BOS_GATEWAY_PLANNER_TARGET": harness.composer_target},
            "planner",
            "does not offer bos.planner.v1.PlannerService",
        ),
    ):
        code, found = await examined(variables)
        problems = [f["text"] for f in found[check] if f["level"] == "problem"]
        assert code == 2
        assert any(named in text for text in problems), named


async def test_missing_migrations_and_a_read_only_database_are_named(harness: Harness) -> None:
    joined = "&" if "?" in harness.dsn else "?"
    read_only = f"{harness.dsn}{joined}default_transaction_read_only=on"
    code, found = await examined(environment(harness, STORE_URL=read_only))
    assert code == 2
    assert "read-only" in found["writing"][0]["text"]

    (row,) = await fetch(harness.dsn, "SELECT max(version) AS last FROM schema_migrations")
    await fetch(harness.dsn, "DELETE FROM schema_migrations WHERE version = $1", row["last"])
    _, found = await examined(environment(harness))
    assert found["migrations"][0]["level"] == "problem"
    assert row["last"] in found["migrations"][0]["text"]

    async with connect(harness.dsn) as session:
        await session.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    code, found = await examined(environment(harness))
    assert code == 2
    assert "no schema" in found["migrations"][0]["text"]
