"""The contracts and the cases of the suite agree: a new public RPC is not forgotten."""

from __future__ import annotations

import pytest
from isolation_cases import BY_HAND, CHOSEN_BY_CALLER, OF_ADA, OPEN, REQUESTS, RPCS

from bos_chassis.auth.scopes import ANY_SCOPE, ERASE, EXPORT, PEOPLE_ONLY, SCOPE_OF, SCOPES

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
    assert {rpc.name for rpc in RPCS if not rpc.bindings} == BY_HAND
    assert {rpc.name for rpc in RPCS} >= {*REQUESTS, *OPEN}


def test_every_public_rpc_has_one_scope_and_every_scope_has_rpcs() -> None:
    wanted = {rpc.path.removeprefix("/") for rpc in RPCS if rpc.name not in OPEN}
    internal = {
        "bos.identity.v1.CredentialService/CheckSession",
        "bos.account.v1.AccountDataService/EraseAccountData",
        "bos.account.v1.AccountDataService/ExportAccountData",
    }
    assert wanted | internal == set(SCOPE_OF), (
        "say in bos_chassis.auth.scopes what keys may do there"
    )
    assert set(SCOPE_OF.values()) == {*SCOPES, ANY_SCOPE, PEOPLE_ONLY, ERASE, EXPORT}
    assert not {rpc.path.removeprefix("/") for rpc in RPCS if rpc.name in OPEN} & set(SCOPE_OF)
