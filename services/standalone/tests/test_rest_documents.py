"""Documents over REST, end to end: `POST /upload` of each format, then its passages are found."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bos_chassis.telemetry import Telemetry
from bos_demo.documents.rendering import render
from bos_demo.documents.sources import load_sources
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

pytestmark = [pytest.mark.rest, pytest.mark.usefixtures("nothing_configured")]

FORMATS = ("pdf", "docx", "xlsx", "csv", "md", "html", "pptx", "eml")
TEXT = ("depot.txt", b"The depot at Hubballi accepts goods from 06:00 to 14:00, also on Saturdays.")


class Rest:
    """A person who uploads and searches over REST."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def json(self, method: str, path: str, **more: Any) -> Any:
        async with self._http.request(method, path, **more) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return answer

    async def upload(self, name: str, content: bytes) -> str:
        form = aiohttp.FormData(quote_fields=False)  # names as they are, as browsers send them
        form.add_field("file", content, filename=name)
        answer = await self.json("POST", "/upload", data=form)
        return str(answer["document"]["document_id"])

    async def ready(self, document_id: str) -> dict[str, Any]:
        """The document once it can be searched."""
        async with asyncio.timeout(100):
            while True:
                document = await self.json("GET", f"/v1/documents/{document_id}")
                if document["state"] in ("DOCUMENT_STATE_READY", "DOCUMENT_STATE_FAILED"):
                    assert document["state"] == "DOCUMENT_STATE_READY", document
                    return dict(document)
                await asyncio.sleep(0.1)

    async def search(self, query: str) -> list[dict[str, Any]]:
        answer = await self.json("POST", "/v1/documents:search", json={"query": query, "limit": 3})
        return list(answer.get("passages", []))


@pytest.fixture
async def rest(tmp_path: Path, started_before: Callable[[Path], Path]) -> AsyncIterator[Rest]:
    settings = StandaloneSettings.load(data_dir=started_before(tmp_path / "data"), grace_s=0.1)
    async with (
        serve_all(settings, Telemetry.for_tests("standalone")) as standalone,
        aiohttp.ClientSession(
            f"{standalone.addresses['rest']}/",
            headers={"Authorization": f"Bearer {standalone.api_key}"},
        ) as http,
    ):
        yield Rest(http)


@pytest.mark.requirement("A-21", "G-01", "G-02")
async def test_document_of_each_format_is_uploaded_read_and_found(rest: Rest) -> None:
    sources = {
        kind: min((s for s in load_sources() if s.format == kind), key=lambda s: len(s.body))
        for kind in FORMATS
    }
    files = [*((source.name, render(source)) for source in sources.values()), TEXT]
    ids = [await rest.upload(name, content) for name, content in files]
    documents = await asyncio.gather(*(rest.ready(each) for each in ids))
    assert [each["name"] for each in documents] == [name for name, _ in files]
    assert all(each["description"] and each["chunk_count"] for each in documents)

    for source, document_id in zip(sources.values(), ids, strict=False):
        query = f"{source.title} {source.day.year}"
        answer = await rest.json(
            "POST",
            "/v1/documents:search",
            json={"query": query, "filter": {"document_ids": [document_id]}},
        )
        assert answer["passages"], source.name
    (best, *_) = await rest.search("When is the depot at Hubballi open?")
    assert best["chunk"]["text"] == TEXT[1].decode()

    await rest.json("DELETE", f"/v1/documents/{ids[-1]}")
    found = await rest.search("When is the depot at Hubballi open?")
    assert TEXT[1].decode() not in [each["chunk"]["text"] for each in found]
