"""Fail on words that docs/STYLE.md replaces, anywhere users or developers read them.

    python tests/contracts/words.py [FOLDER ...]

The words are the second column of the page's table "Checked words". A name counts as the
words that it is made of. Sample data are left out: they are texts of others.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STYLE = "docs/STYLE.md"
READ = (".py", ".md", ".proto", ".go", ".ts", ".tsx", ".js", ".css", ".html", ".yaml", ".yml",
        ".sh", ".toml", ".sql", ".j2", ".tpl", ".env", ".example", "Makefile",
        "Dockerfile")  # fmt: skip
SAMPLE_DATA = re.compile(
    r"services/demo/src/bos_demo/(documents|generators/names|mailbox|web|site|pages|search|evaluation)"
    r"|tests/(bench/)?retrieval/judged|/corpus/|/golden/|/canned/.*\.(json|txt)$"
    r"|^tests/[a-z/]*models/.*\.jsonl?$|third-party-licences|wide_schema|mutants/drawn"
)

UNIX_ACCOUNT = "nobody"
UNIX_ACCOUNT_PATHS = ("libs/postgres/", "tests/contracts/words.py")
"""Where it is exempt: libs/postgres drops root's rights to the account of that name."""


def checked_words(style: str) -> list[str]:
    """The second column of the table under "Checked words": words and phrases in lower case.

    Raises:
        ValueError: the page has no such table.
    """
    section = style.partition("### Checked words")[2].partition("\n#")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][1:]
    words = [word.strip().lower() for row in rows for word in row.split(",")]
    if not words:
        raise ValueError(f"{STYLE} has no table under 'Checked words'")
    return words


def pattern_of(words: Sequence[str]) -> re.Pattern[str]:
    """Matches any of ``words`` as whole words, any separators between words of a phrase."""
    phrases = [r"[\s_#*/-]+".join(map(re.escape, word.split())) for word in words]
    return re.compile(rf"(?<![a-z])(?:{'|'.join(phrases)})(?![a-z])", re.IGNORECASE)


def found_in(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Line number and word of each match; names in CamelCase count as their words."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)
    for match in pattern.finditer(plain):
        yield plain.count("\n", 0, match.start()) + 1, " ".join(match.group().split())


def texts(folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Path and text of each tracked file that is read by people."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for path in listed.stdout.splitlines():
        if path.endswith(READ) and path != STYLE and not SAMPLE_DATA.search(path):
            file = ROOT / path
            if file.is_file():
                yield path, file.read_text()


def main() -> int:
    """Print each match as path, line and word; 1 if there is one."""
    pattern = pattern_of(checked_words((ROOT / STYLE).read_text()))
    count = 0
    for path, text in texts(sys.argv[1:]):
        for line, word in found_in(text, pattern):
            if word.lower() == UNIX_ACCOUNT and path.startswith(UNIX_ACCOUNT_PATHS):
                continue
            sys.stdout.write(f"{path}:{line}: {word}\n")
            count += 1
    if count:
        sys.stderr.write(f"{count} words that {STYLE} replaces; its first column says by what.\n")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
