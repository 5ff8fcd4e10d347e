"""Installed packages without an installer: what is found by metadata is tried from a folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path


def install_metadata(pyproject: Path, folder: Path) -> Path:
    """Write the metadata that an installer would make of ``pyproject``; returns its folder.

    Args:
        pyproject: The package's ``pyproject.toml``.
        folder: A folder of ``sys.path``; a package of the same name further on is hidden by it.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return offer_entry_points(
        folder, project["name"], project.get("entry-points", {}), version=project["version"]
    )


def offer_entry_points(
    folder: Path, name: str, groups: Mapping[str, Mapping[str, str]], *, version: str = "0.1.0"
) -> Path:
    """Write the metadata of a package ``name`` with these entry points; returns its folder."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return info
