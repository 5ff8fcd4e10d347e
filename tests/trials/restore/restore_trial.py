"""The page on backups, followed: everything is backed up, deleted, and restored on another server.

Every service runs, and the commands are those of the page. ``make trial NAME=restore`` starts it.
"""

import asyncio
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from bos.documents.v1 import DOCUMENT_STATE_READY
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, RUN_STATUS_WAITING_FOR_APPROVAL, Approval, Run
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_client.documents import DocumentsClient
from bos_client.memory import MemoryClient
from bos_client.workspace import WorkspaceClient
from bos_demo.dialogues import load_approved
from bos_postgres import EmbeddedPostgres, with_database
from bos_postgres._installation import find_installation
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[3] / "docs/operations/backups.md"
AGENTS = ("code", "files", "rag", "sql")
KEYS = ("identity.key", "secrets.key")
PASSAGE = "The keys of the pump room hang behind the blue door."
NOTE = b"Ask Meera about the blue door."
CONVERSATION = "about-figures"


def blocks() -> list[str]:
    """Commands of the page: back up, make an empty database, restore."""
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@dataclass
class Site:
    """A PostgreSQL server of its own, and the data folder of a standalone beside it."""

    server: EmbeddedPostgres
    data: Path
    password: str

    @property
    def store_url(self) -> str:
        """As the services' role, which is no administrator."""
        admin = with_database(self.server.dsn(), "bos")
        host = admin.rpartition("@")[2]
        return f"postgresql://bos:{quote(self.password)}@{host}"

    def run(self, commands: str, backup: Path) -> None:
        """Run a block of the page in a shell."""
        programs = find_installation().program("pg_dump").parent
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "STORE_URL": self.store_url,
            "ADMIN_URL": self.server.dsn(),
            "PASSWORD": self.password,
            "BACKUP": str(backup),
            "ARTEFACTS": str(self.data / "artefacts"),
            "DOCUMENTS": str(self.data / "documents/files"),
            "WORKSPACES": str(self.data / "files"),
        }
        script = ("sh", "-euc", commands)
        done = subprocess.run(script, env=environment, check=False, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Standalone]:
        """All services."""
        settings = StandaloneSettings.load(
            data_dir=self.data, grace_s=0.1, rest=False, store_url=SecretStr(self.store_url)
        )
        agents = {name: f"bos_{name}.service:serve" for name in AGENTS}
        telemetry = Telemetry.for_tests("standalone")
        async with serve_all(settings, telemetry, agents=agents) as standalone:
            yield standalone


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A new server without anything, wiped with the data afterwards."""
    server = EmbeddedPostgres(folder / "server", durable=False)
    try:
        with server:
            yield Site(server, folder / "data", secrets.token_urlsafe(16))
    finally:
        server.delete_data()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Clients:
    """Clients of the local user."""

    bos: BosClient
    memory: MemoryClient
    documents: DocumentsClient
    workspace: WorkspaceClient
    context: Mapping[str, str]

    async def asked(self, conversation: str = "") -> tuple[str, Approval]:
        """A run whose program is to be approved."""
        (question,) = load_approved()
        options = {"conversation_id": conversation} if conversation else {}
        asking = self.bos.ask_stream(question.question, context=dict(self.context), **options)
        async with aclosing(asking) as events:
            async for event in events:
                if event.HasField("approval_requested"):
                    return event.run_id, event.approval_requested.approval
        raise AssertionError("nothing was to be approved")

    async def ended(self, run_id: str) -> Run:
        """The run, once it has ended."""
        async for _ in self.bos.watch(run_id):
            pass
        return await self.bos.get_run(run_id)

    async def figure(self, run: Run) -> bytes:
        """The file that the run's program made."""
        (file,) = [file for result in run.response.agent_results for file in result.files]
        return await self.bos.download_file(run.run_id, file.digest)

    async def passages(self) -> list[str]:
        """What a search for the passage finds."""
        found = await self.documents.search("Where are the keys of the pump room?")
        return [each.chunk.text for each in found.passages]


