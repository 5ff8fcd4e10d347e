"""Modules and names of the code that pages name exist: paths in backticks, and tables of names."""

import importlib
import re
from functools import reduce
from pathlib import Path

ROOT = Path(__file__).parents[2]
GATEWAY = ROOT / "services/gateway/src/bos_gateway"
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|go|proto|sql)")
MEMBERS = [
    *ROOT.glob("services/*/README.md"),
    *ROOT.glob("services/agents/*/README.md"),
    *ROOT.glob("libs/*/README.md"),
]
PAGES = sorted(
    {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *MEMBERS}
)
BARE = {path.name for top in ("libs", "services") for path in (ROOT / top).rglob("*.*")}
EXAMPLES = {"migrations/0001_what.sql", "tests/test_summary.py"}
ANSWERS = {
    "Where is the lease renewed?",
    "Where is an event encoded?",
    "Where is a step's retry decided?",
    "What may `core` import?",
    "Which file would I touch to add a limit per day?",
    "Where does an approval's time-out fire?",
}
# Heads of an architecture page, in this order; pages that describe no mechanism have their own.
HEADS = ["In one picture", "Rules", "Where in the code", "Failure modes"]
OTHER_HEADS = {"README.md", "services.md", "promises.md", "threat-model.md"}


def folders(page: Path) -> list[Path]:
    """Where paths of a page may begin: the root, its member's folders, the gateway's package."""
    return [ROOT, page.parent, *page.parent.glob("src/*"), page.parent / "tests", GATEWAY]


def missing(page: Path, text: str) -> list[str]:
    """Paths of modules in backticks that lead nowhere from any folder of the page."""
    named = {code for code in CODE.findall(FENCE.sub("", text)) if MODULE.fullmatch(code)}
    return sorted(
        path
        for path in named - EXAMPLES
        if not any((folder / path).exists() for folder in folders(page))
        and ("/" in path or path not in BARE)
    )


def tables(text: str) -> list[tuple[str, list[str], list[str]]]:
    """What, modules and names, of each row of tables with the columns Module and Name."""
    rows, inside = [], False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[1:] == ["Module", "Name"]:
            inside = True
        elif inside and not set(cells[0]) <= {"-"}:
            rows.append((cells[0], CODE.findall(cells[1]), CODE.findall(cells[2])))
    return rows


def unresolved(modules: list[str], names: list[str]) -> list[str]:
    """Names that none of the modules has: attributes in Python, else words of the text."""
    files = [base / path for path in modules for base in (ROOT, GATEWAY) if (base / path).is_file()]
    return [name for name in names if not any(_names(file, name) for file in files)]


def _names(file: Path, name: str) -> bool:
    parts = file.relative_to(ROOT).with_suffix("").parts
    if file.suffix != ".py" or "src" not in parts:
        return name in file.read_text("utf-8")
    return _has(importlib.import_module(".".join(parts[parts.index("src") + 1 :])), name)


def _has(module: object, name: str) -> bool:
    *owners, last = name.split(".")
    try:
        owner = reduce(getattr, owners, module)
    except AttributeError:
        return False
    fields = {*getattr(owner, "model_fields", ()), *getattr(owner, "__annotations__", ())}
    return hasattr(owner, last) or last in fields


def test_named_modules_and_names_exist() -> None:
    wrong = []
    for page in PAGES:
        text = page.read_text("utf-8")
        wrong += [(page.name, path) for path in missing(page, text)]
        for what, modules, names in tables(text):
            wrong += [(page.name, what, name) for name in unresolved(modules, names)]
            wrong += [] if modules else [(page.name, what)]
    assert not wrong


def test_the_questions_of_a_newcomer_are_answered() -> None:
    page = (ROOT / "docs/architecture/README.md").read_text("utf-8")
    answered = {what for what, modules, names in tables(page) if modules and names}
    assert answered >= ANSWERS


def test_contract_of_the_pure_core_forbids_what_the_page_says() -> None:
    contracts = (
        (ROOT / "pyproject.toml").read_text("utf-8").split("[[tool.importlinter.contracts]]")
    )
    (pure,) = [each for each in contracts if 'source_modules = ["bos_gateway.core"' in each]
    for module in ("asyncio", "asyncpg", "grpc", "time", "bos_gateway.settings"):
        assert f'"{module}"' in pure


def test_architecture_pages_have_their_heads() -> None:
    for page in PAGES:
        if page.parent == ROOT / "docs/architecture" and page.name not in OTHER_HEADS:
            plain = FENCE.sub("", page.read_text("utf-8"))
            heads = [line[3:] for line in plain.splitlines() if line.startswith("## ")]
            assert [head for head in heads if head in HEADS] == HEADS, page.name


def test_missing_modules_and_names_are_found() -> None:
    page = ROOT / "docs/architecture/ownership.md"
    assert missing(page, "`ownership/lease.py`, `lease.py`") == []
    assert missing(page, "`ownership/leases.py`, `leases.py`") == [
        "leases.py",
        "ownership/leases.py",
    ]
    row = "| What | Module | Name |\n|---|---|---|\n| x | `ownership/lease.py` | `Lease.hold` |\n"
    ((_, modules, names),) = tables(row)
    assert unresolved(modules, names) == ["Lease.hold"]
    assert unresolved(modules, ["Lease.held", "Lease"]) == []
    assert unresolved(["Makefile"], ["buf lint", "no such word"]) == ["no such word"]
