"""Runs ``bos connect`` in a folder of the test, without the developer's settings."""

import asyncio
import os
import re
import shlex
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner

from bos_mcp_db.connecting.command import connect
from bos_testkit.scripted_model.pytest_fixtures import SCRIPTED_KEY
from bos_testkit.scripted_model.server import ScriptedModel

_SETTINGS = re.compile(r"BOS_(?!TEST)|OPENAI_|AZURE_|OTEL_|.*_MODEL")


@dataclass(frozen=True)
class Connected:
    """What one call did."""

    code: int
    shown: str
    folder: Path

    @property
    def settings(self) -> dict[str, str]:
        """Variables that it printed."""
        lines = re.findall(r"^(BOS_\w+)=(.*)$", self.shown, re.MULTILINE)
        return {name: shlex.split(value)[0] for name, value in lines}

    @property
    def allowed(self) -> list[str]:
        return self.settings["BOS_DATABASE_ALLOWED_TABLES"].split(",")

    @property
    def problems(self) -> list[str]:
        return re.findall(r"PROBLEM  (.*)$", self.shown, re.MULTILINE)

    def metadata(self) -> str:
        (path,) = self.folder.glob("*-metadata.yaml")
        return path.read_text("utf-8")

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


class Connect:
    """``bos connect`` with its files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __call__(
        self, url: str, *options: str, env: dict[str, str] | None = None
    ) -> Connected:
        arguments = [url, "--name", "shop", "--out", str(self.folder), *options]
        result: Any = await asyncio.to_thread(CliRunner().invoke, connect, arguments, env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            f"{result.exception!r}\n{result.output}"
        )
        return Connected(result.exit_code, result.output, self.folder)


@pytest.fixture
def bos_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if _SETTINGS.match(name)]:
        monkeypatch.delenv(name)
    return Connect(folder)


def model_variables(model: ScriptedModel) -> dict[str, str]:
    """Settings of that model, as an operator exports them."""
    return {
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": SCRIPTED_KEY,
        "BOS_MODEL": "scripted",
    }


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def database(folder: Path, script: str) -> str:
    """URL of a new SQLite file."""
    path = folder / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return f"sqlite:///{path}"


def read(text: str) -> dict[str, Any]:
    """A metadata file, all scalars as texts."""
    content: dict[str, Any] = yaml.load(text, Loader=yaml.BaseLoader)
    return content
