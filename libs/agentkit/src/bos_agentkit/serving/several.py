"""Settings of one package that is several agents: entries by name, from a variable and a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from bos_errors import ConfigurationError

E = TypeVar("E")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_MAX_FILE_BYTES = 1024 * 1024


def checked_names(entries: dict[str, E]) -> dict[str, E]:
    """The entries, each under a name that an agent may have.

    Raises:
        ValueError: names those that none may have.
    """
    if wrong := [name for name in entries if not _NAME.fullmatch(name)]:
        raise ValueError(
            f"{', '.join(name[:40] for name in wrong)}: a name has lower-case letters, digits "
            "and underscores, and begins with a letter"
        )
    return entries


def with_file(
    entries: dict[str, E], file: Path | None, adapter: TypeAdapter[dict[str, E]], variable: str
) -> Mapping[str, E]:
    """Entries of the variable and of the file.

    Args:
        entries: Those of the variable.
        file: JSON of the same form; None: there is none.
        adapter: Reads it.
        variable: That holds the entries; the file's has ``_FILE`` behind it.

    Raises:
        ConfigurationError: the file cannot be read, or an entry of it is wrong; names the field
            and no value.
    """
    if file is None:
        return entries
    try:
        with file.open("rb") as opened:
            more = checked_names(adapter.validate_json(opened.read(_MAX_FILE_BYTES)))
    except OSError:
        raise ConfigurationError(
            f"The file of {variable}_FILE cannot be read; correct its path or its mode."
        ) from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"])) or "file"
        raise ConfigurationError(f"{variable}_FILE: {where}: {problem['msg']}") from None
    except ValueError as error:
        raise ConfigurationError(f"{variable}_FILE: {error}") from None
    if twice := entries.keys() & more.keys():
        raise ConfigurationError(
            f"{variable} and {variable}_FILE both have {', '.join(sorted(twice))}."
        )
    return {**entries, **more}


def the_chosen(entries: Mapping[str, E], agent: str, *, variable: str, none: str) -> tuple[str, E]:
    """Name and entry that this process serves.

    Args:
        entries: All of them.
        agent: Name of the one; may be empty where there is one.
        variable: That names it.
        none: What to say where there are no entries.

    Raises:
        ConfigurationError: there is none, or there are several and none is named.
    """
    if not entries:
        raise ConfigurationError(none)
    name = agent or (next(iter(entries)) if len(entries) == 1 else "")
    if name not in entries:
        raise ConfigurationError(
            f"{variable} names the server that this process serves; there are: "
            f"{', '.join(entries)}."
        )
    return name, entries[name]
