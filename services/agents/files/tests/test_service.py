"""Workspaces as people reach them: quota, versions, isolation, crashes, audit, accounts.

Which credentials open which method of which service is shown by ``tests/isolation``.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bos.files.v1 import FileUpload, ListFilesRequest, UploadFileRequest
from bos_artefacts import open_artefacts
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import InvalidArgument, NotFound, ResourceExhausted
from bos_files.service import READER, SCHEMA, serve
from bos_files.workspaces import store as store_module
from bos_files.workspaces.store import Quota, Store
from bos_files.workspaces.workspace import Workspaces
from bos_postgres import connect, open_database
from bos_postgres.audit import By
from bos_testkit.audit import AUDITED, audit_entries, audited, sealed_trail
from bos_testkit.forked import forked_process

from .files_harness import ADA_KEY, Files

CHILD = Path(__file__).with_name("killed_writer.py")
_, PUBLIC = generate_keypair()
UPLOADED = {"origin": "upload", "tainted": False}


def guarded_auth() -> AuthSettings:
    return AuthSettings(
        static_key=ADA_KEY,
        static_key_user="ada",
        run_token_public_keys=PUBLIC,
    )


async def test_upload_download_versions_and_delete(files: Files) -> None:
    content = os.urandom(700_000)
    first = await files.upload("data.bin", content)
    assert (first.existed, first.file.version, first.file.size_bytes) == (False, 1, 700_000)
    assert (await files.upload("data.bin", content)).existed
    assert await files.download("data.bin") == content
    second = await files.upload("data.bin", b"")
    assert second.file.version == 2
    found = await files.get("data.bin")
    assert [each.version for each in found.versions] == [2, 1]
    assert await files.download("data.bin", 1) == content
    assert await files.download("data.bin") == b""
    await files.delete("data.bin")
    assert files.blobs() == []
    for gone in (files.get("data.bin"), files.download("data.bin"), files.delete("data.bin")):
        with pytest.raises(NotFound):
            await gone


@pytest.mark.requirement("R-07")
async def test_invalid_names_are_refused_everywhere(files: Files) -> None:
    name = "../a"
    calls = files.upload(name, b"x"), files.get(name), files.download(name), files.delete(name)
    for call in calls:
        with pytest.raises(InvalidArgument):
            await call
    assert files.blobs() == []


async def test_words_find_files_by_their_names(files: Files) -> None:
    await files.upload("Quarterly report.pdf", b"1")
    await files.upload("50%_off.csv", b"2")
    found = {}
    for query in ("", "REPORT quarterly", "report off", "0%_o", "0x_o"):
        response = await files.call("ListFiles", ListFilesRequest(query=query))
        found[query] = [each.name for each in response.files]
        assert response.usage.files == 2
    assert found == {
        "": ["50%_off.csv", "Quarterly report.pdf"],
        "REPORT quarterly": ["Quarterly report.pdf"],
        "report off": [],
        "0%_o": ["50%_off.csv"],
        "0x_o": [],
    }


async def test_quotas_name_the_limit_and_deleting_makes_room(start: Any) -> None:
    files: Files = await start(
        models=False, max_files_per_user=2, max_bytes_per_user=2048, max_file_bytes=2048
    )
    with pytest.raises(InvalidArgument, match="2048 bytes"):
        await files.upload("a", b"x" * 2049, piece=100)
    assert files.blobs() == []
    await files.upload("a", b"x" * 1000)
    await files.upload("b", b"x" * 1000)
    with pytest.raises(ResourceExhausted, match="2 is the most") as refused:
        await files.upload("c", b"x")
    assert refused.value.reason == "FILE_COUNT_LIMIT"
    with pytest.raises(ResourceExhausted, match="2048 bytes") as refused:
        await files.upload("b", b"y" * 1000)
    assert refused.value.reason == "FILE_BYTES_LIMIT"
    await files.delete("a")
    await files.upload("b", b"y" * 1000)
    usage = (await files.call("ListFiles", ListFilesRequest())).usage
    assert (usage.files, usage.max_files, usage.size_bytes, usage.max_bytes) == (1, 2, 2000, 2048)


async def test_uploads_at_once_do_not_outgrow_the_quota(start: Any) -> None:
    files: Files = await start(
        models=False, max_bytes_per_user=4096, max_file_bytes=2048, max_uploads=64
    )
    outcomes = await asyncio.gather(
        *(files.upload(f"f{n}", os.urandom(1000)) for n in range(10)), return_exceptions=True
    )
    kept = [each for each in outcomes if not isinstance(each, BaseException)]
    assert len(kept) == 4
    refused = [each for each in outcomes if isinstance(each, BaseException)]
    assert {each.reason for each in refused} == {"FILE_BYTES_LIMIT"}
    assert len(files.blobs()) == 4


async def test_same_content_at_once_is_one_version(start: Any) -> None:
    files: Files = await start(models=False, max_uploads=64)
    await asyncio.gather(*(files.upload("a", b"same" * 1000) for _ in range(8)))
    (found,) = await files.listed()
    assert found.version == 1
    assert len(files.blobs()) == 1


async def test_old_versions_are_dropped_beyond_the_limit(start: Any) -> None:
    files: Files = await start(models=False, max_versions=2)
    for text in (b"1", b"2", b"3"):
        await files.upload("a", text)
    assert [each.version for each in (await files.get("a")).versions] == [3, 2]
    with pytest.raises(NotFound):
        await files.download("a", 1)
    assert len(files.blobs()) == 2


async def test_an_upload_without_header_or_with_two_is_refused(files: Files) -> None:
    header = UploadFileRequest(upload=FileUpload(name="a"))
    piece = UploadFileRequest(content=b"x")
    for parts in ([piece], [], [header, piece, header]):
        with pytest.raises(InvalidArgument), translate_rpc_errors():
            await files.files.UploadFile(iter(parts), timeout=30)
    assert files.blobs() == []


async def test_an_upload_that_breaks_off_leaves_nothing(files: Files) -> None:
    sent = asyncio.Event()

    async def parts() -> AsyncIterator[UploadFileRequest]:
        yield UploadFileRequest(upload=FileUpload(name="a"))
        yield UploadFileRequest(content=b"half")
        sent.set()
        await asyncio.Event().wait()

    call = files.files.UploadFile(parts(), timeout=30)
    waiting = asyncio.ensure_future(call)
    await sent.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await files.listed() == []
    assert await files.rows("SELECT * FROM versions") == []


async def test_lists_come_in_pages(files: Files) -> None:
    for name in ("b", "a", "ä", "B"):
        await files.upload(name, b"x")
    names, token = [], ""
    while True:
        page = await files.call("ListFiles", ListFilesRequest(page_size=1, page_token=token))
        names += [each.name for each in page.files]
        token = page.next_page_token
        if not token:
            break
    assert names == ["B", "a", "b", "ä"]
    with pytest.raises(InvalidArgument):
        await files.call("ListFiles", ListFilesRequest(page_token="_w"))


async def test_users_see_their_own_files_only(files: Files, tmp_path: Path) -> None:
    for user, text in (("ada", "hers"), ("eve", "other")):
        await files.do(tool_name="write_file", inputs={"name": "a.txt", "text": text}, user=user)
    for user, text in (("ada", "hers"), ("eve", "other")):
        read = await files.do(tool_name="read_file", inputs={"name": "a.txt"}, user=user)
        assert read.data["text"] == text
    assert await files.listed() == []


async def test_the_reading_role_sees_rows_of_its_user_only(files: Files) -> None:
    await files.do(tool_name="write_file", inputs={"name": "a.txt", "text": "x"}, user="ada")
    async with connect(files.dsn, schema=SCHEMA) as session:
        for user, count in (("", 0), ("eve", 0), ("ada", 1)):
            async with session.transaction():
                await session.execute(f"SET LOCAL ROLE {READER}")
                await session.execute("SELECT set_config('bos.user_id', $1, true)", user)
                for table in ("files", "versions"):
                    assert await session.fetchval(f"SELECT count(*) FROM {table}") == count


def blobs_in(folder: Path) -> list[Path]:
    return [each for each in (folder / "workspace").rglob("*") if each.is_file()]


@pytest.fixture
async def workspaces(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Workspaces]:
    """Workspaces without a service; nothing collects behind a test's back."""
    pools = {"schema": SCHEMA, "max_size": 2}
    async with (
        open_database(postgres_dsn, **pools) as pool,
        open_database(postgres_dsn, **pools, role=READER, stateless=True) as readers,
    ):
        store = Store(pool, readers, Quota(files=9, size_bytes=10_000, versions=3))
        blobs = open_artefacts((tmp_path / "workspace").as_uri())
        yield Workspaces(store, blobs, 10_000, Telemetry.for_tests("files"))


