"""Packages that an image holds, from the pyproject.toml files of the workspace and its lock.

python closure.py --lock LOCK --pin uv                  # the lock's entry of one package
python closure.py --lock LOCK --build libs/protos       # what builds a member
python closure.py --lock LOCK --ours services/gateway   # members, by name
python closure.py --lock LOCK --others services/gateway # requirements of packages of others

Runs inside the Dockerfile, with the standard library alone. A requirement that the lock does not
hold ends it: an image must not get a version that the lock does not name.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[([^\]]*)\])?")
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==.*?(?=^[A-Za-z0-9]|\Z)", re.MULTILINE | re.DOTALL)


def normal(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def split(requirement: str) -> tuple[str, tuple[str, ...]]:
    """Name and extras of a requirement."""
    found = _NAME.match(requirement)
    if found is None:
        raise SystemExit(f"{requirement!r} is no requirement")
    extras = (normal(each.strip()) for each in (found[2] or "").split(",") if each.strip())
    return normal(found[1]), tuple(extras)


def pins(lock: str) -> dict[str, str]:
    """Entries of the lock by package, several of one package together."""
    found: dict[str, str] = {}
    for pin in _PIN.finditer(lock):
        found[normal(pin[1])] = found.get(normal(pin[1]), "") + pin[0]
    return found


def members(root: Path) -> dict[str, dict[str, Any]]:
    """The pyproject.toml of every member that is there, by the member's name."""
    files = [file for depth in ("*/*", "*/*/*") for file in root.glob(f"{depth}/pyproject.toml")]
    read = [tomllib.loads(file.read_text("utf-8")) for file in files]
    return {normal(each["project"]["name"]): each for each in read if "project" in each}


def closure(start: str, known: dict[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Members that ``start`` brings along, itself too, and what they require of others."""
    ours: set[str] = set()
    others: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [split(start)]
    while waiting:
        name, extras = waiting.pop()
        ours.add(name)
        for extra in ("", *extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            project = known[name]["project"]
            optional = project.get("optional-dependencies", {})
            for requirement in optional[extra] if extra else project.get("dependencies", ()):
                if split(requirement)[0] in known:
                    waiting.append(split(requirement))
                elif split(requirement)[0].startswith("bos-"):
                    raise SystemExit(f"{name} requires {requirement}, which is not in this folder")
                else:
                    others.add(requirement)
    return sorted(ours), sorted(others)


def _locked(requirements: list[str], lock: dict[str, str]) -> list[str]:
    if missing := sorted({split(each)[0] for each in requirements} - lock.keys()):
        raise SystemExit(f"The lock does not hold {', '.join(missing)}; run `make lock`")
    return requirements


def main(arguments: list[str]) -> int:
    """Print what was asked for, one a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, required=True)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--pin")
    asked.add_argument("--build", type=Path)
    asked.add_argument("--ours", type=Path)
    asked.add_argument("--others", type=Path)
    given = parser.parse_args(arguments)
    lock = pins(given.lock.read_text("utf-8"))
    root = given.lock.resolve().parent
    if given.pin:
        print(lock[_locked([given.pin], lock)[0]], end="")
        return 0
    folder = root / (given.build or given.ours or given.others)
    own = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    if given.build:
        found = _locked(own["build-system"]["requires"], lock)
    else:
        ours, others = closure(own["project"]["name"], members(root))
        found = ours if given.ours else _locked(others, lock)
    print("\n".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
