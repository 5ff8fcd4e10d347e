"""A user uploads a CSV and an Excel file and asks about them; no other user reads them."""

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
import xlsxwriter  # type: ignore[import-untyped]

from bos.gateway.v1 import OrchestratorResponse, RunStatus
from bos.identity.v1 import IdentityServiceStub, LogInRequest, RegisterUserRequest
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_client.workspace import WorkspaceClient
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import run_bos

pytestmark = [pytest.mark.usefixtures("nothing_configured"), pytest.mark.process]

PASSWORD = "correct horse battery"
TARGETS = "What is the total target in targets.csv?"
PAYROLL = "What is the total pay in payroll.xlsx?"
ORDERS = "How many orders are there?"
ADAS = b"Region,Target\nNorth,120.50\nSouth,80.25\n"
EVES = b"Region,Target\nWest,7.00\n"


def payroll() -> bytes:
    stream = io.BytesIO()
    with xlsxwriter.Workbook(stream) as book:
        sheet = book.add_worksheet("Pay")
        for at, row in enumerate([["Name", "Pay"], ["Asha", 1000.5], ["Ravi", 2000.25]]):
            sheet.write_row(at, 0, row)
    return stream.getvalue()


def scripted(question: str, sql: str) -> Iterator[Fixture]:
    """The model plans one query, writes it, and says what it found."""
    step = {"step_id": "total", "agent": "sql", "task": question, "is_final_answer": True}
    yield fixture(
        f"plan of {question}",
        [f"### Question\n{question}"],
        schema="PlannerReply",
        json={"rationale": "x", "intent": "DATA_QA", "confidence": 0.9, "steps": [step]},
    )
    yield fixture(
        f"query of {question}",
        [f"### Task\n{question}"],
        schema="QueryDraft",
        json={"is_clear": True, "sql": sql},
    )
    yield fixture(
        f"words of {question}",
        [question],
        schema="ResultInterpretation",
        json={"answer": "It is ${found}."},
        capture={"found": r'"found": "?([0-9]+(?:\.[0-9]+)?)'},
    )


async def token_of(harness: Standalone, name: str) -> str:
    """Register an account and sign in; the access token."""
    async with grpc.aio.insecure_channel(harness.addresses["identity"]) as channel:
        identity = IdentityServiceStub(channel)
        await identity.RegisterUser(
            RegisterUserRequest(
                username=name,
                email=f"{name}@example.com",
                password=PASSWORD,
            )
        )
        signed_in = await identity.LogIn(LogInRequest(username=name, password=PASSWORD))
        return signed_in.tokens.access_token


def holding(folder: Path, content: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and content in path.read_bytes()]


async def test_answers_cite_own_files_and_are_erased_with_accounts(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, target REAL)")
        database.execute("INSERT INTO orders VALUES (1, 5.0), (2, 5.0), (3, 5.0)")
        database.commit()
    replies = [
        *scripted(TARGETS, "SELECT SUM(target) AS found FROM targets"),
        *scripted(PAYROLL, "SELECT SUM(pay) AS found FROM payroll"),
        *scripted(ORDERS, "SELECT COUNT(*) AS found FROM orders"),
    ]
    async with ScriptedModel(replies) as model:
        environment = {
            "BOS_STORE_URL": postgres_dsn,
            "BOS_DATABASE_URL": f"sqlite:///{tmp_path / 'shop.db'}",
            "BOS_DATABASE_ALLOWED_TABLES": "orders",
            "BOS_IDENTITY_ARGON2_MEMORY_KIB": "8",
            "BOS_IDENTITY_ARGON2_TIME_COST": "1",
            "BOS_IDENTITY_REGISTRATION_OPEN": "true",
            "BOS_SQL_REVIEW": "never",
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "sk-scripted-0123456789abcdef",
            "BOS_MODEL_PROVIDER": "compatible",
            "BOS_MODEL": "scripted",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        settings = StandaloneSettings.load(data_dir=tmp_path / "data", grace_s=0.1, rest=False)
        telemetry = Telemetry.for_tests("standalone")
        async with serve_all(settings, telemetry) as harness:
            await story(harness, tmp_path / "data" / "files")
    asked = telemetry.registry.get_sample_value("bos_files_queries_total", {"outcome": "ok"})
    assert asked is not None
    assert asked >= 3


async def story(harness: Standalone, folder: Path) -> None:
    """Two people upload, ask, and one of them goes."""
    ada, eve = [await token_of(harness, name) for name in ("ada", "eve")]

    async def upload(token: str, name: str, content: bytes) -> None:
        async with WorkspaceClient(harness.addresses["files"], api_key=token) as files:
            await files.upload(name, content)

    async def ask(token: str, question: str) -> OrchestratorResponse:
        async with BosClient(harness.target, api_key=token) as client:
            return await client.ask(question)

    await upload(ada, "targets.csv", ADAS)
    await upload(ada, "payroll.xlsx", payroll())
    await upload(eve, "targets.csv", EVES)

    # The files of each, under one name.
    for token, total in ((ada, "200.75"), (eve, "7.00")):
        response = await ask(token, TARGETS)
        assert response.status == RunStatus.RUN_STATUS_SUCCEEDED, response
        assert response.answer == f"It is {total}."
        assert [each.title for each in response.sources] == ["targets.csv"]

    # A file that one of them has alone.
    response = await ask(ada, PAYROLL)
    assert response.answer == "It is 3000.75."
    assert [each.title for each in response.sources] == ["payroll.xlsx / Pay"]
    response = await ask(eve, PAYROLL)
    missing = "There is no uploaded file 'payroll.xlsx'. Uploaded and readable: targets.csv."
    assert missing in response.answer
    assert "3000.75" not in str(response)

    # Questions that name no file still go to the database, which has a column of the same name.
    response = await ask(ada, ORDERS)
    assert response.answer == "It is 3."
    assert [each.title for each in response.sources] == ["orders"]

    # What an account had uploaded goes with it, and only that.
    assert holding(folder, EVES)
    done = await run_bos(
        folder.parent,
        *("users", "rm", "eve", "--yes"),
        BOS_TARGET=harness.target,
        BOS_IDENTITY_TARGET=harness.addresses["identity"],
        BOS_API_KEY=ada,
    )
    assert "deleted what they held" in done.out + done.err
    assert not holding(folder, EVES)
    assert (await ask(ada, TARGETS)).answer == "It is 200.75."
