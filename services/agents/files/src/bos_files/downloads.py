"""Downloads into a workspace: from allowed hosts, complete or not at all, never executed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from bos_agentkit import AgentFailure
from bos_files.media_types import CSV, HTML, JSON, PDF, XLSX, sniffed
from bos_files.workspaces.names import name_of_url

if TYPE_CHECKING:
    from bos_http import HttpClient

DOWNLOAD_FAILED: Final = "DownloadFailed"
_ENDINGS: Final = {
    PDF: ".pdf",
    CSV: ".csv",
    JSON: ".json",
    HTML: ".html",
    XLSX: ".xlsx",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "text/plain": ".txt",
}


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file that was downloaded."""

    name: str
    """From the last part of the URL after all redirects."""
    content: bytes
    url: str
    """After all redirects, without user, query and fragment."""


async def download(http: HttpClient, url: str, *, remaining_s: float) -> Downloaded:
    """Download a file.

    Raises:
        HttpRefused: the host is not allowed, or the file is larger than one may be.
        HttpFailed, HttpTimedOut: the host does not answer as it should.
        AgentFailure: the host answers with another status than 2xx.
    """
    response = await http.request("GET", url, timeout_s=remaining_s)
    if not response.ok:
        raise AgentFailure(
            DOWNLOAD_FAILED,
            f"The host answered with status {response.status}; check the address.",
            {"status": response.status},
            retryable=response.status >= 500,
        )
    parts = urlsplit(response.final_url)
    name = name_of_url(unquote(parts.path, errors="replace"))
    if "." not in name:
        name += _ENDINGS.get(sniffed(response.body, name), ".bin")
    return Downloaded(name, response.body, f"{parts.scheme}://{parts.netloc}{parts.path}")
