"""Export and deletion of an account's runs and webhooks, for the identity service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import asyncpg
from attrs import define
from google.protobuf.json_format import MessageToJson

from bos.account.v1 import (
    AccountDataServiceServicer,
    EraseAccountDataRequest,
    EraseAccountDataResponse,
    ExportAccountDataRequest,
    ExportAccountDataResponse,
)
from bos.gateway.v1 import ListVerifiedQueriesResponse, ListWebhooksResponse
from bos_artefacts import Owner
from bos_chassis.auth.account_data import ERASE, EXPORT, account_to, parts
from bos_errors import NotFound
from bos_gateway.run_log.reader import run_of
from bos_gateway.run_log.retention import erase_some
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.runs.feedback import Feedback
from bos_gateway.runs.follow import RunReader
from bos_gateway.verified_queries.stored import VerifiedQueries
from bos_gateway.webhooks.registered import Webhooks
from bos_postgres import acquire, fetch, statement_errors

_RUN_IDS = """
SELECT run_id FROM runs WHERE user_id = $1 AND ($2::uuid IS NULL OR run_id > $2)
ORDER BY run_id LIMIT 100
"""


@define(eq=False)
class AccountDataServicer(AccountDataServiceServicer):
    """Implements ``bos.account.v1.AccountDataService``."""

    _pool: asyncpg.Pool[asyncpg.Record]
    _reader: RunReader
    _files: RunFiles
    _webhooks: Webhooks
    _feedback: Feedback
    _verified: VerifiedQueries

    async def EraseAccountData(
        self, request: EraseAccountDataRequest, context: Any
    ) -> EraseAccountDataResponse:
        """Delete webhooks, verified queries and a batch of ended runs; ask the others to end."""
        user_id = account_to(ERASE)
        async with acquire(self._pool) as session:
            with statement_errors(session):
                erased, ending, done = await erase_some(session, user_id, self._files)
        return EraseAccountDataResponse(done=done, erased=erased, runs_ending=ending)

    async def ExportAccountData(
        self, request: ExportAccountDataRequest, context: Any
    ) -> AsyncIterator[ExportAccountDataResponse]:
        """Every run as its owner sees it, files, verified queries, webhooks without secrets."""
        user_id = account_to(EXPORT)
        listed = ListWebhooksResponse(webhooks=await self._webhooks.all(user_id))
        if listed.webhooks:
            for part in _parts("webhooks.json", MessageToJson(listed).encode()):
                yield part
        verified = ListVerifiedQueriesResponse(verified_queries=await self._verified.all(user_id))
        if verified.verified_queries:
            for part in _parts("verified-queries.json", MessageToJson(verified).encode()):
                yield part
        after: UUID | None = None
        while page := await fetch(self._pool, _RUN_IDS, user_id, after):
            for row in page:
                async for part in self._run(row["run_id"], user_id):
                    yield part
            after = page[-1]["run_id"]

    async def _run(self, run_id: UUID, user_id: str) -> AsyncIterator[ExportAccountDataResponse]:
        state = await self._reader.state(run_id, user_id)
        run = run_of(state)
        if (feedback := await self._feedback.get(run_id, user_id)) is not None:
            run.feedback.CopyFrom(feedback)
        for part in _parts(f"runs/{run_id}.json", MessageToJson(run).encode()):
            yield part
        for step in state.steps.values():
            for file in step.result.files if step.result is not None else ():
                digest = file.digest.removeprefix("sha256:")
                try:
                    content = await self._files.kept(Owner(user_id, run_id), digest)
                except NotFound:
                    continue  # which the log of the service says
                for part in _parts(f"runs/{run_id}/{digest}", content):
                    yield part


def _parts(path: str, content: bytes) -> Iterator[ExportAccountDataResponse]:
    for part in parts(content):
        yield ExportAccountDataResponse(path=path, content=part)
