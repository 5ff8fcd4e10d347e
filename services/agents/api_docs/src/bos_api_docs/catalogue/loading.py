"""Reading and reloading of the catalogues of all APIs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bos_api_docs.catalogue.curated import MAX_CURATED_BYTES, read_curated
from bos_api_docs.catalogue.index import CatalogueIndex
from bos_api_docs.catalogue.model import ApiCatalogue, merged
from bos_api_docs.catalogue.openapi import MAX_DOCUMENT_BYTES, read_openapi
from bos_errors import BosError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_api_docs.settings import ApiSettings
    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpClient

_READ_TIMEOUT_S = 10.0
_TYPES = ("application/*", "text/*")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Catalogues in use, and problems of those that failed to load."""

    index: CatalogueIndex
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a catalogue could not be read, by API."""

    def catalogue(self, api: str) -> ApiCatalogue | None:
        """Catalogue of ``api``; None if it was never read."""
        return next((each for each in self.index.catalogues if each.name == api), None)


class Catalogues:
    """Catalogues of all APIs, read at start and again when a source has changed.

    A source that cannot be read leaves the catalogue that was read before, if any.

    Args:
        apis: Settings by name.
        http: Client for documents at URLs.
        telemetry: Of the service.
    """

    def __init__(
        self, apis: Mapping[str, ApiSettings], http: HttpClient, telemetry: Telemetry
    ) -> None:
        self._apis = apis
        self._http = http
        self._log = telemetry.logger("bos.api_docs")
        self._contents: dict[str, tuple[bytes, bytes]] = {}
        self.current = Loaded(CatalogueIndex([]))

    async def load(self) -> None:
        """Reload changed catalogues; problems are logged and recorded, never raised."""
        found: dict[str, ApiCatalogue] = {each.name: each for each in self.current.index.catalogues}
        before, problems, changed = self.current.problems, dict[str, str](), False
        for name, api in self._apis.items():
            try:
                contents = await self._read(api)
                if self._contents.get(name) != contents:
                    # In a thread: a large document takes seconds to parse.
                    found[name] = await asyncio.to_thread(_parsed, name, api, *contents)
                    self._contents[name], changed = contents, True
                    self._report(found[name])
            except BosError as error:
                problems[name] = error.message
                if before.get(name) != error.message:
                    self._log.error("api catalogue not read", api=name, problem=error.message)
        if changed or problems != before:
            ordered = [found[name] for name in self._apis if name in found]
            index = CatalogueIndex(ordered) if changed else self.current.index
            self.current = Loaded(index, problems)

    async def watch(self, every_s: float) -> None:
        """Look for changed sources every ``every_s`` seconds, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.load()
            except Exception as error:  # a defect must not end the reloading for good
                self._log.error("api catalogues not reloaded", exc_info=error)

    def _report(self, catalogue: ApiCatalogue) -> None:
        self._log.info(
            "api catalogue read",
            api=catalogue.name,
            operations=len(catalogue.operations),
            snippets=len(catalogue.snippets),
            notes=list(catalogue.notes),
        )

    async def _read(self, api: ApiSettings) -> tuple[bytes, bytes]:
        """Content of document and curated file; empty where there is none."""
        document = b""
        if is_url(api.openapi):
            document = await self._fetched(api.openapi)
        elif api.openapi:
            document = await asyncio.to_thread(_file, Path(api.openapi), MAX_DOCUMENT_BYTES)
        curated = b""
        if api.catalogue is not None:
            curated = await asyncio.to_thread(_file, api.catalogue, MAX_CURATED_BYTES)
        return document, curated

    async def _fetched(self, url: str) -> bytes:
        answer = await self._http.request(
            "GET",
            url,
            headers={"Accept": "application/json, application/yaml, text/yaml"},
            timeout_s=_READ_TIMEOUT_S,
            content_types=_TYPES,
        )
        if not answer.ok:
            raise ConfigurationError(f"The document's host answered with status {answer.status}.")
        return answer.body


def is_url(source: str) -> bool:
    """Whether a document is read over HTTP."""
    return source.lower().startswith(("http:", "https:"))


def _parsed(name: str, api: ApiSettings, document: bytes, curated: bytes) -> ApiCatalogue:
    catalogue = ApiCatalogue(name=name, title="")
    if document:
        url = api.openapi if is_url(api.openapi) else ""
        catalogue = read_openapi(document, name, url=url)
    if curated:
        try:
            catalogue = merged(catalogue, read_curated(curated, name))
        except ConfigurationError as error:
            raise ConfigurationError(f"The curated catalogue: {error.message}") from None
    return catalogue


def _file(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise ConfigurationError(
            f"The file {path.name} cannot be read ({error.strerror}). Correct its path."
        ) from None
    if len(content) > limit:
        raise ConfigurationError(f"The file {path.name} is larger than {limit} bytes.")
    return content
