"""Blobs in a folder, and in a small server that speaks enough of S3."""

import asyncio
import errno
import hashlib
import io
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4
from xml.sax.saxutils import escape

import pytest
from aiohttp import web

from bos_artefacts import (
    Artefact,
    ArtefactDamaged,
    ArtefactMissing,
    ArtefactTooLarge,
    ObjectArtefacts,
    Owner,
    open_artefacts,
)
from bos_errors import ConfigurationError, InvalidArgument, Unavailable
from bos_testkit.waiting import eventually

CONTENT = b"rows" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class SmallS3:
    """PUT, GET, ListObjectsV2 and DeleteObjects of one bucket; signatures are not checked."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.signed = True

    async def handle(self, request: web.Request) -> web.Response:
        self.signed = self.signed and "Authorization" in request.headers
        key = request.path.removeprefix("/bucket").lstrip("/")
        if request.method == "PUT":
            self.objects[key] = await request.read()
            return web.Response(headers={"ETag": '"1"'})
        if request.method == "POST" and "delete" in request.query:
            text = await request.text()
            keys = [part.split("</Key>")[0] for part in text.split("<Key>")[1:]]
            gone = "".join(f"<Deleted><Key>{each}</Key></Deleted>" for each in keys)
            for each in keys:
                self.objects.pop(each, None)
            return web.Response(text=f"<DeleteResult>{gone}</DeleteResult>")
        if not key:
            prefix = request.query.get("prefix", "")
            found = "".join(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(body)}</Size><ETag>1</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for name, body in sorted(self.objects.items())
                if name.startswith(prefix)
            )
            return web.Response(
                text=f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
            )
        if key not in self.objects:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return web.Response(body=self.objects[key], headers=headers)


@asynccontextmanager
async def small_s3(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallS3]:
    server = SmallS3()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "eu-central-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture(params=["folder", "s3"])
async def artefacts(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ObjectArtefacts]:
    if request.param == "folder":
        yield open_artefacts(f"file://{tmp_path}/a%20folder", max_blob_bytes=10_000)
        return
    async with small_s3(monkeypatch) as server:
        yield open_artefacts("s3://bucket/some/prefix", max_blob_bytes=10_000)
        assert server.signed
        assert all(key.startswith("some/prefix/") for key in server.objects)


@pytest.fixture
def owner() -> Owner:
    return Owner("../../etc/passwd", uuid4())


async def test_blobs_are_readable_by_their_owner_alone(
    artefacts: ObjectArtefacts, owner: Owner
) -> None:
    artefact = await artefacts.put(owner, CONTENT)
    assert (artefact.digest, artefact.size_bytes) == (DIGEST, len(CONTENT))
    assert await artefacts.put(owner, CONTENT) == artefact
    assert await artefacts.get(owner, DIGEST) == CONTENT
    for other in (Owner(owner.user_id, uuid4()), Owner("another", owner.run_id)):
        with pytest.raises(ArtefactMissing):
            await artefacts.get(other, DIGEST)


async def test_a_run_is_deleted_whole_and_alone(artefacts: ObjectArtefacts, owner: Owner) -> None:
    other = Owner(owner.user_id, uuid4())
    await artefacts.put(owner, CONTENT)
    await artefacts.put(owner, b"second")
    await artefacts.put(other, CONTENT)
    assert await artefacts.delete(owner) == 2
    assert await artefacts.delete(owner) == 0
    with pytest.raises(ArtefactMissing):
        await artefacts.get(owner, DIGEST)
    assert await artefacts.get(other, DIGEST) == CONTENT


async def test_a_blob_may_be_as_large_as_the_bound_and_no_larger(
    artefacts: ObjectArtefacts, owner: Owner
) -> None:
    await artefacts.put(owner, bytes(10_000))
    with pytest.raises(ArtefactTooLarge, match="10001"):
        await artefacts.put(owner, bytes(10_001))


@pytest.mark.parametrize("digest", ["../x", "a" * 63, "A" * 64, "", f"{'a' * 64}/..", "%2e" * 21])
async def test_only_a_digest_names_a_blob(
    artefacts: ObjectArtefacts, owner: Owner, digest: str
) -> None:
    with pytest.raises(InvalidArgument, match="digest"):
        await artefacts.get(owner, digest)


def test_no_user_id_leads_out_of_its_own_prefix() -> None:
    run = uuid4()
    prefixes = {Owner(user, run).prefix for user in ("..", "../..", "a/b", "a", "", "ü", "\0")}
    assert len(prefixes) == 7
    assert all(len(p.split("/")) == 2 and len(p.split("/")[0]) == 64 for p in prefixes)


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT[:-1] + b"X", bytes(20_000)])
async def test_damaged_and_missing_blobs_are_distinguished(
    tmp_path: Path, owner: Owner, content: bytes
) -> None:
    artefacts = open_artefacts(tmp_path.as_uri(), max_blob_bytes=10_000)
    await artefacts.put(owner, CONTENT)
    (tmp_path / owner.key(DIGEST)).write_bytes(content)
    with pytest.raises(ArtefactDamaged):
        await artefacts.get(owner, DIGEST)
    with pytest.raises(ArtefactDamaged):
        await artefacts.fetch(owner, DIGEST, io.BytesIO())
    await artefacts.put(owner, CONTENT)
    assert await artefacts.get(owner, DIGEST) == CONTENT


async def test_a_killed_writer_leaves_whole_blobs_or_none(tmp_path: Path, owner: Owner) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from uuid import UUID\n"
        "from bos_artefacts import Owner, open_artefacts\n"
        "async def main():\n"
        "    store = open_artefacts(sys.argv[1])\n"
        "    while True:\n"
        "        await store.put(Owner('u', UUID(sys.argv[2])), os.urandom(4_000_000))\n"
        "asyncio.run(main())\n"
    )
    owner = Owner("u", owner.run_id)
    folder = tmp_path / owner.prefix
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, tmp_path.as_uri(), str(owner.run_id)
    )
    await eventually(lambda: folder.is_dir() and len(list(folder.iterdir())) >= 3)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    artefacts = open_artefacts(tmp_path.as_uri())
    whole = [path.name for path in folder.iterdir() if len(path.name) == 64]
    assert len(whole) >= 2
    for digest in whole:
        assert hashlib.sha256(await artefacts.get(owner, digest)).hexdigest() == digest
    (folder / f"{DIGEST}#1").write_bytes(b"what a writer killed half-way leaves")
    await artefacts.delete(owner)
    assert not folder.exists()


async def test_a_blob_and_its_folders_are_on_disk_before_it_is_returned(
    tmp_path: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    sync, rename = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        done.append(("sync", os.fstat(descriptor).st_ino))

    def replace(source: Path, target: Path) -> None:
        rename(source, target)
        done.append(("name", os.stat(target).st_ino))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    await open_artefacts(tmp_path.as_uri()).put(owner, CONTENT)
    stored = tmp_path / owner.key(DIGEST)
    blob, folder = stored.stat().st_ino, stored.parent.stat().st_ino
    assert done[-3:] == [("sync", blob), ("name", blob), ("sync", folder)]
    made = [tmp_path, *list(stored.parents)[1 : stored.parents.index(tmp_path)]]
    assert {("sync", each.stat().st_ino) for each in made} <= set(done[:-3])


async def test_a_full_disk_leaves_no_file_of_a_blob(
    tmp_path: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    artefacts = open_artefacts(tmp_path.as_uri())
    await artefacts.put(owner, b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable):
        await artefacts.put(owner, CONTENT)
    with pytest.raises(Unavailable):
        await artefacts.put_file(owner, io.BytesIO(CONTENT), Artefact(DIGEST, len(CONTENT)))
    assert [path.read_bytes() for path in (tmp_path / owner.prefix).iterdir()] == [b"before"]


async def test_a_store_that_is_away_is_unavailable(tmp_path: Path, owner: Owner) -> None:
    root = tmp_path / "root"
    artefacts = open_artefacts(root.as_uri())
    root.rmdir()
    root.write_text("a file where the folder was")
    with pytest.raises(Unavailable):
        await artefacts.put(owner, CONTENT)
    with pytest.raises((Unavailable, ArtefactMissing)):
        await artefacts.get(owner, DIGEST)


@pytest.mark.parametrize(
    "url", ["", "folder", "/folder", "file://host/folder", "file:///", "s3://", "http://x/y"]
)
def test_a_url_of_no_store_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="file:///folder"):
        open_artefacts(url)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        open_artefacts((tmp_path / "file" / "folder").as_uri())


async def test_files_are_copied_from_their_start_and_fetched_whole(
    artefacts: ObjectArtefacts, owner: Owner
) -> None:
    source, into = io.BytesIO(CONTENT), io.BytesIO()
    source.read(100)
    for _ in range(2):
        await artefacts.put_file(owner, source, Artefact(DIGEST, len(CONTENT)))
    assert await artefacts.get(owner, DIGEST) == CONTENT
    assert await artefacts.fetch(owner, DIGEST, into) == len(CONTENT)
    assert into.getvalue() == CONTENT
    with pytest.raises(ArtefactMissing):
        await artefacts.fetch(Owner("another", owner.run_id), DIGEST, io.BytesIO())
    with pytest.raises(ArtefactTooLarge, match="10001"):
        await artefacts.put_file(owner, source, Artefact(DIGEST, 10_001))
    with pytest.raises(InvalidArgument, match="digest"):
        await artefacts.put_file(owner, source, Artefact("../x", 1))
