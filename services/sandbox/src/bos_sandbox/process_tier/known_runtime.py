"""Remembers what the interpreter of the process tier consists of, so that a start need not probe.

Finding out imports numpy, pandas and matplotlib, over a second of processor time. What was found
stays true while the interpreter and the packages beside it stay the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import sysconfig
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bos_sandbox.process_tier.runtime import PythonRuntime, find_runtime

_FORM = "1"  # of what is written; another one is not read
_MAX_BYTES = 2**20


async def remembered_runtime(folder: Path | None) -> PythonRuntime:
    """What `find_runtime` finds, read from ``folder`` where an earlier start wrote it.

    Args:
        folder: Of this user alone; made where it is missing. None for the user's cache folder.
            Where it cannot be used, each start finds out anew.

    Raises:
        RuntimeUnavailable: numpy, pandas or matplotlib cannot be imported.
    """
    folder = folder or _cache_of_the_user()
    if folder is None:
        return await find_runtime()
    file = folder / f"python-{_fingerprint()}.json"
    known = _read(file)
    if known is None:
        known = await find_runtime()
        with suppress(OSError):
            _write(file, known)
    return known


def _cache_of_the_user() -> Path | None:
    """None for a user who has no home, as in many containers."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    except RuntimeError:
        return None
    return cache / "bos/sandbox" if cache.is_absolute() else None


def _fingerprint() -> str:
    """Of this interpreter and of what is installed for it."""
    executable = Path(sys.executable).resolve()
    sites = sorted({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")})
    parts = [_FORM, sys.version, sys.executable, str(executable), _changed(executable)]
    for site in sites:
        # An installer writes a package's RECORD last, and a new one for each version.
        records = sorted(site.glob("*.dist-info/RECORD"))
        parts += [str(site), *(f"{record.parent.name} {_changed(record)}" for record in records)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _changed(file: Path) -> str:
    found = file.stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def _read(file: Path) -> PythonRuntime | None:
    """What was written, if we wrote it and all of it is still there."""
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
                return None
            runtime = _runtime(json.loads(opened.read(_MAX_BYTES)))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return runtime if all(path.exists() for path in runtime.paths) else None


def _runtime(content: dict[str, Any]) -> PythonRuntime:
    return PythonRuntime(
        executable=Path(content["executable"]),
        stdlib=Path(content["stdlib"]),
        stdlib_inside=str(content["stdlib_inside"]),
        loader=None if content["loader"] is None else Path(content["loader"]),
        libraries=tuple(map(Path, content["libraries"])),
        packages=tuple(map(Path, content["packages"])),
    )


def _write(file: Path, runtime: PythonRuntime) -> None:
    """Write the file atomically: other processes may start at the same time.

    Raises:
        OSError: it cannot be kept there.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as partial:
        try:
            json.dump(asdict(runtime), partial, default=str)
            partial.flush()
            Path(partial.name).replace(file)
        except BaseException:
            Path(partial.name).unlink(missing_ok=True)
            raise
