"""The entry about the settings that a service starts with: a digest, and what is no default."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
from attrs import evolve
from pydantic import BaseModel, SecretStr

from bos_postgres.audit.actors import By
from bos_postgres.audit.entries import AuditEntry, record
from bos_postgres.connections import acquire, statement_errors

_ACTION: Final = "settings.read"
_LINE_CHARS: Final = 250
_MAX_LINES: Final = 12
# Looked for among so many entries of the service itself: a start must not read a whole trail.
_LATEST: Final = """
SELECT digest FROM (
    (SELECT 1 AS place, entry_id AS at, action, details->>'digest' AS digest
     FROM audit_pending WHERE actor = $1 ORDER BY entry_id DESC LIMIT 1000)
    UNION ALL
    (SELECT 0, position, action, details->>'digest'
     FROM audit_trail WHERE actor = $1 ORDER BY position DESC LIMIT 1000)
) AS own WHERE action = $2 ORDER BY place DESC, at DESC LIMIT 1
"""


async def record_settings(
    pool: asyncpg.Pool[asyncpg.Record], service: str, settings: BaseModel
) -> None:
    """Write which settings ``service`` starts with, unless the latest entry says the same.

    Raises:
        Unavailable: the database is away.
    """
    entry = settings_entry(service, settings)
    async with acquire(pool) as session:
        with statement_errors(session):
            if await session.fetchval(_LATEST, service, _ACTION) != entry.details["digest"]:
                await record(session, [entry])


def settings_entry(service: str, settings: BaseModel) -> AuditEntry:
    """The entry: a SHA-256 over all that is no secret, and the names of what is no default."""
    known = json.dumps(_known(settings), sort_keys=True)
    lines: list[str] = []
    for name in sorted(_changed(settings)):
        if lines and len(lines[-1]) + len(name) < _LINE_CHARS:
            lines[-1] += f" {name}"
        else:
            lines.append(name)
    details = {f"changed_{number:02}": line for number, line in enumerate(lines[:_MAX_LINES], 1)}
    digest = f"sha256:{hashlib.sha256(known.encode()).hexdigest()}"
    entry = By(service, "service").entry(_ACTION, service, digest=digest)
    return evolve(entry, details={**entry.details, **details})


def _known(value: Any) -> Any:
    """What of a setting may be known, as JSON; of secrets whether they are set."""
    if isinstance(value, SecretStr):
        return "secret"
    if isinstance(value, BaseModel):
        return {name: _known(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(key): _known(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_known(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(str(_known(each)) for each in value)
    if isinstance(value, bool | int | float | None):
        return value
    return _without_credentials(str(value))


def _without_credentials(text: str) -> str:
    """An address without user, password and options; any other text as it is."""
    if "://" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return "unreadable"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _changed(settings: BaseModel, prefix: str = "") -> Iterator[str]:
    """Names of the settings that differ from their defaults."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _changed(value, f"{prefix}{name}.")
        elif field.is_required() or value != field.get_default(call_default_factory=True):
            yield f"{prefix}{name}"