@asynccontextmanager
async def clients(standalone: Standalone) -> AsyncIterator[Clients]:
    """Clients of a standalone."""
    async with AsyncExitStack() as stack:
        enter, key = stack.enter_async_context, standalone.api_key
        yield Clients(
            await enter(BosClient(standalone.target, api_key=key)),
            await enter(MemoryClient(standalone.addresses["memory"], api_key=key)),
            await enter(DocumentsClient(standalone.addresses["documents"], api_key=key)),
            await enter(WorkspaceClient(standalone.addresses["files"], api_key=key)),
            standalone.context,
        )


async def upload(documents: DocumentsClient, path: Path) -> str:
    """The id of a document that can be searched."""
    await asyncio.to_thread(path.write_text, PASSAGE)
    document_id = (await documents.upload(path)).document.document_id
    states = [each.state async for each in documents.watch(document_id)]
    assert states[-1] == DOCUMENT_STATE_READY
    return document_id


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the developer's, and people who have time."""
    for name in list(os.environ):
        if name.startswith(("BOS_", "OPENAI_", "AZURE_OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("BOS_STANDALONE_DEMO_DOCUMENTS", "false")
    monkeypatch.setenv("BOS_STANDALONE_DEMO_MAILBOX", "false")
    monkeypatch.setenv("BOS_GATEWAY_APPROVAL_TIMEOUT_S", "86400")
    monkeypatch.setenv("BOS_DOCUMENTS_CHECK_INTERVAL_S", "60")
    monkeypatch.chdir(tmp_path)


@pytest.mark.timeout(900)
async def test_everything_is_back_after_a_restore_and_a_run_that_waits_for_approval_goes_on(
    tmp_path: Path,
) -> None:
    back_up, empty_database, restore = blocks()
    backup, vault = tmp_path / "backup", tmp_path / "vault"
    backup.mkdir()
    vault.mkdir()
    with site(tmp_path / "first") as first:
        first.run(empty_database, backup)
        async with first.running() as standalone, clients(standalone) as of:
            done_id, approval = await of.asked(CONVERSATION)
            await of.bos.approve(approval.approval_id)
            done = await of.ended(done_id)
            assert done.status == RUN_STATUS_SUCCEEDED
            figure = await of.figure(done)
            waiting_id, waiting = await of.asked()
            document_id = await upload(of.documents, tmp_path / "keys.txt")
            await of.workspace.upload("note.txt", NOTE)
            await until(lambda: remembers(of))
            messages = await of.memory.messages(CONVERSATION)
            first.run(back_up, backup)
        for key in KEYS:
            shutil.copy2(first.data / key, vault / key)
    assert not first.data.exists()
    with site(tmp_path / "second") as second:
        second.run(empty_database, backup)
        second.run(restore, backup)
        for key in KEYS:
            shutil.copy2(vault / key, second.data / key)
        async with second.running() as standalone, clients(standalone) as of:
            assert await of.bos.get_run(done_id) == done
            assert await of.figure(done) == figure
            assert await of.memory.messages(CONVERSATION) == messages
            assert (await of.workspace.download("note.txt"))[1] == NOTE
            assert (await of.documents.document(document_id)).state == DOCUMENT_STATE_READY
            await until(lambda: finds(of))
            run = await of.bos.get_run(waiting_id)
            assert run.status == RUN_STATUS_WAITING_FOR_APPROVAL
            await of.bos.approve(waiting.approval_id)
            run = await of.ended(waiting_id)
            assert run.status == RUN_STATUS_SUCCEEDED
            assert await of.figure(run)
            # And what is new works as ever.
            new_id, _ = await of.asked()
            assert new_id not in {done_id, waiting_id}


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the services alone know."""
    async with asyncio.timeout(120):
        while not await condition():  # noqa: ASYNC110  Nothing sets an event.
            await asyncio.sleep(0.05)


async def remembers(of: Clients) -> bool:
    """Whether memory has the turn, which it is sent once the run has ended."""
    return bool((await of.memory.conversations()).conversations)


async def finds(of: Clients) -> bool:
    """Whether the index is filled again."""
    return PASSAGE in await of.passages()
