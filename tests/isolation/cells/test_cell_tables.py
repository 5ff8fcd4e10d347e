"""The table is whole: every RPC has a row, and every row a cell for every kind of caller."""

from __future__ import annotations

import pytest
from cell_kinds import CALLERS, KINDS
from cell_rows import NOT_SERVED, ROWS
from public_rpcs import all_rpcs

pytestmark = pytest.mark.isolation

RPCS = {rpc.path.removeprefix("/") for rpc in all_rpcs()}


def test_every_rpc_has_a_row_and_every_row_an_rpc() -> None:
    known = ROWS.keys() | set(NOT_SERVED)
    missing, gone = sorted(RPCS - known), sorted(known - RPCS)
    assert not missing, (
        f"{missing}: add each to ROWS in tests/isolation/cells/cell_rows.py, as "
        '"package.Service/Method": Row(kind, request). Choose the kind in cell_kinds.py that says '
        "who may call it, and let the request name something that ada has (estate.things; what is "
        "missing there is made in cell_estate.py)."
    )
    assert not gone, f"{gone}: there is no such RPC any more; take its row out of ROWS."


def test_every_kind_has_a_cell_for_every_caller() -> None:
    for kind in (*KINDS, *(row.kind for row in ROWS.values())):
        assert tuple(kind.cells) == CALLERS, kind.name
        assert all(kind.cells.values()), f"{kind.name}: a caller calls with no credential"
