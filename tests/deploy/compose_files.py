"""Docker Compose over a copy of docker-compose.yml, with secrets of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / ".cache/compose/bin/docker-compose"
_COPIED = ("docker-compose.yml", "deploy", "services/demo/src/bos_demo/metadata.yaml")
_TIMEOUT_S = 900.0


class Project:
    """A copy in ``folder``; nothing of this checkout is written to.

    Args:
        folder: Where it goes; made if it is missing.
        variables: Of the environment, beside ``PATH`` and ``HOME``.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            **variables,
        }
        ignored = shutil.ignore_patterns("secrets", "env")
        for name in _COPIED:
            source, target = ROOT / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy2(source, target)

    @property
    def secrets(self) -> Path:
        """What each service is given."""
        return self.folder / "deploy/compose/secrets"

    @property
    def env(self) -> Path:
        """Settings of each service."""
        return self.folder / "deploy/compose/env"

    def make_secrets(self, *arguments: str) -> str:
        """Run secrets.sh; returns what it prints."""
        return self.run(str(self.folder / "deploy/compose/secrets.sh"), *arguments)

    def copied(self, folder: Path) -> Project:
        """The same in another folder, with copies of the secrets and settings that were made."""
        other = Project(folder)
        for made in (self.secrets, self.env):
            shutil.copytree(made, folder / made.relative_to(self.folder))
        return other

    def compose(self, *arguments: str) -> str:
        """Run Docker Compose; returns its standard output."""
        return self.run(str(COMPOSE), *arguments)

    def run(self, *command: str) -> str:
        """Run a program in the folder; returns its standard output.

        Raises:
            CalledProcessError: It failed; what it said is added as a note.
        """
        try:
            return subprocess.run(
                command,
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=True,
            ).stdout
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise


def agents_on_request() -> set[str]:
    """Agents that are for something of the user's own, each in a profile of its name."""
    return {
        name
        for name, each in compose_file()["services"].items()
        if each["profiles"] == [name] and "agents/" in str(each.get("build"))
    }


def compose_file() -> Mapping[str, Any]:
    """docker-compose.yml as it is written, anchors resolved."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return found
