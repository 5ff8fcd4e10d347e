"""The paths of REST that are no binding of an RPC, and whom they answer.

A new path fails ``test_cells`` until it has a row here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiohttp

from .cell_harness import CellHarness

_SERVER = Path(__file__).parents[2] / "services/rest/internal/server/handler.go"
_DOCS = Path(__file__).parents[2] / "services/rest/internal/openapi/docs.go"

OPEN_AT_REST = (
    "GET /",
    "GET /healthz",
    "GET /readyz",
    "GET /openapi.json",
    "GET /docs",
    "GET /docs/page.js",
    "GET /docs/page.css",
    "GET /docs/swagger-ui-bundle.js",
    "GET /docs/swagger-ui.css",
    "GET /v1/browserSession",
    "GET /metrics",
)
"""Open to everybody; the last one on loopback only."""

_SESSION = "/v1/browserSession"
OF_BROWSERS = tuple(
    f"POST {_SESSION}:{verb}"
    for verb in ("logIn", "redeem", "beginOpenId", "finishOpenId", "logOut")
)
"""By which a page signs in and out; each wants a header that pages of other origins cannot send."""
LINK_OF_CALLER = f"POST {_SESSION}:createLink"
"""Makes a link that stands for the key of its caller."""

_UPLOAD = "bos.documents.v1.DocumentsService/UploadDocument"
_FILE_UPLOAD = "bos.files.v1.FileService/UploadFile"
RPC_OF_PATH = {
    "POST /hitl/respond": "bos.gateway.v1.ApprovalService/RespondApproval",
    "POST /v1/documents": _UPLOAD,
    "POST /upload": _UPLOAD,
    "POST /v1/files": _FILE_UPLOAD,
}
"""Written by hand: what they call, in words of their own."""


def body_of_path(path: str, harness: CellHarness) -> Any:
    form = aiohttp.FormData()
    form.add_field("file", b"What everybody has.", filename="everybody.txt")
    bodies = {
        "POST /v1/documents": form,
        "POST /upload": form,
        "POST /v1/files": form,
        "POST /hitl/respond": {
            "request_id": harness.things["approval"],
            "decision": "approved",
        },
    }
    return bodies[path]


def own_paths() -> set[str]:
    """Paths that the REST gateway knows beside its document, as its code names them.

    It answers no other: its guard of routes knows these and the document. Paths of the protocols
    service are called in ``tests/integration/protocols``.
    """
    text = _SERVER.read_text()
    (made,) = re.findall(r"templates := append\(\[\]string\{(.*?)\}", text, re.S)
    named = re.findall(r'"(/[^"]*)"', made) + re.findall(
        r'templates = append\(templates, "(/[^"]*)"\)', text
    )
    (docs,) = re.findall(r"DocsPaths = \[\]string\{(.*?)\}", _DOCS.read_text(), re.S)
    assert text.count("append(templates") == 1, "own paths are named in another way; read them here"
    console = "/"
    return {f"GET {path}" for path in [console, *named, *re.findall(r'"(/[^"]*)"', docs)]}
