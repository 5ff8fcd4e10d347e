"""The pages for operators name metrics, labels and log lines that the code has."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / "docs/operations").glob("*.md"), *(ROOT / "docs/architecture").glob("*.md")]
)
METRIC = re.compile(r"`(bos_[a-z_]+)(?:\{([^}`]*)\})?[^`]*`")
LABELS = re.compile(r'([a-z_]+)(?:="([a-z_]+)")?')
LOG = re.compile(r"\blog(?: line)? ((?:`[^`]+`(?:, then |, | or )?)+)")
CODE = re.compile(r"`([^`]+)`")
MEMBERS = ("libs/*/src", "services/*/src", "services/agents/*/src")
SUFFIX = re.compile(r"_(total|bucket|count|sum)$")


@cache
def literals() -> frozenset[str]:
    """Strings in the code of all members; a second of work, which no collection needs."""
    found: set[str] = set()
    files = (file for each in MEMBERS for file in ROOT.glob(f"{each}/bos_*/**/*.py"))
    for file in files:
        nodes = ast.walk(ast.parse(file.read_text("utf-8")))
        found |= {
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    return frozenset(found)


def unknown(text: str) -> list[str]:
    """Metrics, labels, values of labels, and log lines that are no string of the code."""
    said: list[str] = []
    for name, labels in METRIC.findall(text):
        said.append(SUFFIX.sub("", name) if name not in literals() else name)
        said += [part for pair in LABELS.findall(labels) for part in pair if part]
    said += [line for lines in LOG.findall(text) for line in CODE.findall(lines)]
    modules = {path.name for each in MEMBERS for path in ROOT.glob(f"{each}/bos_*")}
    return sorted({each for each in said if each not in literals() and each not in modules})


def test_named_metrics_and_log_lines_exist() -> None:
    found = {page.name: unknown(page.read_text("utf-8")) for page in PAGES}
    assert not {name: texts for name, texts in found.items() if texts}


def test_unknown_metrics_and_log_lines_are_found() -> None:
    assert unknown('`bos_runs_adopted_total{reason="lease_expired"}`; log `run adopted`') == []
    assert unknown("`bos_runs_stolen_total`") == ["bos_runs_stolen"]
    assert unknown('`bos_runs_adopted_total{cause="stolen"}`') == ["cause", "stolen"]
    assert unknown("log `run adopted`, then `run stolen`") == ["run stolen"]
