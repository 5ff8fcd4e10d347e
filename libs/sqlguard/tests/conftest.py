from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bos_sqlguard import DIALECTS, Guard, GuardPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from bos_sqlguard import Dialect

CORPUS = Path(__file__).parent / "corpus"
SECURITY = Path(__file__).parent / "security"
TABLES = frozenset({"orders", "invoices", "customers", "products", "employees"})


def read_corpus(name: str) -> list[tuple[str, str]]:
    """Return (heading, statement) pairs of a corpus file; statements begin after `=== heading`."""
    with (CORPUS / f"{name}.txt").open(encoding="utf-8", newline="") as file:
        parts = file.read().split("=== ")[1:]
    pairs = [part.split("\n", 1) for part in parts]
    return [(heading, statement.removesuffix("\n")) for heading, statement in pairs]


def read_lines(name: str) -> list[tuple[str, str]]:
    """Return (class, statement) pairs of a file of one-line statements under `## class` lines."""
    text = (SECURITY / f"{name}.txt").read_text(encoding="utf-8")
    pairs, heading = [], ""
    # Not splitlines(): some statements hold line separators of other alphabets.
    for line in text.split("\n"):
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line:
            pairs.append((heading, line))
    return pairs


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
            if kind == "legitimate":
                cases += [
                    pytest.param((dialect, heading, statement), id=f"{dialect}: {statement}"[:70])
                    for dialect in DIALECTS
                    for heading, statement in read_lines(f"{kind}_{dialect}")
                ]
            metafunc.parametrize(kind, cases)


@pytest.fixture(scope="session")
def guards() -> dict[str, Guard]:
    return {dialect: Guard(policy_for(dialect)) for dialect in DIALECTS}


@pytest.fixture(scope="session")
def corpus() -> Callable[[str, Dialect], list[tuple[str, str]]]:
    """Return every (class, statement) of a kind, `hostile` or `legitimate`, in a dialect."""

    def read(kind: str, dialect: Dialect) -> list[tuple[str, str]]:
        pairs = read_corpus(f"{kind}_{dialect}")
        if (SECURITY / f"{kind}_{dialect}.txt").exists():
            pairs += read_lines(f"{kind}_{dialect}")
        return pairs

    return read
