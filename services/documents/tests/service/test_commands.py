"""`bos documents …` and its client against a running service."""

import asyncio
import json
import os
import signal
import sys
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from documents_harness import ADA_KEY, READY, TEXT, Caller, Starter

from bos_cli.main import main
from bos_client.documents import DocumentsClient
from bos_errors import InvalidArgument, NotFound
from bos_testkit.waiting import eventually

BOS = Path(sys.executable).with_name("bos")


@dataclass
class Shell:
    """A folder, and commands in it."""

    folder: Path
    documents: Caller
    key: str = ""

    @property
    def settings(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "BOS_TARGET": "127.0.0.1:1",
            "BOS_DOCUMENTS_TARGET": self.documents.address,
            "BOS_API_KEY": self.key or "unused-without-authentication",
        }

    async def bos(self, *arguments: str, typed: str = "") -> tuple[int, str, str]:
        given = ["documents", *arguments]
        run = CliRunner().invoke
        done = await asyncio.to_thread(run, main, given, input=typed, env=self.settings)
        return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def shell(tmp_path: Path, documents: Caller, monkeypatch: pytest.MonkeyPatch) -> Shell:
    folder = tmp_path / "shell"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Shell(folder, documents)


async def test_failed_file_of_a_folder_does_not_stop_the_others(shell: Shell) -> None:
    below = shell.folder / "mine" / "more"
    below.mkdir(parents=True)
    (shell.folder / "mine" / "terms.txt").write_text(TEXT)
    (shell.folder / "mine" / "empty.md").write_text("")
    (shell.folder / "mine" / "picture.png").write_text("no document")
    (below / "locked.txt").write_text("!encrypted")
    (below / "same.txt").write_text(TEXT)
    (below / "other.txt").symlink_to("/etc/hosts")

    code, out, err = await shell.bos("add", "mine", "absent.txt", "--jobs", "1")

    assert code == 1
    assert "2 files of other kinds are left out" in err
    lines = out.splitlines()
    assert lines[0] == "✘ mine/empty.md: The file is empty."
    assert lines[1].startswith("✔ mine/terms.txt: ready, 2 pages, 3 passages, 86 bytes")
    assert lines[2] == "✘ mine/more/locked.txt: Remove the password. (DOCUMENT_ENCRYPTED)"
    assert "uploaded before" in lines[3]
    assert lines[4] == "✘ absent.txt: It cannot be read: No such file or directory."
    assert lines[5] == "5 files, 3 of them failed"
    assert len(lines) == 6

    code, out, _ = await shell.bos("add", "mine/terms.txt", "--json")
    assert code == 0
    (entry,) = json.loads(out)["documents"]
    assert (entry["path"], entry["existed"]) == ("mine/terms.txt", True)
    assert entry["document"]["state"] == "DOCUMENT_STATE_READY"


async def test_document_is_listed_shown_searched_and_deleted(shell: Shell) -> None:
    dated = {"document_type": "contract", "document_date": "2026-02-28"}
    found = await shell.documents.ready(name="terms.txt", **dated)
    await shell.documents.ready("# Notes\nThe penalty was discussed.", name="notes.txt")
    failed = (await shell.documents.upload("!encrypted", name="locked.txt")).document
    await shell.documents.until_ended(failed.document_id)

    code, out, _ = await shell.bos("list")
    assert code == 0
    row = next(line for line in out.splitlines() if "terms.txt" in line).split()
    assert row[:5] == [found.document_id, "ready", "2", "86", "bytes"]
    assert "failed" in next(line for line in out.splitlines() if "locked.txt" in line)
    assert "more: bos documents list --page" in (await shell.bos("list", "--limit", "1"))[1]

    code, out, _ = await shell.bos("show", found.document_id)
    assert code == 0
    assert out.startswith(f"terms.txt\n  {found.document_id}\n  State: ready\n  Type: contract\n")
    assert "  Date: 2026-02-28\n" in out
    shown = (await shell.bos("show", failed.document_id))[1]
    assert "  Failure: Remove the password. (DOCUMENT_ENCRYPTED)\n" in shown

    code, out, _ = await shell.bos("search", "penalty percent")
    assert code == 0
    assert out.startswith("1. terms.txt, page 1, Terms\n   Penalty is two percent.\n   score ")
    assert "notes.txt" in out
    narrowed = ("--type", "contract", "--after", "2026-02-28", "--before", "2026-02-28")
    out = (await shell.bos("search", "penalty percent", *narrowed))[1]
    assert "terms.txt" in out
    assert "notes.txt" not in out
    later = await shell.bos("search", "penalty", "--after", "2026-03-01")
    assert later[:2] == (0, "nothing found in 2 documents\n")
    assert (await shell.bos("search", "penalty", "--after", "2026-02-30"))[0] == 2

    code, out, _ = await shell.bos("rm", found.document_id, typed="n\n")
    assert (code, out) == (0, "Delete terms.txt? [y/N]: n\n")
    assert (await shell.bos("rm", found.document_id))[0] == 1, (
        "without a terminal there is no confirmation"
    )
    assert len(await shell.documents.documents()) == 3
    code, out, err = await shell.bos("rm", "--yes", "unknown", found.document_id)
    assert (code, out) == (2, "Deleted terms.txt.\n")
    assert err.startswith("Error: ")
    assert len(await shell.documents.documents()) == 2


