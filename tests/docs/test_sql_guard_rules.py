"""docs/reference/sql-guard-rules.md says what the guard's data says."""

import re
import sys
from pathlib import Path

import pytest

from bos_sqlguard import DIALECTS, load_functions, load_rules

sys.path.append(str(Path(__file__).parents[2] / "libs/sqlguard"))
from rules_reference import main, render

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/sql-guard-rules.md"


def test_page_is_what_the_data_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "Write the page anew: "
        "python libs/sqlguard/rules_reference.py docs/reference/sql-guard-rules.md"
    )


def test_every_rule_and_every_function_is_on_the_page() -> None:
    page = render()
    rows = re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)
    assert rows == list(load_rules())
    for dialect in DIALECTS:
        assert not [f for f in load_functions(dialect).scalar if f"`{f}`" not in page]


def test_every_rule_that_the_services_name_exists() -> None:
    sources = [*ROOT.glob("libs/sqlguard/src/**/*.py"), *ROOT.glob("services/mcp_db/src/**/*.py")]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    unused = {rule for rule in load_rules() if f'"{rule}"' not in text}
    assert not unused


def test_command_writes_the_page(tmp_path: Path) -> None:
    main([str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == render()
    with pytest.raises(SystemExit, match="usage"):
        main([])
