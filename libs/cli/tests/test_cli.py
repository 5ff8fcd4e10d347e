"""The command line against a gateway on a real port."""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bos.common.v1 import OUTCOME_DENIED
from bos.gateway.v1 import RunStatus
from bos_cli.main import main
from bos_client.connection import CONNECTION_FILE, NoConnection, find_connection
from bos_client.local import FILE, LOCK, register, write_private
from bos_errors import BosError, InvalidArgument, ResourceExhausted, Unavailable
from bos_testkit.scripted_gateway import RUN_ID, Gateway, response, story

from .commands import begin, bos


@pytest.mark.requirement("A-02")
async def test_ask_prints_plain_lines_without_a_terminal(gateway: Gateway) -> None:
    done = await bos(
        gateway,
        *("ask", "Who leads?", "--context", "shop=north", "--context", "limits:=[1, 2]"),
        *("--prefer", "sql", "--disable", "web", "--system-prompt", "Be brief", "--timeout", "9"),
        *("--tainted", "--max-rows", "7", "--max-columns", "3", "--backend", "sales"),
        *("--model", "large"),
    )

    assert (done.code, done.err) == (0, "")
    assert "Acme leads [1]." in done.out
    assert "9007199254740993.10" in done.out
    assert "\x1b" not in done.out
    assert "\r" not in done.out
    (asked,) = gateway.asked
    assert asked.context["shop"] == "north"
    assert list(asked.context["limits"]) == [1, 2]
    assert (list(asked.prefer_agents), list(asked.disable_agents)) == (["sql"], ["web"])
    assert asked.system_prompt == "Be brief"
    assert asked.tainted
    assert asked.timeout.ToMilliseconds() == 9000
    assert (asked.max_rows, asked.max_columns, asked.backend) == (7, 3, "sales")
    assert asked.model == "large"
    assert asked.include_data
    assert not asked.trace


async def test_ask_prints_one_json_object_and_nothing_else(gateway: Gateway) -> None:
    done = await bos(gateway, "ask", "Who leads?", "--json", "--no-data", "--trace")

    printed = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert printed["status"] == "RUN_STATUS_SUCCEEDED"
    assert printed["run_id"] == RUN_ID
    assert printed["data"]["rows"][0][1] == "9007199254740993.10"
    assert not gateway.asked[0].include_data
    assert gateway.asked[0].trace


async def test_detached_question_prints_its_run_and_the_way_back(gateway: Gateway) -> None:
    done = await bos(gateway, "ask", "Who leads?", "--detach", "--prefer", "sql")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Run {RUN_ID}: accepted\n")
    assert f"bos runs watch {RUN_ID}" in done.out
    assert "Acme leads" not in done.out
    assert list(gateway.asked[0].prefer_agents) == ["sql"]
    assert not gateway.asked[0].HasField("max_rows")
    assert not gateway.asked[0].HasField("max_columns")

    as_json = await bos(gateway, "ask", "Who leads?", "--detach", "--json")
    assert json.loads(as_json.out)["run_id"] == RUN_ID


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED, 0),
        (RunStatus.RUN_STATUS_FAILED, 1),
        (RunStatus.RUN_STATUS_CANCELLED, 4),
        (RunStatus.RUN_STATUS_CLARIFICATION_NEEDED, 4),
    ],
)
async def test_exit_code_is_of_the_status(gateway: Gateway, status: RunStatus, code: int) -> None:
    gateway.events = story(response(status))
    assert (await bos(gateway, "ask", "Who leads?")).code == code


async def test_exit_code_and_last_line_are_of_the_outcome(gateway: Gateway) -> None:
    denied = response(RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED)
    denied.outcome = OUTCOME_DENIED
    gateway.events = story(denied)
    done = await bos(gateway, "ask", "Who leads?")
    assert done.code == 4
    assert f"Run {RUN_ID}: denied" in done.out