@pytest.mark.crash
@pytest.mark.parametrize("place", ["before put", "after put"])
async def test_writer_killed_between_blob_and_row_leaves_nothing(
    place: str,
    workspaces: Workspaces,
    postgres_dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = (str(CHILD), postgres_dsn, str(tmp_path), place)
    async with forked_process(
        *program, environment=os.environ, imported=[serve.__module__]
    ) as child:
        assert await child.wait() == -signal.SIGKILL
    assert await workspaces.store.listed("ada", "", 10) == []
    assert await workspaces.store.left("ada") == 1
    assert await workspaces.collect() == 0, "a writer may still be at it"
    monkeypatch.setattr(store_module, "STORING_S", 0.0)
    assert await workspaces.collect() == 1
    assert await workspaces.store.left("ada") == 0
    assert blobs_in(tmp_path) == []
    committed = await workspaces.write("ada", "a.txt", b"again", By("ada"), **UPLOADED)
    assert await workspaces.content("ada", committed.stored) == b"again"


async def test_missing_blob_store_leaves_no_row(workspaces: Workspaces, tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    folder.rmdir()
    folder.write_text("no folder")
    with pytest.raises(Exception, match="artefact store"):
        await workspaces.write("ada", "a", b"x", By("ada"), **UPLOADED)
    assert (await workspaces.store.held("ada")).size_bytes == 0


async def test_lost_content_is_not_found(workspaces: Workspaces, tmp_path: Path) -> None:
    committed = await workspaces.write("ada", "a", b"x", By("ada"), **UPLOADED)
    for blob in blobs_in(tmp_path):
        blob.write_bytes(b"y")
    with pytest.raises(NotFound, match="lost"):
        await workspaces.content("ada", committed.stored)


async def test_erased_account_leaves_nothing(workspaces: Workspaces, tmp_path: Path) -> None:
    for user in ("ada", "eve"):
        for text in (b"1", b"2"):
            await workspaces.write(user, "a", text, By(user), **UPLOADED)
    await workspaces.store.hide_all("ada")
    assert await workspaces.store.listed("ada", "", 10) == []
    await workspaces.discard("ada", await workspaces.store.of_user("ada", 100))
    assert await workspaces.store.left("ada") == 0
    assert await workspaces.store.left("eve") == 2
    assert len(blobs_in(tmp_path)) == 2


@pytest.mark.parametrize("rpc", sorted(audited("files")))
async def test_each_deed_leaves_its_entry_and_no_content(start: Any, rpc: str) -> None:
    files: Files = await start(models=False, auth=guarded_auth())
    files.key = ADA_KEY
    await files.upload("planted.txt", b"planted text")
    if rpc.endswith("/DeleteFile"):
        await files.delete("planted.txt")
    entry = (await audit_entries(files.dsn, SCHEMA, AUDITED[rpc]))[-1]
    assert (entry["actor"], entry["actor_kind"]) == ("ada", "user")
    assert "planted" not in json.dumps(await audit_entries(files.dsn, SCHEMA))
    await sealed_trail(files.dsn, SCHEMA)
