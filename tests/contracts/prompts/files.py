"""The committed files: a page of figures, and a golden file for every prompt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from . import counts, golden
from .asking import BOTH_WAYS, Asked, Mode

_HERE = Path(__file__).parent
MARKDOWN: Final = _HERE / "COUNTS.md"
GOLDEN: Final = _HERE / "golden"
FORMS: Final = "forms-of-replies.md"

Measured = dict["Mode", list["Asked"]]


def golden_files(measured: Mapping[Mode, Sequence[Asked]]) -> dict[str, str]:
    """What stands in the golden files, by file name."""
    apart, inside = measured["schema_apart"], measured["schema_in_prompt"]
    both = golden.by_kind([each for each in inside if each.question.id == BOTH_WAYS])
    return {
        FORMS: golden.forms(apart),
        **{f"{kind}.md": text for kind, text in golden.by_kind(apart).items()},
        **{f"{kind}.schema-in-prompt.md": text for kind, text in both.items()},
    }


def write(measured: Mapping[Mode, Sequence[Asked]]) -> None:
    """Make what was measured what is committed."""
    table = counts.table(measured["schema_apart"])
    MARKDOWN.write_text(counts.as_markdown(table), encoding="utf-8")
    GOLDEN.mkdir(parents=True, exist_ok=True)
    files = golden_files(measured)
    for stale in {path.name for path in GOLDEN.iterdir()}.difference(files):
        (GOLDEN / stale).unlink()
    for name, text in files.items():
        (GOLDEN / name).write_text(text, encoding="utf-8")


def committed_golden_files() -> dict[str, str]:
    """What is committed, by file name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(GOLDEN.iterdir())}