async def test_errors_name_field_and_fix_and_exit_2(gateway: Gateway) -> None:
    gateway.error = InvalidArgument.field("request.prefer_agents", '"x" is not an agent')
    plain = await bos(gateway, "ask", "Who leads?")
    as_json = await bos(gateway, "ask", "Who leads?", "--json")

    assert (plain.code, plain.out) == (2, "")
    assert 'request.prefer_agents: "x" is not an agent' in plain.err
    assert (as_json.code, as_json.err) == (2, "")
    assert json.loads(as_json.out)["error"] == {
        "code": "INVALID_ARGUMENT",
        "reason": "INVALID_ARGUMENT",
        "message": 'request.prefer_agents: "x" is not an agent',
        "violations": [{"field": "request.prefer_agents", "description": '"x" is not an agent'}],
    }


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ResourceExhausted("Too much.", retry_after_s=2), 1, "Try again in 2 s."),
        (Unavailable("away"), 3, "Is it running?"),
    ],
)
async def test_other_exit_codes(gateway: Gateway, error: BosError, code: int, said: str) -> None:
    gateway.error = error
    done = await bos(gateway, "agents")
    assert done.code == code
    assert said in done.err


@pytest.mark.process
async def test_ctrl_c_leaves_the_run_going(gateway: Gateway) -> None:
    gateway.holds_after = 4
    process = await begin(gateway, "ask", "Who leads?")
    await gateway.silent.wait()
    await process.stdout.readuntil(b"sql\n")  # the step that has begun

    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()

    assert process.returncode == 130
    assert f"bos runs watch {RUN_ID}" in err.decode()
    assert f"bos runs cancel {RUN_ID}" in err.decode()
    assert "Traceback" not in err.decode()


async def test_runs_agents_and_plan(gateway: Gateway) -> None:
    listed = await bos(gateway, "runs", "list", "--status", "partially-succeeded")
    shown = await bos(gateway, "runs", "show", RUN_ID)
    cancelled = await bos(gateway, "runs", "cancel", RUN_ID, "--reason", "enough")
    agents = await bos(gateway, "agents")
    plan = await bos(gateway, "plan", "Who leads?", "--model", "large")

    assert [done.code for done in (listed, shown, cancelled, agents, plan)] == [0] * 5
    assert "Who leads?" in listed.out
    assert "bos runs list --page next" in listed.out
    assert "Acme leads [1]." in shown.out
    assert f"Run {RUN_ID}: cancelled" in cancelled.out
    assert "\nmodel large\n" in shown.out
    assert "web  not available: does not answer" in agents.out
    assert "--model" not in agents.out
    gateway.models = {"large": "Thorough", "small": "small"}
    models = (await bos(gateway, "agents")).out
    assert "\n  small\n" in models
    assert "\n  large  Thorough" in models
    assert "2. share" in plan.out
    assert [asked.model for asked in gateway.asked] == ["large"]


async def test_watch_follows_a_run_and_shows_its_outcome(gateway: Gateway) -> None:
    gateway.breaks_after = [2]
    whole = await bos(gateway, "runs", "watch", RUN_ID)
    rest = await bos(gateway, "runs", "watch", RUN_ID, "--after", "11", "--json")
    unknown = await bos(gateway, "runs", "watch", "another")
    assert whole.code == 0
    assert "✔ find" in whole.out
    assert json.loads(rest.out)["run_id"] == RUN_ID
    assert unknown.code == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ask", "  "], "must not be empty"),
        (["ask", "x", "--context", "novalue"], "key=text or key:=json"),
        (["ask", "x", "--context", "a:={"], "is not JSON"),
        (["ask", "x", "--timeout", "0"], "--timeout"),
        (["ask", "x", "--max-rows", "0"], "--max-rows"),
        (["ask", "x", "--max-columns", "2147483648"], "--max-columns"),
        (["runs", "list", "--status", "odd"], "--status"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_wrong(arguments: list[str], complaint: str) -> None:
    done = CliRunner().invoke(main, ["--target", "127.0.0.1:1", *arguments])
    assert done.exit_code == 2
    assert complaint in done.output


def test_help_lists_the_commands_of_other_packages() -> None:
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    for command in ("ask", "runs", "agents", "plan", "serve", "demo"):
        assert f"\n  {command} " in done.output


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder whose lock is held, as by a running standalone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / CONNECTION_FILE.parent
    path.mkdir()
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield path
    os.close(descriptor)


CONTENT = {"target": "127.0.0.1:7", "api_key": "k", "context": {"current_date": "d"}}


def test_the_local_gateway_is_found_from_any_folder_below(tmp_path: Path, data: Path) -> None:
    announce(data, CONTENT)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)

    found = find_connection(None, None, inner)

    assert (found.target, found.api_key, found.standalone) == ("127.0.0.1:7", "k", str(data))
    assert "k" not in repr(found).replace("api_key", "").replace(str(data), "")
    assert found.context_for({"shop": "north"}) == {"shop": "north", "current_date": "d"}
    assert found.context_for({"current_date": "e"}) == {"current_date": "e"}


