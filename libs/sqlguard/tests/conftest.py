from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bos_sqlguard import DIALECTS, Guard, GuardPolicy

if TYPE_CHECKING:
    from bos_sqlguard import Dialect

CORPUS = Path(__file__).parent / "corpus"
TABLES = frozenset({"orders", "invoices", "customers", "products", "employees"})


def read_corpus(name: str) -> list[tuple[str, str]]:
    """Return (heading, statement) pairs of a corpus file; statements begin after `=== heading`."""
    with (CORPUS / f"{name}.txt").open(encoding="utf-8", newline="") as file:
        parts = file.read().split("=== ")[1:]
    pairs = [part.split("\n", 1) for part in parts]
    return [(heading, statement.removesuffix("\n")) for heading, statement in pairs]


def policy_for(dialect: Dialect, **changes: int) -> GuardPolicy:
    tables = TABLES if dialect == "sqlite" else TABLES | {"sales.targets"}
    return GuardPolicy(dialect, tables, **changes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for kind in ("hostile", "legitimate"):
        if kind in metafunc.fixturenames:
            cases = [
                pytest.param((dialect, heading, statement), id=f"{dialect}: {heading}")
                for dialect in DIALECTS
                for heading, statement in read_corpus(f"{kind}_{dialect}")
            ]
            metafunc.parametrize(kind, cases)


@pytest.fixture(scope="session")
def guards() -> dict[str, Guard]:
    return {dialect: Guard(policy_for(dialect)) for dialect in DIALECTS}
