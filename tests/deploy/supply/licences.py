"""Licences of everything that Bos is built from: written to a page, and checked.

python tests/deploy/supply/licences.py            # checks; exit code 1 names what must not be there
python tests/deploy/supply/licences.py --write  # docs/reference/third-party-licences.md
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from packages import ROOT, Package, all_packages

PAGE = ROOT / "docs/reference/third-party-licences.md"
_PREFACE = """\
# Licences of third parties

Everything that is locked for Bos: packages of Python (`requirements.lock`, tools of developers
included), the Go modules that the REST gateway is linked from, and the npm packages that the pages
of the console are made of. `make check` fails when this page is out of date, or when a licence is
unknown or is not one of those in `tests/deploy/supply/licences.toml`. To write it anew:
`.venv/bin/python tests/deploy/supply/licences.py --write`.
"""


@dataclass(frozen=True)
class Rules:
    """What may be there."""

    allowed: frozenset[str]
    aliases: dict[str, str]
    known: dict[str, str]
    exceptions: dict[str, str]

    @classmethod
    def load(cls) -> Rules:
        """From the file beside this one."""
        found = tomllib.loads(Path(__file__).with_name("licences.toml").read_text("utf-8"))
        return cls(
            frozenset(found["allowed"]), found["aliases"], found["known"], found["exceptions"]
        )

    def licence_of(self, package: Package) -> str:
        """Its licence by identifiers, as far as they are known."""
        stated = package.licence or self.known.get(package.name, "")
        parts = [self.aliases.get(part, part) for part in _split(stated)]
        return " ".join(part for part in parts if part).removesuffix(" AND").removeprefix("AND ")

    def objection(self, package: Package) -> str:
        """Why it must not be there; empty if it may."""
        licence = self.licence_of(package)
        if package.name in self.exceptions or self._is_allowed(licence):
            return ""
        what = f"has the licence {licence}" if licence else "says no licence that is known"
        return (
            f"{package.name} {package.version} {what}. Use another package, or, if it is neither "
            "linked nor shipped, name it with the reason in tests/deploy/supply/licences.toml."
        )

    def _is_allowed(self, licence: str) -> bool:
        """Every part that holds together with others, one of those that may be chosen."""
        return any(
            all(part.strip(" ()") in self.allowed for part in choice.split(" AND "))
            for choice in licence.split(" OR ")
        )


def page(packages: list[Package], rules: Rules) -> str:
    """The page."""
    parts = [_PREFACE]
    for kind, title in (("pypi", "Python"), ("golang", "Go"), ("npm", "npm")):
        rows = [
            f"| {each.name} | {each.version} | {rules.licence_of(each)} |"
            for each in sorted(packages, key=lambda each: each.name)
            if each.kind == kind
        ]
        head = [f"## {title}", "", "| Package | Version | Licence |", "|---|---|---|"]
        parts.append("\n".join([*head, *rows, ""]))
    named = [f"* {name}: {reason}." for name, reason in sorted(rules.exceptions.items())]
    parts.append("\n".join(["## Exceptions", "", *named, ""]))
    return "\n".join(parts)


def _split(stated: str) -> list[str]:
    return [part.strip() for part in re.split(r"\s+(AND|OR)\s+", stated) if part.strip()]


def main(arguments: list[str]) -> int:
    """Check, or write the page."""
    rules = Rules.load()
    packages = all_packages()
    problems = [text for package in packages if (text := rules.objection(package))]
    written = page(packages, rules)
    if "--write" in arguments:
        PAGE.write_text(written, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != written:
        problems.append(
            f"{PAGE.name} is out of date: python tests/deploy/supply/licences.py --write"
        )
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
