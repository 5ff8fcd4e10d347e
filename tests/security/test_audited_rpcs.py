"""Every method that may change something is audited, or has a stated reason why not."""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import MethodOptions

import bos
from bos_testkit.audit import AUDITED, NOT_AUDITED

pytestmark = pytest.mark.security

READ_AND_AUDITED = {
    "bos.audit.v1.AuditService/ListAuditEntries",
    "bos.documents.v1.IngestionService/GetIngestionQueue",
    "bos.gateway.v1.OperatorService/GetSpend",
    "bos.gateway.v1.OperatorService/GetStorage",
    "bos.gateway.v1.OperatorService/GetUserRun",
    "bos.gateway.v1.OperatorService/ListUserApprovals",
    "bos.gateway.v1.OperatorService/ListUserRuns",
    "bos.gateway.v1.OrchestratorService/DownloadFile",
}
"""What changes nothing and has an entry all the same."""


def methods() -> Iterator[tuple[str, bool]]:
    """Every method, and whether its contract says that it changes nothing."""
    pool = descriptor_pool.Default()
    for root in map(Path, bos.__path__):
        for file in sorted(root.rglob("*_pb2.py")):
            module = ".".join(("bos", *file.relative_to(root).with_suffix("").parts))
            for service in importlib.import_module(module).DESCRIPTOR.services_by_name.values():
                for method in pool.FindServiceByName(service.full_name).methods:
                    level = method.GetOptions().idempotency_level
                    reads = level == MethodOptions.NO_SIDE_EFFECTS
                    yield f"{service.full_name}/{method.name}", reads


def test_changing_methods_are_audited_or_excepted() -> None:
    found = dict(methods())
    assert len(found) > 50, "the contracts are read"
    changing = {name for name, reads in found.items() if not reads}
    missing = changing - set(AUDITED) - set(NOT_AUDITED)
    assert not missing, "say in bos_testkit.audit what is logged of it, or why nothing is"
    assert {*AUDITED, *NOT_AUDITED} - changing == READ_AND_AUDITED, "no method, or one that reads"
    assert not set(AUDITED) & set(NOT_AUDITED)
    assert all(reason.strip() for reason in NOT_AUDITED.values())
