"""Writes the files of a new agent from the templates beside this module."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

import click

_NAME = re.compile(r"[a-z][a-z0-9_]{0,24}")
_OURS = re.compile(r"(?:^from bos_.* import [^(\n]+\n)+", re.MULTILINE)
_LONGEST = 70
"""Of a text that stands on one line of the code."""
_PLACES = {
    "pyproject.toml": "pyproject.toml.txt",
    "src/bos_{name}/__init__.py": "__init__.py.txt",
    "src/bos_{name}/__main__.py": "__main__.py.txt",
    "src/bos_{name}/agent.py": "agent.py.txt",
    "src/bos_{name}/py.typed": "py.typed.txt",
    "tests/test_{name}.py": "test.py.txt",
}


@click.group()
def new() -> None:
    """Write the files of something new into a checkout of Bos."""


@new.command()
@click.argument("name")
@click.option("--description", default="", help="What it does, in one line without a full stop.")
@click.option("--example", default="", help="A task that it is for.")
@click.option("--keyword", default="", help="Part of questions that are for it; NAME if left out.")
def agent(name: str, description: str, example: str, keyword: str) -> None:
    """Write the agent NAME, which asks the model once, below services/agents.

    NAME is in lower case, such as summary or stock_prices.
    """
    root = _checkout(Path.cwd())
    if not _NAME.fullmatch(name):
        raise click.ClickException(
            f"{name!r} cannot be the name of an agent: use at most 25 lower-case letters, "
            "digits and _, and begin with a letter."
        )
    if max(map(len, (description, example))) > _LONGEST:
        raise click.ClickException(f"Description and example have {_LONGEST} characters at most.")
    for other in ("services", "services/agents", "libs"):
        if (root / other / name).exists():
            raise click.ClickException(f"{other}/{name} exists already; choose another name.")
    folder = root / "services/agents" / name
    for path, content in agent_files(name, description, example, keyword).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, encoding="utf-8")
        click.echo(f"services/agents/{name}/{path}")
    click.echo("\nNext: `make generate` installs it and writes its container and its chart row.")
    click.echo(f"Then: `.venv/bin/pytest services/agents/{name}`, and `bos serve all` has it.")


def agent_files(name: str, description: str, example: str, keyword: str) -> dict[str, str]:
    """Content of each file of the agent, by its path in the agent's folder."""
    words = name.replace("_", " ")
    given = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "upper": name.upper(),
        "title": "".join(part.capitalize() for part in name.split("_")),
        "description": _plain(description) or f"Does the step {words}",
        "example": _plain(example) or f"Do the {words} of the earlier steps",
        "keyword": _plain(keyword).lower() or words,
    }
    templates = files(__package__) / "template"
    return {
        path.format(name=name): _sorted_imports(
            Template((templates / template).read_text(encoding="utf-8")).substitute(given)
        )
        for path, template in _PLACES.items()
    }


def _sorted_imports(content: str) -> str:
    """The content with our imports in the order that ruff wants, which the name decides."""
    return _OURS.sub(lambda found: "".join(sorted(found[0].splitlines(keepends=True))), content)


def _plain(text: str) -> str:
    """Text that can stand between double quotes in Python and TOML."""
    return " ".join(text.split()).replace("\\", "/").replace('"', "'").rstrip(".")


def _checkout(start: Path) -> Path:
    """Root of the checkout that ``start`` is in."""
    for folder in (start, *start.parents):
        if (folder / "services/agents").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise click.ClickException("There is no services/agents here; run it in a checkout of Bos.")
