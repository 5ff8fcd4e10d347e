"""``make check``: migrations block no writers, break no release in use, never change later.

The rules on statements are those of Squawk that are about locks and about code that still runs; the
others are here. A statement that a rule refuses may stand where its file says why::

    -- allow disallowed-unique-constraint: no release holds this table
    -- contract since 1.2.0: the column is not read any more

The second form is for statements that break code of an earlier release, and names the first
release that can do without. ``migrations.py --release 1.2.0`` records the digests of all files.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Releases = Mapping[str, Mapping[str, str]]
"""Digests of files by path, by release, the oldest release first."""

ROOT: Final = Path(__file__).resolve().parents[2]
RELEASED: Final = Path(__file__).with_name("released_migrations.toml")
FOLDERS: Final = ("services/**/src/*/migrations/*.sql", "libs/*/src/**/migrations/*.sql")
PG_VERSION: Final = "15.0"

BLOCKING: Final = frozenset(
    {
        "adding-field-with-default",
        "adding-foreign-key-constraint",
        "adding-primary-key-constraint",
        "ban-truncate-cascade",
        "constraint-missing-not-valid",
        "disallowed-unique-constraint",
        "require-concurrent-index-creation",
        "require-concurrent-index-deletion",
        "adding-not-nullable-field",
        "syntax-error",
        # Of this module:
        "rewrites-table",
        "changes-stored-rows",
        "concurrently-in-transaction",
        "not-alone-outside-transaction",
    }
)
"""Rules on statements that keep others waiting while they read or rewrite a table."""
CONTRACTING: Final = frozenset(
    {
        "adding-required-field",
        "ban-drop-column",
        "ban-drop-not-null",
        "ban-drop-table",
        "changing-column-type",
        "renaming-column",
        "renaming-table",
    }
)
"""Rules on statements that break the code of an earlier release, which runs during a rollout."""

_ALLOW = re.compile(r"^-- allow ([\w-]+): (\S.*)$", re.MULTILINE)
_CONTRACT = re.compile(r"^-- contract since (\S+): (\S.*)$", re.MULTILINE)
_DOWN = re.compile(r"^-- migrate:down.*", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"--.*")
_QUOTED = re.compile(r"\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'", re.DOTALL)
_OUTSIDE = "transaction:false"
_CREATED = re.compile(r"\bCREATE\s+(?:UNLOGGED\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)", re.I)
_REWRITES = re.compile(r"\b(VACUUM\s+FULL|CLUSTER|SET\s+(?:UN)?LOGGED)\b", re.I)
_CONCURRENTLY = re.compile(r"\bCONCURRENTLY\b", re.I)
_CHANGES = re.compile(r"(?:^|;)\s*(?:UPDATE|DELETE\s+FROM)\s+(?:ONLY\s+)?(\w+)", re.I)


@dataclass(frozen=True, order=True)
class Finding:
    """A statement that a rule refuses."""

    line: int
    rule: str
    message: str


def migrations(root: Path = ROOT) -> list[Path]:
    """All migrations below a folder, those of each service in their order."""
    return sorted({path for pattern in FOLDERS for path in root.glob(pattern)})


def forward(sql: str) -> str:
    """A migration without the part that undoes it, which no deployment runs; same line numbers."""
    return _DOWN.sub("", sql)


def own_findings(sql: str) -> Iterator[Finding]:
    """What the rules of this module refuse in a migration."""
    code = _QUOTED.sub(_blank, _COMMENT.sub("", forward(sql)))
    made = {name.lower() for name in _CREATED.findall(code)}

    def line(position: int) -> int:
        return code.count("\n", 0, position) + 1

    for match in _REWRITES.finditer(code):
        yield Finding(line(match.start()), "rewrites-table", f"{match[1]} rewrites a table.")
    for match in _CHANGES.finditer(code):
        if match[1].lower() not in made:
            message = (
                f"Rows of {match[1]} stay locked until the migration ends; change them in batches."
            )
            yield Finding(line(match.start(1)), "changes-stored-rows", message)
    if _OUTSIDE in sql:
        statements = [each for each in code.split(";") if each.strip()]
        others = [each for each in statements if "CONCURRENTLY" not in each.upper()]
        if others or len(statements) > 2:
            message = "Outside a transaction one index is made or dropped, and nothing else."
            yield Finding(1, "not-alone-outside-transaction", message)
    elif match := _CONCURRENTLY.search(code):
        message = f"CONCURRENTLY wants a file of its own with {_OUTSIDE}."
        yield Finding(line(match.start()), "concurrently-in-transaction", message)


def _blank(match: re.Match[str]) -> str:
    """As many lines, of nothing."""
    return "''" + "\n" * match[0].count("\n")


def squawk_findings(texts: Mapping[str, str]) -> dict[str, list[Finding]]:
    """What Squawk refuses in migrations, by their names.

    Raises:
        RuntimeError: it could not look at them.
    """
    found: dict[str, list[Finding]] = {name: [] for name in texts}
    program = Path(sysconfig.get_path("scripts")) / "squawk"
    with tempfile.TemporaryDirectory() as folder:
        named: dict[str, str] = {}
        for inside in (True, False):
            files = [name for name, sql in texts.items() if (_OUTSIDE not in sql) is inside]
            if not files:
                continue
            for name in files:
                path = Path(folder, f"{len(named)}.sql")
                path.write_text(forward(texts[name]), encoding="utf-8")
                named[path.name] = name
            mode = "--assume-in-transaction" if inside else "--no-assume-in-transaction"
            paths = [path for path, name in named.items() if name in files]
            for each in _squawk(program, Path(folder), mode, paths):
                if each["rule_name"] in BLOCKING | CONTRACTING:
                    finding = Finding(each["line"] + 1, each["rule_name"], each["message"])
                    found[named[Path(each["file"]).name]].append(finding)
    return found


def _squawk(
    program: Path, folder: Path, mode: str, paths: Iterable[str]
) -> list[dict[str, object]]:
    command = (str(program), "--reporter", "json", "--pg-version", PG_VERSION, mode, *paths)
    done = subprocess.run(command, cwd=folder, check=False, text=True, capture_output=True)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"squawk: {done.stderr.strip() or done.stdout.strip()}") from None
    return list(report)


def problems(texts: Mapping[str, str], releases: Releases) -> list[str]:
    """What is wrong with migrations, given their texts by path and what was released."""
    problems = []
    of_squawk = squawk_findings(texts)
    for name, sql in texts.items():
        allowed = {rule for rule, _ in _ALLOW.findall(sql)}
        earlier = _releases_before(name, releases)
        named = [since for since, _ in _CONTRACT.findall(sql)]
        contracts = bool(named) and {*named} <= {*earlier}
        problems += [
            f"{name}: contract since {since}: no release before this migration is called that"
            for since in named
            if since not in earlier
        ]
        findings = sorted({*of_squawk[name], *own_findings(sql)})
        for finding in findings:
            if finding.rule in CONTRACTING and contracts:
                continue
            if finding.rule not in allowed:
                problems.append(f"{name}:{finding.line}: {finding.rule}: {finding.message}")
        useless = allowed - {finding.rule for finding in findings}
        problems += [f"{name}: allow {rule}: nothing here needs it" for rule in sorted(useless)]
    return [*problems, *_changed(texts, releases)]


def _releases_before(name: str, releases: Releases) -> list[str]:
    """The releases that came before the one with this file, or all of them."""
    order = list(releases)
    holding = [number for number, release in enumerate(order) if name in releases[release]]
    return order[: holding[0]] if holding else order


def _changed(texts: Mapping[str, str], releases: Releases) -> Iterator[str]:
    """What was done to released files, and files that would come before released ones."""
    last: dict[str, str] = {}
    released = {name: digest for files in releases.values() for name, digest in files.items()}
    for name, digest in released.items():
        if name not in texts:
            yield f"{name}: released, and not there any more"
        elif _digest(texts[name]) != digest:
            yield f"{name}: released, and changed since; write another migration"
        folder = name.rpartition("/")[0]
        last[folder] = max(last.get(folder, ""), name)
    for name in texts.keys() - released.keys():
        newest = last.get(name.rpartition("/")[0], "")
        if name < newest:
            yield f"{name}: sorts before {newest}, which is released: databases have it already"


def _digest(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


def read_releases(path: Path = RELEASED) -> Releases:
    """The digests that were recorded."""
    releases: Releases = tomllib.loads(path.read_text(encoding="utf-8"))
    return releases


def recorded(release: str, texts: Mapping[str, str], releases: Releases) -> str:
    """What to append to the record for a release: the files that no earlier one holds.

    Raises:
        ValueError: there is such a release.
    """
    if release in releases:
        raise ValueError(f"{release} is released")
    known = {name for files in releases.values() for name in files}
    lines = [f'"{name}" = "{_digest(texts[name])}"' for name in sorted(texts.keys() - known)]
    return "\n".join((f'\n["{release}"]', *lines, ""))


def main(arguments: list[str] | None = None) -> int:
    """Print what is wrong, or record a release; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description="Checks migrations.")
    parser.add_argument("--release", metavar="VERSION", help="record the digests of all files")
    release = parser.parse_args(arguments).release
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in migrations()}
    releases = read_releases()
    found = problems(texts, releases)
    print("\n".join(found) if found else f"{len(texts)} migrations: none blocks, none breaks")
    if found:
        return 1
    if release:
        with RELEASED.open("a", encoding="utf-8") as record:
            record.write(recorded(release, texts, releases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