@pytest.mark.process
async def test_interrupt_leaves_uploaded_documents_to_be_read(shell: Shell) -> None:
    parser = shell.documents.engines.parser
    parser.held = asyncio.Event()
    (shell.folder / "terms.txt").write_text(TEXT)
    pipe = asyncio.subprocess.PIPE
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(BOS, "documents", "add", "terms.txt"),
        env={**kept, **shell.settings},
        stdout=pipe,
        stderr=pipe,
    )
    await eventually(lambda: bool(parser.read))
    (found,) = await shell.documents.documents()

    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert (process.returncode, out) == (130, b"")
    assert b"1 of 1 files not ended. Uploaded ones go on being read" in err
    parser.held.set()
    assert (await shell.documents.until_ended(found.document_id)).state == READY


async def test_what_holds_for_all_files_is_said_once(
    shell: Shell, start: Starter, guarded: Caller
) -> None:
    for number in range(3):
        (shell.folder / f"{number}.txt").write_text(f"text {number}")
    code, _, err = await Shell(shell.folder, guarded, "wrong").bos("add", ".")
    assert (code, err.count("Error:")) == (2, 1)
    guarded.address = "127.0.0.1:1"
    code, _, err = await Shell(shell.folder, guarded, ADA_KEY).bos("add", ".")
    assert (code, err.count("Error:")) == (3, 1)
    (shell.folder / "empty").mkdir()
    assert (await shell.bos("add", "empty"))[0] == 2


async def test_upload_that_is_given_up_leaves_nothing(documents: Caller, tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_bytes(b"x" * 4_000_000)
    async with DocumentsClient(documents.address) as client:
        seen: list[int] = []

        def sent(count: int) -> None:
            seen.append(count)
            task.cancel()

        task = asyncio.create_task(client.upload(tmp_path / "large.txt", sent=sent))
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen[0] < 4_000_000
    broken_off = partial(documents.metric, "bos_documents_uploads_total", outcome="broken_off")
    await eventually(lambda: broken_off() == 1)
    assert await documents.documents() == []
    assert documents.files() == []


async def test_upload_that_is_refused_while_it_is_sent_says_why(
    start: Starter, tmp_path: Path
) -> None:
    documents = await start(max_document_bytes=300_000)
    (tmp_path / "large.txt").write_bytes(b"x" * 20_000_000)
    (tmp_path / "small.txt").write_bytes(b"x" * 300_000)
    async with DocumentsClient(documents.address) as client:
        with pytest.raises(InvalidArgument, match="at most 300000 bytes") as refused:
            await client.upload(tmp_path / "large.txt")
        assert refused.value.reason == "DOCUMENT_TOO_LARGE"
        assert not (await client.upload(tmp_path / "small.txt")).existed


async def test_uploads_beyond_the_limit_wait_for_their_turn(start: Starter, tmp_path: Path) -> None:
    documents = await start(max_uploads_per_user=1)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"text {number}")
    async with DocumentsClient(documents.address) as client, asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(client.upload(tmp_path / f"{number}.txt"))
    assert len(await documents.documents()) == 4


async def test_watch_continues_after_a_stream_ends_early(start: Starter) -> None:
    documents = await start(watch_timeout_s=0.5)
    documents.engines.parser.held = asyncio.Event()
    uploaded = (await documents.upload()).document
    states: list[Any] = []
    async with DocumentsClient(documents.address) as client:

        def ended_streams() -> bool:
            labels = {
                "service": "documents",
                "grpc_service": "bos.documents.v1.DocumentsService",
                "grpc_method": "WatchDocument",
                "grpc_code": "OK",
            }
            return documents.metric("bos_rpc_server_handled_total", **labels) > 0

        async def follow() -> None:
            async with aclosing(client.watch(uploaded.document_id)) as watched:
                async for each in watched:
                    states.append(each.state)

        following = asyncio.create_task(follow())
        await eventually(ended_streams)
        documents.engines.parser.held.set()
        await following
        with pytest.raises(NotFound):
            await anext(client.watch("unknown"))
    assert states[-1] == READY


async def test_pipe_is_no_file_to_upload(documents: Caller, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    async with DocumentsClient(documents.address) as client:
        for name in ("pipe.txt", "."):
            with pytest.raises(InvalidArgument) as refused:
                await client.upload(tmp_path / name)
            assert refused.value.reason == "FILE_UNREADABLE"
