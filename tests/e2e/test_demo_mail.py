"""Questions over the sample mailbox, asked of the assembled product; mails by real servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio

from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_client.user_connections import ConnectionClient
from bos_demo.company import DEFAULT_TODAY, load_postgres
from bos_demo.expectations import expected_facts
from bos_demo.mailbox.letters import OWNER, load_letters
from bos_demo.questions import MailStep, load_questions
from bos_postgres import create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.runs import SeenRun

from .demo_checks import assert_answered, assert_states

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from bos_demo.questions import Question
    from bos_standalone.service import Standalone
    from bos_testkit.postgres import PostgresServer

    Company = asyncpg.Connection[asyncpg.Record]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

QUESTIONS = load_questions("mail")
BY_ID = {question.id: question for question in QUESTIONS}
AGENTS = {name: f"bos_{name}.service:serve" for name in ("sql", "mail")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Standalone]:
    data = started_before(tmp_path_factory.mktemp("data"))
    settings = StandaloneSettings.load(data_dir=data, rest=False)
    telemetry = Telemetry.for_tests("standalone")
    async with serve_all(settings, telemetry, agents=AGENTS) as standalone:
        assert {question.question for question in QUESTIONS} <= set(standalone.questions)
        yield standalone


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(postgres_server: PostgresServer) -> AsyncIterator[Company]:
    """A connection to a company of our own, for the reference queries."""
    dsn = await create_database(postgres_server.dsn(), "reference_company_of_mail")
    await load_postgres(dsn)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "company"})
    yield connection
    await connection.close()


async def asked(product: Standalone, question: Question) -> tuple[SeenRun, list[str]]:
    """The run of a question, whose mails are approved; and the subjects that were approved."""
    approved: list[str] = []
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(90):
        events = []
        async for event in bos.ask_stream(question.question, context=product.context, trace=True):
            events.append(event)
            if event.HasField("approval_requested"):
                (action,) = event.approval_requested.approval.actions
                shown = from_value_map(action.arguments)
                assert shown["sender"] == OWNER
                approved.append(str(shown["subject"]))
                await bos.approve(event.approval_requested.approval.approval_id)
    return SeenRun(events), approved


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
@pytest.mark.requirement("T-08")
async def test_mailbox_is_searched_read_and_written_as_asked(
    question: Question, product: Standalone, company: Company
) -> None:
    run, approved = await asked(product, question)

    assert_answered(run.response, question)
    assert_states(run.response, await expected_facts(company, question, DEFAULT_TODAY))
    written = [step for step in question.steps if isinstance(step, MailStep) and step.approved]
    assert approved == [step.writes.subject for step in written if step.writes]
    for step in question.steps:
        result = run.results[step.id]
        if isinstance(step, MailStep) and not step.approved:
            assert all(words in str(from_value_map(result.data)) for words in step.reads)


async def test_sent_mail_is_in_both_mailboxes(product: Standalone, company: Company) -> None:
    question = BY_ID["mail-best-customer"]
    await asked(product, question)
    name, revenue = await expected_facts(company, question, DEFAULT_TODAY)
    for folder in ("sent", "unread"):
        found = await listed(product, folder)
        assert any(each["subject"] == "Best customer of last quarter" for each in found), folder
        assert any(name in each["snippet"] for each in found), (folder, revenue)


async def test_orders_in_a_mail_are_data(product: Standalone) -> None:
    before = await listed(product, "sent")
    run, approved = await asked(product, BY_ID["mail-hostile"])

    assert approved == []
    assert [step.agent for step in run.plan.steps] == ["mail"]
    assert await listed(product, "sent") == before
    assert any(each["subject"] == "New bank details" for each in await listed(product, "unread"))
    assert "archive@mail-backup.example" not in run.response.answer


async def test_mailbox_that_the_user_connected_is_left_alone(
    clean_environment: None, tmp_path: Path
) -> None:
    settings = StandaloneSettings.load(data_dir=tmp_path, rest=False)
    own = {"address": "me@example.com", "user": "me", "imap_host": "i.example", "smtp_host": "s"}
    async with (
        serve_all(settings, Telemetry.for_tests("standalone"), agents=AGENTS) as first,
        ConnectionClient(first.addresses["identity"], api_key=first.api_key) as client,
    ):
        (sample,) = await client.connections()
        assert sample.fields["address"] == OWNER
        await client.connect("mail.imap", "own-password", own, "Mine")
    async with (
        serve_all(settings, Telemetry.for_tests("standalone"), agents=AGENTS) as second,
        ConnectionClient(second.addresses["identity"], api_key=second.api_key) as client,
    ):
        (kept,) = await client.connections()
        assert (kept.label, dict(kept.fields)) == ("Mine", own)
        assert not {question.question for question in QUESTIONS} & set(second.questions)


async def test_without_the_setting_no_mailbox_is_connected(
    clean_environment: None, tmp_path: Path
) -> None:
    with_it = StandaloneSettings.load(data_dir=tmp_path, rest=False)
    without = StandaloneSettings.load(data_dir=tmp_path, rest=False, demo_mailbox=False)
    async with serve_all(with_it, Telemetry.for_tests("standalone"), agents=AGENTS):
        pass
    async with (
        serve_all(without, Telemetry.for_tests("standalone"), agents=AGENTS) as standalone,
        ConnectionClient(standalone.addresses["identity"], api_key=standalone.api_key) as client,
    ):
        assert list(await client.connections()) == []
        assert not {question.question for question in QUESTIONS} & set(standalone.questions)


async def listed(product: Standalone, folder: str) -> list[dict[str, str]]:
    """Mails of a folder as the mail agent lists them."""
    run, _ = await asked(product, BY_ID[f"mail-{folder}"])
    (result,) = run.results.values()
    found: list[dict[str, str]] = from_value_map(result.data)["messages"]
    return found


async def test_sample_mails_are_enough_and_of_every_kind() -> None:
    letters = load_letters()
    assert len(letters) >= 16
    assert {each.folder for each in letters} == {"INBOX", "Sent", "Drafts"}
    assert any(each.attachment for each in letters)
    assert any(not each.subject.isascii() for each in letters)
    assert any(each.answers for each in letters)