def planted(data: Path) -> None:
    write_private(data / FILE, json.dumps(CONTENT))


def guessed(data: Path) -> None:
    announce(data, CONTENT)
    write_private(data / FILE, json.dumps({**CONTENT, "registration": "a guess"}))


def moved(data: Path) -> None:
    announce(data.parent / "elsewhere", CONTENT)
    (data.parent / "elsewhere" / FILE).rename(data / FILE)


def readable(data: Path) -> None:
    announce(data, CONTENT)
    (data / FILE).chmod(0o644)


def linked(data: Path) -> None:
    announce(data, CONTENT)
    (data / FILE).rename(data / "real.json")
    (data / FILE).symlink_to(data / "real.json")


def stopped(data: Path) -> None:
    announce(data, CONTENT)
    (data / LOCK).unlink()
    (data / LOCK).touch(mode=0o600)


def without_lock(data: Path) -> None:
    announce(data, CONTENT)
    (data / LOCK).unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (planted, "no `bos serve all` of yours"),
        (guessed, "no `bos serve all` of yours"),
        (moved, "no `bos serve all` of yours"),
        (readable, "0600"),
        (linked, "cannot be opened"),
        (stopped, "does not run"),
        (without_lock, "does not run"),
    ],
)
def test_a_file_that_no_running_standalone_of_this_user_wrote_is_passed_over(
    tmp_path: Path, data: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(data)
    with pytest.raises(NoConnection, match=rf"standalone\.json is passed over: .*{reason}"):
        find_connection(None, None, tmp_path)


def test_file_of_another_user(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(data, CONTENT)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(NoConnection, match="belongs to another user"):
        find_connection(None, None, tmp_path)


def test_registrations_of_folders_that_are_gone_are_forgotten(tmp_path: Path, data: Path) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    register(lost)
    lost.rmdir()
    register(data)
    assert len(list((tmp_path / "config/bos/standalones").iterdir())) == 1


def test_a_target_that_is_named_takes_nothing_from_the_file(tmp_path: Path, data: Path) -> None:
    announce(data, CONTENT)
    found = find_connection("other:1", None, tmp_path)
    assert (found.target, found.api_key, dict(found.context)) == ("other:1", None, {})


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, "\xff"])
def test_an_invalid_file_is_named(tmp_path: Path, data: Path, content: str) -> None:
    write_private(data / FILE, content)
    with pytest.raises(NoConnection, match=r"standalone\.json"):
        find_connection(None, None, tmp_path)


@pytest.mark.parametrize("content", [{"api_key": "k"}, {"target": "a", "context": 3}])
def test_file_of_another_version_fails(tmp_path: Path, data: Path, content: dict[str, Any]) -> None:
    announce(data, content)
    with pytest.raises(NoConnection, match="start `bos serve all` again"):
        find_connection(None, None, tmp_path)


def test_missing_gateway_says_how_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["agents"], env={"BOS_TARGET": "", "BOS_API_KEY": ""})
    assert done.exit_code == 3
    assert "bos serve all" in done.output


def announce(data: Path, content: dict[str, Any]) -> None:
    """What `bos serve all` does once it is up."""
    data.mkdir(exist_ok=True)
    write_private(data / FILE, json.dumps({**content, **register(data)}))
