"""Awkward files through the whole service: each ends with a reason, and none stops the queue."""

import os
import random

import pytest
from documents_harness import FAILED, READY
from documents_trials.service import RealDocuments
from sample_files.awkward import AWKWARD, Awkward

from bos.documents.v1 import Document
from bos_documents.parsing.rejections import REASONS
from bos_errors import InvalidArgument

pytestmark = [pytest.mark.process, pytest.mark.security, pytest.mark.timeout(900)]

# Each file costs a parser process of its own, so the whole list is a target of its own.
FILES = int(os.environ.get("BOS_TEST_AWKWARD_FILES", "8"))
SEED = int(os.environ.get("BOS_TEST_SEED", "15"))
BLANK = "DOCUMENT_WITHOUT_TEXT"
_INTERNAL = ("Traceback", "Error", "/", "WORKER", "DOCUMENT_", "None", "worker")


def expected(awkward: Awkward) -> set[str]:
    """How the file may end: ``READY`` or reasons."""
    if awkward.outcome == "any":
        return {"READY", BLANK, *REASONS}
    return {{"read": "READY", "blank": BLANK}.get(awkward.outcome, awkward.outcome)}


def outcome(found: Document) -> str:
    if found.state == READY:
        assert not found.HasField("failure")
        assert found.chunk_count > 0
        return "READY"
    assert found.state == FAILED, found
    assert_is_understood(found.failure.message)
    return str(found.failure.reason)


def assert_is_understood(message: str) -> None:
    """It is a sentence, and holds nothing that only we understand."""
    assert message[0].isupper(), message
    assert message.endswith("."), message
    assert len(message) < 300
    assert not [each for each in _INTERNAL if each in message], message


async def test_awkward_files_do_not_block_the_queue(
    real: RealDocuments,
) -> None:
    sent: list[tuple[Awkward, str, str]] = []
    ends = {}
    files = random.Random(SEED).sample(AWKWARD, min(FILES, len(AWKWARD)))
    for number, awkward in enumerate(files):
        uploaded = ""
        try:
            uploaded = (await real.upload(awkward.make(), awkward.name)).document.document_id
        except InvalidArgument as refused:
            assert_is_understood(refused.message)
            ends[awkward.name] = refused.reason
        honest = await real.upload(f"The apples of orchard {number} cost five.", f"{number}.txt")
        sent.append((awkward, uploaded, honest.document.document_id))
    for awkward, uploaded, honest in sent:
        if uploaded:
            ends[awkward.name] = outcome(await real.until_ended(uploaded))
        assert (await real.until_ended(honest)).state == READY, awkward.name

    wrong = {each.name: ends[each.name] for each in files if ends[each.name] not in expected(each)}
    assert wrong == {}
    assert len(ends) == len(files)
    # One look at each was enough: no parser died of it, and no defect was met.
    assert await real.value("SELECT count(*) FROM documents WHERE attempts > 0") == 0
    assert "stage failed" not in real.logged()
    names = [each.name for each in await real.documents()]
    assert not [name for name in names if "/" in name]
    texts = await real.texts("apples of the orchard", limit=100)
    assert len([text for text in texts if "orchard" in text]) == len(files)
