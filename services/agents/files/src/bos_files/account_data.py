"""Deleting and exporting the workspace of an account, when identity asks for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from google.protobuf.json_format import MessageToDict

from bos.account.v1 import (
    AccountDataServiceServicer,
    EraseAccountDataRequest,
    EraseAccountDataResponse,
    ExportAccountDataRequest,
    ExportAccountDataResponse,
)
from bos_chassis.auth.account_data import ERASE, EXPORT, account_to, parts
from bos_files.workspaces.workspace import Workspaces

_BATCH: Final = 100


class AccountDataServicer(AccountDataServiceServicer):
    """Implements ``bos.account.v1.AccountDataService``.

    Args:
        workspaces: Files of users.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def EraseAccountData(
        self, request: EraseAccountDataRequest, context: Any
    ) -> EraseAccountDataResponse:
        """A batch of versions; all files are out of sight with the first call."""
        user_id, store = account_to(ERASE), self._workspaces.store
        before = await store.left(user_id)
        await store.hide_all(user_id)
        await self._workspaces.discard(user_id, await store.of_user(user_id, _BATCH))
        left = await store.left(user_id)
        return EraseAccountDataResponse(done=not left, erased={"file_versions": before - left})

    async def ExportAccountData(
        self, request: ExportAccountDataRequest, context: Any
    ) -> AsyncIterator[ExportAccountDataResponse]:
        """Every stored version: its metadata as JSON, and its content."""
        user_id, name, number = account_to(EXPORT), "", 0
        while page := await self._workspaces.store.exported(user_id, name, number):
            for stored in page:
                folder = f"files/{stored.file_id}/{stored.number}"
                known = MessageToDict(stored.message(), preserving_proto_field_name=True)
                about = json.dumps(known, ensure_ascii=False).encode() + b"\n"
                for part in parts(about):
                    yield ExportAccountDataResponse(path=f"{folder}.json", content=part)
                content = await self._workspaces.content(user_id, stored)
                for part in parts(content):
                    yield ExportAccountDataResponse(path=f"{folder}.bin", content=part)
            name, number = page[-1].name, page[-1].number
