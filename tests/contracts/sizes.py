"""``make check``: no source file over 500 lines, no folder over 15 modules, no page over 150 lines.

What is generated or a table is excepted by name, with the reason.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES, FOLDER_MODULES, PAGE_LINES = 500, 15, 150
SOURCES = {".py", ".go"}
GENERATED = ("libs/protos/src/", "services/rest/gen/")
LONG_PAGES = {
    "docs/models.md": "a table of providers and their settings",
    "docs/operations/performance.md": "measurements",
    "docs/demo.md": "generated",
    "docs/reference/configuration.md": "generated",
    "docs/reference/errors.md": "generated",
    "docs/reference/metrics.md": "generated",
    "docs/reference/requirements.md": "generated",
    "docs/reference/third-party-licences.md": "a table",
}


def faults(lines: Mapping[str, int]) -> list[str]:
    """What is too large among these files, given their numbers of lines."""
    found = []
    modules = Counter[str]()
    for name, count in sorted(lines.items()):
        path = PurePosixPath(name)
        if path.suffix in SOURCES and not name.startswith(GENERATED):
            if count > FILE_LINES:
                found.append(f"{name}: {count} lines, at most {FILE_LINES}")
            if path.suffix == ".py" and "src" in path.parts and path.name != "__init__.py":
                modules[str(path.parent)] += 1
        page = name.startswith("docs/") and path.suffix == ".md" and name not in LONG_PAGES
        if page and count > PAGE_LINES:
            found.append(f"{name}: {count} lines, at most {PAGE_LINES}")
    for folder, count in sorted(modules.items()):
        if count > FOLDER_MODULES:
            found.append(f"{folder}: {count} modules, at most {FOLDER_MODULES}")
    return found


def lines_of(root: Path) -> dict[str, int]:
    """Lines of each source file and page that git knows."""
    command = ("git", "ls-files", "-z", "*.py", "*.go", "docs/*.md")
    named = subprocess.run(command, cwd=root, check=True, text=True, capture_output=True).stdout
    files = [name for name in named.split("\0") if name and (root / name).is_file()]
    return {name: (root / name).read_bytes().count(b"\n") for name in files}


def main() -> int:
    """Print what is too large; 1 if anything is."""
    lines = lines_of(ROOT)
    found = faults(lines)
    found += [f"{name}: excepted, but not there" for name in sorted(LONG_PAGES.keys() - lines)]
    print("\n".join(found) if found else f"{len(lines)} files: none too large")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
