"""Write what is made from the descriptors of services, or check that it is up to date.

    python deploy/from_descriptors.py [--check] [--root FOLDER]

A descriptor is ``[tool.bos]`` in the pyproject.toml of a service, see descriptors/descriptor.py.
Made from them are blocks of files, between two lines that hold ``made from descriptors`` and ``end
of what is made``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from descriptors import chart, code, compose, page
from descriptors.descriptor import Services

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "made from descriptors"
END = "end of what is made"


def blocks(services: Services) -> Mapping[str, Sequence[str]]:
    """Content of the blocks of each file, in order."""
    return {
        "docker-compose.yml": [compose.containers(services), compose.volumes(services)],
        "deploy/compose/secrets.sh": [compose.key_lists(services)],
        "deploy/compose/postgres/roles.sh": [compose.roles(services)],
        "deploy/compose/targets/bos.yaml": [compose.targets(services)],
        "helm/bos/values.yaml": [chart.rows(services)],
        "libs/plans/src/bos_plans/known_agents.py": [code.aliases(services)],
        "services/standalone/src/bos_standalone/agents.py": [code.grants(services)],
        "docs/architecture/README.md": [page.picture(services)],
        "docs/architecture/services.md": [page.tables(services)],
    }


def written(text: str, contents: Sequence[str]) -> str:
    """The text with these contents in its blocks.

    Raises:
        ValueError: it has another number of blocks.
    """
    lines: list[str] = []
    left = list(contents)
    inside = False
    for line in text.splitlines(keepends=True):
        if END in line:
            inside = False
        if not inside:
            lines.append(line)
        if BEGIN in line:
            inside = True
            lines.append(left.pop(0) if left else "")
    if left or inside or text.count(BEGIN) != len(contents):
        raise ValueError(f"{len(contents)} blocks expected, {text.count(BEGIN)} found")
    return "".join(lines)


def main(arguments: list[str]) -> int:
    """Write, or list what is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    given = parser.parse_args(arguments)
    stale = []
    for name, contents in blocks(Services(given.root)).items():
        file = given.root / name
        before = file.read_text("utf-8")
        after = written(before, contents)
        if before == after:
            continue
        stale.append(name)
        if not given.check:
            file.write_text(after, "utf-8")
    if stale and given.check:
        print(f"Out of date, run `make generate`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
