"""What Bos is built from: Python packages, Go modules of REST, npm packages of the console."""

import json
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements.lock"
CONSOLE_LOCK = ROOT / "services" / "console" / "package-lock.json"
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^\s;\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_MODULE = "{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}"
_CLASSIFIER = "License :: "


@dataclass(frozen=True)
class Package:
    """One package as it is locked."""

    kind: str
    """``pypi``, ``golang`` or ``npm``."""
    name: str
    version: str
    licence: str
    """As the package says it; empty where it says nothing."""
    hashes: tuple[str, ...] = ()

    @property
    def purl(self) -> str:
        """How tools name it."""
        return f"pkg:{self.kind}/{self.name.replace('@', '%40')}@{self.version}"


def python_packages(lock: str) -> list[Package]:
    """The packages of a lock file, with the licences that the installed ones state."""
    pins = list(_PIN.finditer(lock))
    ends = [pin.start() for pin in pins[1:]] + [len(lock)]
    return [
        Package(
            "pypi",
            pin["name"].lower(),
            pin["version"],
            _stated(pin["name"]),
            tuple(_HASH.findall(lock[pin.start() : end])),
        )
        for pin, end in zip(pins, ends, strict=True)
    ]


def go_modules() -> list[Package]:
    """The modules that the program of the REST gateway is linked from."""
    listed = subprocess.run(
        ["sh", "go.sh", "list", "-deps", "-f", _MODULE, "."],
        cwd=ROOT / "services" / "rest",
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    rows = sorted({line for line in listed.stdout.splitlines() if line.count(" ") == 2})
    modules = [row.split(" ") for row in rows]
    return [
        Package("golang", path, version, _read(Path(folder)))
        for path, version, folder in modules
        if version
    ]


def npm_packages(lock: str) -> list[Package]:
    """The packages that the console's pages are made of, without what builds and tests them."""
    shipped = {
        (name.rpartition("node_modules/")[2], each["version"], each.get("license", ""))
        for name, each in json.loads(lock)["packages"].items()
        if name and not each.get("dev")
    }
    return [Package("npm", *each) for each in sorted(shipped)]


def all_packages() -> list[Package]:
    """All of them."""
    return [
        *python_packages(LOCK.read_text("utf-8")),
        *go_modules(),
        *npm_packages(CONSOLE_LOCK.read_text("utf-8")),
    ]


def _stated(name: str) -> str:
    """What the metadata of an installed package say; empty if they say nothing."""
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if found.get("License-Expression"):
        return str(found["License-Expression"])
    stated = [
        each.rpartition(" :: ")[2]
        for each in found.get_all("Classifier") or []
        if each.startswith(_CLASSIFIER) and each.rpartition(" :: ")[2] != "OSI Approved"
    ]
    return " AND ".join(stated) or (found.get("License") or "").strip().partition("\n")[0]


_MARKS = {
    "Apache-2.0": ("Apache License", "Version 2.0"),
    "MPL-2.0": ("Mozilla Public License", "2.0"),
    "GPL": ("GNU", "GENERAL PUBLIC LICENSE"),
    "ISC": ("Permission to use, copy, modify, and/or distribute",),
    "BSD-3-Clause": ("Redistribution and use in source and binary forms", "endorse or promote"),
    "BSD-2-Clause": ("Redistribution and use in source and binary forms",),
    "MIT": ("Permission is hereby granted, free of charge",),
}


def _read(folder: Path) -> str:
    """The licence of a module by the wording of its file; empty if that is not known."""
    for name in ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING"):
        file = folder / name
        if file.is_file():
            text = " ".join(file.read_text(encoding="utf-8", errors="replace").split())
            for licence, marks in _MARKS.items():
                if all(mark in text for mark in marks):
                    return licence
    return ""
