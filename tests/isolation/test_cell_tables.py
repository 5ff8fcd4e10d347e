"""The table is whole: every RPC has a row, and every row a cell for every kind of caller."""

from __future__ import annotations

import pytest

from bos_chassis.auth.scopes import ANY_SCOPE, ERASE, EXPORT, PEOPLE_ONLY, SCOPE_OF, SCOPES

from .cell_kinds import CALLERS
from .cell_rows import NOT_SERVED, ROWS, nothing
from .public_rpcs import all_rpcs, public_rpcs

pytestmark = pytest.mark.isolation

RPCS = {rpc.path.removeprefix("/") for rpc in all_rpcs()}


def test_every_rpc_has_a_row_and_every_row_an_rpc() -> None:
    known = ROWS.keys() | set(NOT_SERVED)
    missing, gone = sorted(RPCS - known), sorted(known - RPCS)
    assert not missing, (
        f"{missing}: add each to ROWS in tests/isolation/cell_rows.py, as "
        '"package.Service/Method": Row(kind, request). Choose the kind in cell_kinds.py that says '
        "who may call it, and let the request name something that ada has (harness.things; what is "
        "missing there is made in cell_harness.py)."
    )
    assert not gone, f"{gone}: there is no such RPC any more; take its row out of ROWS."


def test_every_kind_has_a_cell_for_every_caller() -> None:
    for name, row in ROWS.items():
        assert tuple(row.kind.cells) == CALLERS, name
        assert all(row.kind.cells.values()), f"{name}: a caller calls with no credential"


def test_every_public_rpc_has_a_binding() -> None:
    by_hand = {"DocumentsService.UploadDocument", "FileService.UploadFile"}
    assert {rpc.name for rpc in public_rpcs() if not rpc.bindings} == by_hand


def test_rpcs_and_scopes_match() -> None:
    internal = {
        "bos.identity.v1.CredentialService/CheckSession",
        "bos.account.v1.AccountDataService/EraseAccountData",
        "bos.account.v1.AccountDataService/ExportAccountData",
    }
    closed = {rpc.path.removeprefix("/") for rpc in public_rpcs() if not rpc.open}
    assert closed | internal == SCOPE_OF.keys(), "say in bos_chassis.auth.scopes what keys may do"
    assert set(SCOPE_OF.values()) == {*SCOPES, ANY_SCOPE, PEOPLE_ONLY, ERASE, EXPORT}


def test_requests_with_ids_name_something() -> None:
    """Except ids that callers choose, and those that only narrow a list."""
    chosen = {"request__request_id", "request__conversation_id", "filter__document_ids", "step_id"}
    lists = {"OrchestratorService.ListRuns", "OperatorService.ListUserRuns"}
    silent = {
        rpc.name: ids
        for rpc in public_rpcs()
        if rpc.name not in lists
        and (ids := sorted({*rpc.references} - chosen))
        and ROWS[rpc.path.removeprefix("/")].request is nothing
    }
    assert silent == {}, "let the row name something that ada has"
