"""Demo questions whose results become files or that ask an uploaded one, and the workspace."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import pypdfium2
import pytest
import pytest_asyncio
from click.testing import CliRunner

from bos_chassis.telemetry import Telemetry
from bos_cli.evaluation.grading import grade
from bos_cli.evaluation.outcomes import outcome_of
from bos_cli.evaluation.questions import read_set
from bos_cli.main import main
from bos_client import BosClient
from bos_client.text import files_of
from bos_client.workspace import WorkspaceClient
from bos_demo.questions import FilesStep, Question, load_questions
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings

from .demo_checks import assert_answered, reaching

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTIONS = load_questions("files")
UPLOADS = load_questions("uploads")
AGENTS = {name: f"bos_{name}.service:serve" for name in ("sql", "computation", "files")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Standalone]:
    data = started_before(tmp_path_factory.mktemp("data"))
    # Without the rag agent no document is loaded, but the file of the workspace is there.
    settings = StandaloneSettings.load(data_dir=data, demo_documents=True)
    telemetry = Telemetry.for_tests("standalone")
    async with serve_all(settings, telemetry, agents=AGENTS) as standalone:
        asked = {question.question for question in (*QUESTIONS, *UPLOADS)}
        assert asked <= set(standalone.questions)
        yield standalone


@pytest.mark.parametrize("question", reaching(QUESTIONS), ids=lambda each: each.id)
@pytest.mark.requirement("J-01", "J-03", "J-05", "C-19")
async def test_result_becomes_the_file_that_was_asked_for(
    question: Question, product: Standalone
) -> None:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(60):
        response = await bos.ask(question.question, context=product.context)
        assert_answered(response, question)
        wanted = [step.file for step in question.steps if isinstance(step, FilesStep) and step.file]
        listed = {file.name: file for file in files_of(response)}
        assert list(listed) == wanted
        content = b""
        for name in wanted:
            content = await bos.download_file(response.run_id, listed[name].digest)
            async with WorkspaceClient(
                product.addresses["files"], api_key=product.api_key
            ) as workspace:
                kept, same = await workspace.download(name)
            assert same == content
            assert kept.run_id == response.run_id
            assert name in response.answer
    # Spaces of a PDF are distances, which readers guess at.
    said = "".join((text_of(content) or response.answer).split())
    assert [text for text in question.holds if "".join(text.split()) not in said] == []


@pytest.mark.parametrize("question", UPLOADS, ids=lambda each: each.id)
async def test_uploaded_file_is_queried_as_a_table(question: Question, product: Standalone) -> None:
    """The set has the rows of independent queries of the database, where the same prices are."""
    found = read_set(Path(str(files("bos_demo") / "evaluation.yaml")))
    (expected,) = [each.expect for each in found.questions if each.id == question.id]
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(60):
        response = await bos.ask(question.question, context=product.context)
        run = await bos.get_run(response.run_id)
    assert_answered(response, question)
    assert expected.rows
    assert expected.mentions
    assert expected.cites == ["spares-2026.csv"]
    assert [each for each in grade(expected, outcome_of(run)) if not each.passed] == []
    assert [each.title for each in response.sources] == ["spares-2026.csv"]
    (result,) = response.agent_results
    assert result.tainted


async def test_workspace_is_offered_over_rest(product: Standalone) -> None:
    headers = {"Authorization": f"Bearer {product.api_key}"}
    form = aiohttp.FormData()
    form.add_field("file", b"<script>alert(1)</script>", filename="page.html")
    async with aiohttp.ClientSession(product.rest_url, headers=headers) as http:
        async with http.post("/v1/files", data=form) as response:
            uploaded: Any = await response.json()
            assert response.status == 200, uploaded
            assert uploaded["file"]["name"] == "page.html"
        async with http.get("/v1/files") as response:
            assert "page.html" in [file["name"] for file in (await response.json())["files"]]
        async with http.get("/v1/files/page.html") as response:
            assert await response.read() == b"<script>alert(1)</script>"
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert response.headers["Content-Disposition"].startswith("attachment")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        async with http.get("/v1/files/page.html/versions") as response:
            assert [each["version"] for each in (await response.json())["versions"]] == [1]
        async with http.delete("/v1/files/page.html") as response:
            assert response.status == 200
        async with http.get("/v1/files/page.html") as response:
            assert response.status == 404
        for path in ("/v1/files/..%2fsecret", "/v1/files/.env", "/v1/files/a%00b"):
            async with http.get(path) as response:
                assert response.status in (400, 404)


async def test_bos_files_puts_lists_gets_and_removes(
    product: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOS_TARGET", product.target)
    monkeypatch.setenv("BOS_FILES_TARGET", product.addresses["files"])
    monkeypatch.setenv("BOS_API_KEY", product.api_key)

    async def bos(*arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(CliRunner().invoke, main, ["files", *arguments])
        return done.exit_code, done.output

    (tmp_path / "notes.txt").write_bytes(b"one")
    assert await bos("put", "notes.txt") == (0, "notes.txt: version 1\n")
    assert await bos("put", "notes.txt") == (0, "notes.txt: was there already\n")
    (tmp_path / "notes.txt").write_bytes(b"two")
    assert await bos("put", "notes.txt") == (0, "notes.txt: version 2\n")
    code, listed = await bos("list")
    assert (code, "notes.txt" in listed) == (0, True)
    code, refused = await bos("get", "notes.txt")
    assert (code, "there already" in refused) == (1, True)
    code, _ = await bos("get", "notes.txt", "--version", "1", "--output", "first.txt")
    assert (code, (tmp_path / "first.txt").read_bytes()) == (0, b"one")
    assert await bos("rm", "notes.txt", "--yes") == (0, "deleted notes.txt\n")
    code, missing = await bos("get", "notes.txt", "--output", "x")
    assert (code, "no such file" in missing) == (2, True)
    code, wrong = await bos("put", "first.txt", "--name", "../x")
    assert (code, "name" in wrong) == (2, True)


def text_of(content: bytes) -> str:
    """What people read of a file."""
    if content.startswith(b"%PDF-"):
        document = pypdfium2.PdfDocument(content)
        try:
            return "\n".join(page.get_textpage().get_text_range() for page in document)
        finally:
            document.close()
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            return book.read("xl/sharedStrings.xml").decode()
    return content.decode("utf-8-sig")
