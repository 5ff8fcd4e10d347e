"""The contracts and the cases of the suite agree: a new public RPC is not forgotten."""

from __future__ import annotations

import pytest
from isolation_cases import CHOSEN_BY_CALLER, OF_ADA, OPEN, REQUESTS, RPCS

pytestmark = pytest.mark.isolation


def test_every_id_in_a_public_request_has_a_case() -> None:
    unknown = {
        f"{rpc.name}: {name}"
        for rpc in RPCS
        for name in rpc.references
        if name not in {*OF_ADA, *CHOSEN_BY_CALLER}
    }
    assert not unknown, "say in OF_ADA or CHOSEN_BY_CALLER whose ids these are"


def test_every_public_rpc_has_a_way_over_http() -> None:
    assert [rpc.name for rpc in RPCS if not rpc.bindings] == []
    assert {rpc.name for rpc in RPCS} >= {*REQUESTS, *OPEN}
