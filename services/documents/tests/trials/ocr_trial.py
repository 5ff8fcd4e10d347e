"""Pages that are pictures, read by the real tesseract: `make test-documents-ocr`, not `make test`.

Scans are made of pages of text: drawn, turned a little and covered with noise.
"""

import shutil
import zlib
from dataclasses import replace

import numpy as np
import pypdfium2 as pdfium
import pytest
from documents_harness import READY
from documents_trials.machine import needs
from documents_trials.service import RealDocuments
from sample_files.pdf import PdfPage, paragraph, pdf

from bos.documents.v1 import DocumentState
from bos_documents.parsing.blocks import PageText
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.pool import ParserPool, with_tesseract

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

NOTICE = [
    "Notice of termination",
    "",
    "Either party may end this contract with a notice of three months",
    "to the end of a quarter. The notice has to be given in writing.",
    "The reference of this contract is KT-20417.",
]
PENALTY = ["A late delivery costs two percent of the price for each day."]


@pytest.fixture(autouse=True)
def tesseract() -> None:
    needs(
        shutil.which("tesseract") is not None,
        "tesseract is not installed: as root, `make test-documents-ocr` installs it on Debian",
    )


def scanned(lines: list[str], *, dpi: int = 200, noise: int = 20, seed: int = 1) -> PdfPage:
    """A page of text as a scanner makes it: grey pixels, one degree off, with specks."""
    drawn = pdfium.PdfDocument(pdf([PdfPage(paragraph(lines, size=14))]))
    page = drawn[0]
    grey = page.render(scale=dpi / 72, grayscale=True).to_numpy().squeeze()
    page.close()
    drawn.close()
    height, width = grey.shape
    # Rows slide sideways by their height: what a page that was put in askew looks like.
    askew = np.stack(
        [np.roll(row, round(at * np.tan(np.radians(1)))) for at, row in enumerate(grey)]
    )
    chance = np.random.default_rng(seed)
    dirty = askew.astype(np.int16) + chance.integers(-noise, noise + 1, askew.shape)
    pixels = np.clip(dirty, 0, 255).astype(np.uint8).tobytes()
    return PdfPage(picture=(width, height, zlib.compress(pixels, 1)))


async def test_scan_is_found_by_its_words_and_cited_with_its_page(real: RealDocuments) -> None:
    typed = PdfPage(paragraph(["The carrier delivers within five working days."]))
    found = await real.ready(pdf([typed, scanned(NOTICE)]), "contract.pdf")

    assert (found.page_count, found.progress.pages_parsed) == (2, 2)
    best = (await real.search("KT-20417")).passages[0].chunk
    assert "notice of three months" in best.text
    assert (best.last_page, best.document_name) == (2, "contract.pdf")
    meant = (await real.search("How do we end the agreement?")).passages[0].chunk
    assert meant.chunk_id == best.chunk_id


async def test_scan_without_words_ends_with_the_reason(real: RealDocuments) -> None:
    uploaded = (await real.upload(pdf([scanned([""])]), "empty.pdf")).document
    found = await real.until_ended(uploaded.document_id)
    assert found.state == DocumentState.DOCUMENT_STATE_FAILED
    assert found.failure.reason == "DOCUMENT_WITHOUT_TEXT"
    after = await real.ready(pdf([scanned(PENALTY)]), "penalty.pdf")
    assert after.state == READY


async def test_missing_ocr_language_is_noted_on_the_page() -> None:
    limits = with_tesseract(replace(ParsingLimits(), ocr_languages="xxx"))
    content = pdf([PdfPage(paragraph(PENALTY)), scanned(PENALTY)])
    async with ParserPool(limits, spare=0) as pool, pool.open(content) as document:
        assert (await document.page(1)).text == PageText.EXTRACTED
        page = await document.page(2)
    assert (page.text, page.blocks) == (PageText.NONE, ())
    assert "could not be recognised" in " ".join(page.notes)
