"""Why a document cannot be read: reasons, and the exceptions that carry them."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "DOCUMENT_EMPTY": "The file is empty.",
    "DOCUMENT_WITHOUT_TEXT": "The file holds no text.",
    "DOCUMENT_TYPE_UNSUPPORTED": (
        "This kind of file cannot be read; upload PDF, DOCX, PPTX, XLSX, XLS, "
        "ODT, ODS, EPUB, RTF, CSV, HTML, MD, TXT or EML."
    ),
    "DOCUMENT_ENCRYPTED": "The file is protected by a password; remove it and upload again.",
    "DOCUMENT_DAMAGED": "The file is damaged or cut off; save it anew and upload again.",
    "DOCUMENT_UNSAFE": (
        "The file holds constructions that no office program writes (a document type definition or "
        "entities); save it anew and upload again."
    ),
    "DOCUMENT_UNPACKS_TOO_LARGE": (
        "The file unpacks to far more than its size; split it, or save it anew."
    ),
    "DOCUMENT_TOO_LARGE": "The file is larger than documents may be; split it.",
    "DOCUMENT_TOO_MANY_PAGES": "The document has more pages than documents may have; split it.",
    "DOCUMENT_TOO_MUCH_TEXT": "The document or one of its pages holds too much text; split it.",
    "DOCUMENT_TOO_COMPLEX": (
        "Reading the file takes more time or memory than a document may take; split it, or save it "
        "in another format."
    ),
}
"""Message for the owner of the document by reason: what is wrong, and what helps."""

FAILURES: dict[str, str] = {
    "WORKER_NOT_STARTED": "A parser process did not start.",
    "WORKER_NOT_ISOLATED": "A parser process could not cut itself off from the network.",
    "WORKER_DIED": "A parser process was killed or crashed.",
    "WORKER_TIMED_OUT": "A parser process did not answer in time.",
    "WORKER_BAD_ANSWER": "A parser process sent what no parser sends.",
}
"""Failures of a worker: trying again may help, since the cause may lie outside of the document."""


class DocumentRejected(Exception):
    """A document cannot be read, and trying again does not help.

    Args:
        reason: Stable UPPER_SNAKE name.
        message: What is wrong and what helps, for the owner; by default that of ``REASONS``.
        detail: For the log.
    """

    def __init__(self, reason: str, message: str = "", *, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
        """What was raised where, for the log; nothing of the document."""
        self.message = message or REASONS[reason]


class WorkerFailed(Exception):
    """A worker failed; the document may be tried again a few times."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.message = FAILURES[reason]
        self.detail = detail
