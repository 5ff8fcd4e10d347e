"""The whole product with REST: blocks of the guide, a browser, a program, generated requests.

`make trial NAME=rest` also generates requests at all bounds of the OpenAPI document.
"""

import asyncio
import hashlib
import json
import os
import re
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import Artefact
from bos.gateway.v1 import Approval, OrchestratorResponse, RunEvent, RunStatus
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.dialogues import load_approved
from bos_demo.expectations import mentions
from bos_demo.generators.generate import generate
from bos_demo.periods import named_periods

from .rest_harness import BOS, ROOT, RestHarness

PASSWORD = "correct horse battery"
SESSION = "/v1/browserSession"
(DRAWING,) = load_approved()
SKIPPED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED
SCHEMATHESIS = ROOT / ".cache/schemathesis/bin/st"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
PHASES = os.environ.get("BOS_TEST_REST_PHASES", "examples,fuzzing")
EXAMPLES = os.environ.get("BOS_TEST_REST_EXAMPLES", "5")
DAYS = "How many days are there between 17 January 2026 and 15 June 2026?"

pytestmark = [pytest.mark.e2e, pytest.mark.rest, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def http(rest_product: RestHarness) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {rest_product.key}"}
    async with aiohttp.ClientSession(rest_product.url, headers=headers) as session:
        yield session


async def outputs(folder: Path, lines: list[str]) -> list[str]:
    """What each line prints when the shell runs all of them, one after the other."""
    mark = "=== next line"
    script = "\n".join(f"{line}\nprintf '\\n{mark}\\n'" for line in lines)
    process = await asyncio.create_subprocess_exec(*("sh", "-c", script), cwd=folder, stdout=PIPE)
    printed, _ = await process.communicate()
    return printed.decode().split(f"\n{mark}\n")


def events(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^id: ([\d.]+)\nevent: (\w+)$", text, re.MULTILINE)


@pytest.mark.requirement("A-01")
async def test_the_walk_of_the_readme(rest_product: RestHarness) -> None:
    lines = [line for line in lines_of("REST") if line]
    printed = dict(zip(lines, await outputs(rest_product.folder, lines), strict=False))

    def after(start: str) -> str:
        (found,) = (text for line, text in printed.items() if line.startswith(start))
        return found

    def answer(start: str) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(after(start))
        return parsed

    asked = answer('call $REST/v1/runs:ask -d "$QUESTION"')
    assert asked["status"] == "RUN_STATUS_SUCCEEDED"
    assert "149" in asked["answer"]
    assert events(after("call $REST/v1/runs:askStream"))[0] == ("1", "run_accepted")
    resumed = after("call $REST/v1/runs/$RUN:watch")
    assert events(resumed)[0][0] == "3"
    assert events(resumed)[-1][1] == "run_finished"
    assert "\nevent: done\n" in resumed
    run = answer("call $REST/v1/runs/$RUN  ")
    assert run["response"]["answer"] == asked["answer"], "a dropped stream cancels nothing"
    left = answer('call "$REST/v1/runs/$LEFT?wait=60s')
    assert left["run_id"] != run["run_id"]
    assert left["response"]["answer"] == asked["answer"], "no client followed it"
    assert answer("call $REST/v1/runs/$RUN:cancel")["run_id"] == run["run_id"]
    error = answer('call $REST/v1/runs:ask -d \'{"query"')["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["details"][1]["field_violations"][0]["field"] == "query"


REVENUE = {
    "question": "Which five customers brought the most revenue last quarter, "
    "and what share of the total is that?",
    "context": {"current_date": "2026-06-15", "current_datetime_utc": "2026-06-15T12:00:00+00:00"},
    "request_id": "revenue",
}


@pytest.mark.requirement("A-04", "A-24")
async def test_raw_json_is_checked_field_by_field(
    http: aiohttp.ClientSession,
) -> None:
    impossible = (0, -1, 1.5, 2**31, "many", "NaN", [1], {})
    wrong = [(field, value) for field in ("max_rows", "max_columns") for value in impossible]
    wrong += [("context", value) for value in ("today", ["current_date"], 3, True)]
    wrong += [("question", value) for value in (None, 7, ["How many?"], {"text": "How many?"})]
    for field, value in wrong:
        asked = {"question": "How many?", field: value}
        async with http.post("/v1/runs:ask", json=asked) as reply:
            error = (await reply.json())["error"]
        assert (reply.status, error["status"]) == (400, "INVALID_ARGUMENT"), (field, value)
        (violation,) = error["details"][1]["field_violations"]
        assert violation["field"].removeprefix("request.") == field, (value, error)
    asked = {**REVENUE, "request_id": "bounded", "max_rows": "2", "max_columns": 1}
    async with http.post("/v1/runs:ask", json=asked) as reply:
        table = (await reply.json())["data"]
    assert [len(row) for row in table["rows"]] == [1, 1]
    assert len(table["columns"]) == 1
    assert table["truncated"]


def lines_of(heading: str) -> list[str]:
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert block
    return [line.replace(".venv/bin/bos", str(BOS)) for line in block[1].splitlines()]


async def started(folder: Path, line: str) -> asyncio.subprocess.Process:
    """The line in a shell without a terminal, so that it prompts for nothing."""
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": ""}
    return await asyncio.create_subprocess_exec(
        *("sh", "-c", line), cwd=folder, env=environment, stdin=PIPE, stdout=PIPE
    )


async def output(folder: Path, line: str, typed: str = "") -> str:
    printed, _ = await (await started(folder, line)).communicate(typed.encode())
    return printed.decode()


async def until_asked(folder: Path) -> str:
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = json.loads(await output(folder, f"{BOS} approvals list --json"))
            if found.get("approvals"):
                (approval,) = found["approvals"]
                return str(approval["approval_id"])


def id_behind(word: str, printed: str) -> str:
    """The last id that follows the word, which is that of the outcome."""
    return str(re.findall(rf"{word} ([0-9a-f-]{{36}})", printed)[-1])


async def test_signing_in(rest_product: RestHarness) -> None:
    folder = rest_product.folder
    lines = lines_of("Signing in")
    assert len(lines) <= 5
    register, log_in, who, ask, log_out = lines
    before = json.loads(await output(folder, f"{BOS} runs list --json"))
    for line in (register, log_in):
        # There is no terminal to prompt for it.
        assert "ada" in await output(folder, line.replace("#", "--password-stdin #"), PASSWORD)
    assert "ada" in await output(folder, who)
    assert "\nAnswer\n" in await output(folder, ask)
    assert len(json.loads(await output(folder, f"{BOS} runs list --json"))["runs"]) == 1
    await output(folder, log_out)
    assert json.loads(await output(folder, f"{BOS} runs list --json")) == before


async def test_following_up(rest_product: RestHarness) -> None:
    folder = rest_product.folder
    lines = lines_of("Following up")
    assert len(lines) <= 5
    ask, follow_up, ambiguous, reply = lines
    first = await output(folder, ask)
    conversation = id_behind("conversation", first)
    second = await output(folder, follow_up.replace("CONVERSATION_ID", conversation))
    assert id_behind("conversation", second) == conversation
    assert "\nAnswer\n" in second
    assert second.partition("\nAnswer\n")[2] != first.partition("\nAnswer\n")[2]
    asked_back = await output(folder, ambiguous)
    assert "Pumps" in asked_back
    assert "\u25b6 shift sql" in asked_back
    answered = await output(folder, reply.replace("RUN_ID", id_behind("Run", asked_back)))
    assert "gross margin of pumps, by working days" in answered.partition("\nAnswer\n")[2]


async def test_approving(rest_product: RestHarness) -> None:
    folder = rest_product.folder
    lines = lines_of("Approving")
    assert len(lines) <= 5
    ask, list_them, show, approve = lines
    asking = await started(folder, ask)
    approval_id = await until_asked(folder)
    assert approval_id in await output(folder, list_them)
    shown = await output(folder, show.replace(" ID", f" {approval_id}"))
    assert "savefig" in shown, "the very program"
    decided = await output(folder, approve.replace(" ID", f" {approval_id}"))
    assert decided.strip() == f"Request {approval_id}: approved"
    printed, _ = await asking.communicate()
    assert re.search(r"approved by [^\n]+: chart, ", printed.decode())
    assert "\nAnswer\n" in printed.decode()


class Browser:
    """Sends what a page of the console sends; keeps cookies, has no key."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def call(
        self, verb: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        sent = {"Sec-Fetch-Site": "same-origin", **headers}
        if verb != "GET":
            sent["Bos-Browser"] = "1"
        async with self._http.request(verb, path, json=body, headers=sent) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else {}


@asynccontextmanager
async def browser(harness: RestHarness) -> AsyncIterator[Browser]:
    jar = aiohttp.CookieJar(unsafe=True)  # it keeps cookies of addresses
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(harness.url, cookie_jar=jar, timeout=timeout) as http:
        yield Browser(http)


def reason(answer: dict[str, Any]) -> str:
    return str(answer["error"]["details"][0]["reason"])


async def bos(harness: RestHarness, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(harness.folder)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        BOS, *arguments, cwd=harness.folder, env=environment, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def code_of(text: str, url: str) -> str:
    found = re.search(re.escape(url) + r"/#sign-in=(\S+)", text)
    assert found, text
    return found[1]


@pytest.mark.requirement("O-01", "O-03")
async def test_browser_signs_in_by_link_and_password(rest_product: RestHarness) -> None:
    harness = rest_product
    async with browser(harness) as local, browser(harness) as grace:
        await _link(harness, local)
        run_id = await _asks_finds_and_judges(harness, local)
        await _account(grace, run_id)
        second = code_of(await bos(harness, "console"), harness.url)
        assert (await grace.call("POST", f"{SESSION}:redeem", {"code": second}))[0] == 200
        status, run = await grace.call("GET", f"/v1/runs/{run_id}")
        assert (status, run["feedback"]["note"]) == (200, "Thank you")


async def _link(harness: RestHarness, local: Browser) -> None:
    """The link that is printed at the start signs in once; nothing else does."""
    status, state = await local.call("GET", SESSION)
    assert (status, state["state"]) == (200, "SIGNED_OUT")
    assert state["sign_in"] == {"password": True, "api_key": True, "link": True}
    assert "context" not in state
    status, answer = await local.call("GET", "/v1/runs")
    assert (status, reason(answer)) == (401, "CREDENTIAL_MISSING")
    code = {"code": code_of(harness.printed, harness.url)}
    status, state = await local.call("POST", f"{SESSION}:redeem", code)
    assert (status, state["state"]) == (200, "SIGNED_IN")
    assert state["context"]["current_date"] == "2026-06-15"
    status, answer = await local.call("POST", f"{SESSION}:redeem", code)
    assert (status, reason(answer)) == (401, "LINK_INVALID")


async def _asks_finds_and_judges(harness: RestHarness, local: Browser) -> str:
    """A question, its conversation by words of it, feedback in the browser and by ``bos``."""
    request = {"question": DAYS, "conversation_id": "days"}
    status, answer = await local.call("POST", "/v1/runs:ask", request)
    assert (status, answer["status"]) == (200, "RUN_STATUS_SUCCEEDED")
    run_id = str(answer["run_id"])

    async with asyncio.timeout(60):  # memory gets the turn behind the end of the run
        while "days" not in await _conversations(local):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert "days" in await _conversations(local, "?query=JANUARY days")
    assert await _conversations(local, "?query=submarine") == []
    status, renamed = await local.call("PATCH", "/v1/conversations/days", {"title": "Spring"})
    assert (status, renamed["title"]) == (200, "Spring")
    _, said = await local.call("GET", "/v1/conversations/days/messages")
    assert [each["run_id"] for each in said["messages"]] == [run_id] * 2

    given = {"rating": "FEEDBACK_RATING_DOWN", "reasons": ["FEEDBACK_REASON_SPEED"], "note": "Hm."}
    status, stored = await local.call("PUT", f"/v1/runs/{run_id}/feedback", given)
    assert (status, {name: stored[name] for name in given}) == (200, given)
    assert "speed" in await bos(harness, "runs", "show", run_id)
    said = await bos(harness, "feedback", run_id, "up", "--note", "Thank you")
    assert said == "Feedback: up; Thank you\n"
    return run_id


async def _conversations(local: Browser, query: str = "") -> list[str]:
    _, listed = await local.call("GET", f"/v1/conversations{query}")
    return [each["conversation_id"] for each in listed["conversations"]]


async def _account(grace: Browser, run_id: str) -> None:
    """An account signs in, sees nothing of the local user's, and signs out."""
    person = {"username": "grace", "email": "grace@example.com", "password": PASSWORD}
    assert (await grace.call("POST", "/v1/users", person))[0] == 200
    credentials = {"username": "grace", "password": PASSWORD}
    status, state = await grace.call("POST", f"{SESSION}:logIn", credentials)
    assert (status, state["state"]) == (200, "SIGNED_IN")
    assert (await grace.call("GET", "/v1/users/me"))[1]["username"] == "grace"
    for verb, path, body in (
        ("GET", f"/v1/runs/{run_id}", None),
        ("PUT", f"/v1/runs/{run_id}/feedback", {"rating": "FEEDBACK_RATING_DOWN"}),
        ("DELETE", f"/v1/runs/{run_id}/feedback", None),
        ("GET", "/v1/conversations/days", None),
        ("DELETE", "/v1/conversations/days", None),
    ):
        assert (await grace.call(verb, path, body))[0] == 404, path
    assert (await grace.call("GET", "/v1/conversations?query=days"))[1]["conversations"] == []
    _, sessions = await grace.call("GET", "/v1/sessions")
    assert [each["client_name"].split(":")[0] for each in sessions["sessions"]] == ["Web console"]
    assert (await grace.call("POST", f"{SESSION}:logOut", {}))[1]["state"] == "SIGNED_OUT"
    status, answer = await grace.call("GET", "/v1/runs")
    assert (status, reason(answer)) == (401, "CREDENTIAL_MISSING")


def connection(rest_product: RestHarness) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (rest_product.folder / ".data/standalone.json").read_text()
    )
    return content


async def decided(rest_product: RestHarness, decide: str) -> tuple[Approval, OrchestratorResponse]:
    """Ask the demo question, and decide about the program once it is proposed."""
    known = connection(rest_product)
    async with BosClient(known["target"], api_key=rest_product.key) as client:
        approval, event = None, RunEvent()
        async for event in client.ask_stream(DRAWING.question, context=known["context"]):
            if event.HasField("approval_requested"):
                approval = event.approval_requested.approval
                await getattr(client, decide)(approval.approval_id)
    assert approval is not None
    return approval, event.run_finished.response


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def approved(rest_product: RestHarness) -> tuple[Approval, OrchestratorResponse]:
    return await decided(rest_product, "approve")


def monthly_revenue() -> dict[int, Decimal]:
    """Added up from the generated rows, without any of the services."""
    rows = generate(DEFAULT_TODAY)
    start, end = named_periods(DEFAULT_TODAY)["last_year"]
    days = {invoice.invoice_id: invoice.invoice_date for invoice in rows.invoices}
    months: dict[int, Decimal] = defaultdict(Decimal)
    for line in rows.invoice_lines:
        if start <= days[line.invoice_id] < end:
            months[days[line.invoice_id].month] += line.line_amount
    return months


def figure_of(response: OrchestratorResponse) -> Artefact:
    (figure,) = response.agent_results[1].files
    return figure


@pytest.mark.requirement("F-08")
async def test_what_was_shown_is_what_ran_and_its_figures_are_right(
    approved: tuple[Approval, OrchestratorResponse],
) -> None:
    approval, response = approved
    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    (action,) = approval.actions
    shown = from_value_map(action.arguments)
    ran = from_value_map(response.agent_results[1].data)
    assert ran["code"] == shown["code"]
    assert DRAWING.steps[1].agent == "code"
    assert shown["code"].endswith(DRAWING.steps[1].program)
    assert (ran["exit_code"], ran["files"]) == (0, list(DRAWING.steps[1].files))
    months = monthly_revenue()
    facts = (sum(months.values()), max(months.values()))
    assert len(months) == 12
    assert set(ran["result"].values()) == set(facts)
    assert all(mentions(response.answer, fact) for fact in facts)
    assert figure_of(response).name in response.answer


@pytest.mark.requirement("F-08")
async def test_figure_is_the_same_over_grpc_rest_and_command_line(
    rest_product: RestHarness, approved: tuple[Approval, OrchestratorResponse], tmp_path: Path
) -> None:
    _, response = approved
    figure = figure_of(response)
    async with BosClient(connection(rest_product)["target"], api_key=rest_product.key) as client:
        content = await client.download_file(response.run_id, figure.digest)
    assert content.startswith(b"\x89PNG")
    assert len(content) == figure.size_bytes
    assert figure.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"

    path = f"/v1/runs/{response.run_id}/files/{figure.digest.removeprefix('sha256:')}"
    headers = {"Authorization": f"Bearer {rest_product.key}"}
    async with (
        aiohttp.ClientSession(rest_product.url) as session,
        session.get(path, headers=headers) as reply,
    ):
        assert reply.status == 200
        assert await reply.read() == content
        assert reply.content_type == "image/png"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Content-Disposition"] == ("attachment; filename=revenue-by-month.png")
        assert "sandbox" in reply.headers["Content-Security-Policy"]

    await bos(rest_product, "runs", "files", response.run_id, "--output", str(tmp_path))
    assert (tmp_path / figure.name).read_bytes() == content


@pytest.mark.requirement("F-08")
async def test_denied_nothing_runs_and_the_rest_is_answered(rest_product: RestHarness) -> None:
    _, response = await decided(rest_product, "deny")
    assert response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    drawing = response.agent_results[1]
    assert (drawing.status, drawing.error.type) == (SKIPPED, "denied_by_user")
    assert list(drawing.files) == []


@pytest.mark.timeout(1800)
async def test_generated_calls_are_answered_as_documented(rest_product: RestHarness) -> None:
    """Comes last: what it calls with the user's key changes what there is."""
    assert SCHEMATHESIS.exists(), "make test ONLY=rest installs it"
    process = await asyncio.create_subprocess_exec(
        *(SCHEMATHESIS, "run", f"{rest_product.url}/openapi.json", "--no-color"),
        *("-H", f"Authorization: Bearer {rest_product.key}"),
        *("--checks", ",".join(CHECKS), "--phases", PHASES, "--max-examples", EXAMPLES),
        *("--generation-deterministic", "--request-timeout", "60"),
        cwd=rest_product.folder,
        stdout=PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert b"Tested:" in said
