from collections.abc import Callable
from pathlib import Path

import pytest

from bos_sqlguard import DIALECTS, Dialect, Guard, GuardPolicy
from bos_testkit.hostile import Statement, guard_corpus

CORPUS = Path(__file__).parent / "corpus"
TABLES = frozenset({"orders", "invoices", "customers", "products", "employees"})


def read_corpus(kind: str, dialect: Dialect) -> list[Statement]:
    return guard_corpus(CORPUS / f"{kind}_{dialect}.txt")


def policy_for(dialect: Dialect, **changes: int) -> GuardPolicy:
    tables = TABLES if dialect == "sqlite" else TABLES | {"sales.targets"}
    return GuardPolicy(dialect, tables, **changes)


@pytest.fixture(scope="session")
def guards() -> dict[str, Guard]:
    return {dialect: Guard(policy_for(dialect)) for dialect in DIALECTS}


@pytest.fixture(scope="session")
def corpus() -> Callable[[str, Dialect], list[Statement]]:
    """Return every (heading, statement) of a kind, `hostile` or `legitimate`, in a dialect."""
    return read_corpus
