"""Finds what a Python interpreter with numpy and pandas consists of, file by file.

The isolated interpreter gets these files and no others: the executable, the standard library, the
shared libraries that are really loaded, and the packages that numpy and pandas really import.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROBE_TIMEOUT_S = 60  # the first import of numpy and pandas compiles them

# Runs in an interpreter of its own, so that the service does not load numpy. dl_iterate_phdr names
# libraries as they were asked for (libz.so.1), which is how they must be found again.
_PROBE = """
import ctypes, json, os, sys, sysconfig
before = set(sys.modules)
import ast, asyncio, bz2, csv, ctypes, datetime, decimal, hashlib, json, lzma, random, re, resource
import sqlite3, statistics, unicodedata, zlib, zoneinfo
import contourpy, numpy, pandas
import matplotlib
matplotlib.use("agg")
import matplotlib.backends.backend_pdf, matplotlib.backends.backend_svg, matplotlib.pyplot
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
libraries = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def visit(info, size, data):
    libraries.append(os.fsdecode(info.contents.name or b""))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(visit, None)
stdlib = sysconfig.get_path("stdlib")
files = [getattr(m, "__file__", None) for n, m in list(sys.modules.items()) if n not in before]
print(json.dumps({
    "executable": os.path.realpath(getattr(sys, "_base_executable", sys.executable)),
    "stdlib": stdlib,
    "stdlib_inside": os.path.relpath(stdlib, sys.base_prefix),
    "sites": sorted({sysconfig.get_path(p) for p in ("purelib", "platlib")}),
    "libraries": libraries,
    "files": [f for f in files if f],
}))
"""
_DATA_PACKAGES = ("tzdata", "six", "pytz", "pillow.libs")
"""What numpy and pandas reach for later than at import."""


class RuntimeUnavailable(Exception):
    """The interpreter, numpy or pandas is not usable; the text says which and is safe to show."""


@dataclass(frozen=True, slots=True)
class PythonRuntime:
    """Files of one Python interpreter."""

    executable: Path
    stdlib: Path
    stdlib_inside: str
    """Where the standard library must lie below the prefix, such as lib/python3.11."""
    loader: Path | None
    """The dynamic loader, whose path is written into the executable."""
    libraries: tuple[Path, ...]
    """Shared libraries of the system, by the names under which they are looked for."""
    packages: tuple[Path, ...]
    """Folders and modules of a site-packages folder."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Everything that must be readable."""
        loader = (self.loader,) if self.loader else ()
        return (self.executable, self.stdlib, *loader, *self.libraries, *self.packages)


async def find_runtime() -> PythonRuntime:
    """What the service's own interpreter and its packages consist of; takes about a second.

    Raises:
        RuntimeUnavailable: They cannot be imported.
    """
    # matplotlib keeps what it finds out about fonts; here that is deleted again.
    with tempfile.TemporaryDirectory(prefix="bos-sandbox-") as folder:
        found, code = await _probe({**os.environ, "MPLCONFIGDIR": folder})
    if code != 0:
        raise RuntimeUnavailable(
            "numpy, pandas and matplotlib cannot be imported; install bos-sandbox anew"
        )
    return _runtime(json.loads(found))


async def _probe(environment: dict[str, str]) -> tuple[bytes, int | None]:
    """What the probe prints, and its exit code."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-c",
        _PROBE,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            found, _ = await process.communicate()
    except TimeoutError:
        raise RuntimeUnavailable("numpy and pandas take too long to import") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return found, process.returncode


def _runtime(found: dict[str, Any]) -> PythonRuntime:
    sites = [Path(site) for site in found["sites"]]
    stdlib = Path(found["stdlib"])
    own = [*sites, stdlib]
    system = [Path(name) for name in found["libraries"] if os.path.isabs(name)]
    system = [path for path in system if not any(path.is_relative_to(root) for root in own)]
    loader = next((path for path in system if path.name.startswith("ld-")), None)
    return PythonRuntime(
        executable=Path(found["executable"]),
        stdlib=stdlib,
        stdlib_inside=found["stdlib_inside"],
        loader=loader,
        libraries=tuple(path for path in system if path != loader),
        packages=tuple(_packages(sites, [Path(file) for file in found["files"]])),
    )


def _packages(sites: list[Path], files: list[Path]) -> list[Path]:
    roots: set[Path] = set()
    for site in sites:
        names = {file.relative_to(site).parts[0] for file in files if file.is_relative_to(site)}
        # Wheels keep the libraries they bring beside the package.
        wanted = {*names, *(f"{name}.libs" for name in names), *_DATA_PACKAGES}
        roots |= {site / name for name in wanted if (site / name).exists()}
    return sorted(roots)
