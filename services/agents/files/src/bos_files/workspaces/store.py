"""Workspaces in PostgreSQL: files, versions, pending deletions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from bos_errors import AlreadyExists, NotFound, ResourceExhausted
from bos_files.workspaces.rows import COLUMNS, Held, Stored
from bos_postgres import execute, fetch, fetchrow, for_user
from bos_postgres.audit import deed, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from bos_files.workspaces.rows import Writing
    from bos_postgres.audit import By

    Pool = asyncpg.Pool[asyncpg.Record]

STORING_S: Final = 180.0
"""Longest time that storing a content takes, beyond the deadline of the artefact store."""

# Writers of one workspace take turns while they are counted.
_LOCK: Final = "SELECT pg_advisory_xact_lock(20261125, hashtext($1))"
_CURRENT: Final = f"""
SELECT {COLUMNS} FROM files AS f
JOIN versions AS v ON v.file_id = f.file_id AND v.number = f.current
WHERE f.user_id = $1 AND f.name = $2
"""  # noqa: S608  our own text
_GET: Final = for_user(_CURRENT)
_LIST: Final = for_user(f"""
SELECT {COLUMNS} FROM files AS f
JOIN versions AS v ON v.file_id = f.file_id AND v.number = f.current
WHERE f.user_id = $1 AND f.name COLLATE "C" > $2
  AND (cardinality($4::text[]) = 0 OR f.name ILIKE ALL ($4))
ORDER BY f.name COLLATE "C" LIMIT $3
""")  # noqa: S608
_VERSIONS: Final = for_user(f"""
SELECT {COLUMNS} FROM files AS f JOIN versions AS v ON v.file_id = f.file_id
WHERE f.user_id = $1 AND f.name = $2 ORDER BY v.number DESC
""")  # noqa: S608
_COUNT: Final = """
SELECT (SELECT count(*) FROM files WHERE user_id = $1)::int AS files,
       (SELECT coalesce(sum(size_bytes), 0) FROM versions
        WHERE user_id = $1 AND state <> 'deleting')::bigint AS size_bytes
"""
_HELD: Final = for_user(_COUNT)
_STORING: Final = """
INSERT INTO versions (version_id, user_id, digest, size_bytes, media_type, state, origin, tainted,
                      run_id, step_key)
VALUES ($1, $2, decode($3, 'hex'), $4, $5, 'storing', $6, $7, $8, $9)
"""
_NEW_FILE: Final = """
INSERT INTO files (file_id, user_id, name, current) VALUES ($1, $2, $3, 1)
"""
_STORED: Final = """
UPDATE versions SET state = 'stored', file_id = $2, number = $3, created_at = now()
WHERE version_id = $1 AND state = 'storing' RETURNING version_id
"""
_MADE_CURRENT: Final = "UPDATE files SET current = $2 WHERE file_id = $1"
_NEXT_NUMBER: Final = "SELECT max(number) + 1 FROM versions WHERE file_id = $1"
_DROP: Final = """
UPDATE versions SET state = 'deleting', file_id = NULL, number = NULL, touched_at = now()
WHERE version_id = $1
"""
_DROP_OLD: Final = """
UPDATE versions SET state = 'deleting', file_id = NULL, number = NULL, touched_at = now()
WHERE file_id = $1 AND number <= $2 RETURNING version_id
"""
_DROP_ALL: Final = """
UPDATE versions SET state = 'deleting', file_id = NULL, number = NULL, touched_at = now()
WHERE file_id = $1 RETURNING version_id
"""
_DELETE_FILE: Final = "DELETE FROM files WHERE file_id = $1"
_RENAME: Final = "UPDATE files SET name = $2, renamed_from = $3 WHERE file_id = $1"
# Includes what a killed process left: past the time limit of storing, no process stores it.
_ABANDONED: Final = """
SELECT version_id, user_id FROM versions
WHERE state = 'deleting' OR (state = 'storing' AND touched_at < now() - make_interval(secs => $1))
ORDER BY touched_at LIMIT $2
"""
_GONE: Final = "DELETE FROM versions WHERE version_id = $1 AND state <> 'stored'"
_CLAIM: Final = """
UPDATE versions SET state = 'deleting', touched_at = now()
WHERE version_id = $1 AND state <> 'stored' RETURNING version_id
"""
_HIDE_ALL: Final = """
UPDATE versions SET state = 'deleting', file_id = NULL, number = NULL, touched_at = now()
WHERE user_id = $1
"""
_OF_USER: Final = "SELECT version_id FROM versions WHERE user_id = $1 ORDER BY version_id LIMIT $2"
_LEFT: Final = "SELECT count(*) FROM versions WHERE user_id = $1"
_EXPORTED: Final = f"""
SELECT {COLUMNS} FROM files AS f JOIN versions AS v ON v.file_id = f.file_id
WHERE f.user_id = $1 AND (f.name COLLATE "C", v.number) > ($2, $3)
ORDER BY f.name COLLATE "C", v.number LIMIT 50
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Quota:
    """Bounds of one workspace."""

    files: int
    size_bytes: int
    versions: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A version that was written, or was there, and those that it displaced."""

    stored: Stored
    existed: bool
    displaced: Sequence[UUID] = ()


class Store:
    """Rows of workspaces.

    Args:
        pool: Connections of the service's own role.
        readers: Connections of the role that sees the rows of one user.
        quota: Of each user.
    """

    def __init__(self, pool: Pool, readers: Pool, quota: Quota) -> None:
        self._pool = pool
        self._readers = readers
        self.quota = quota

    async def current(self, user_id: str, name: str) -> Stored:
        """The current version of a file.

        Raises:
            NotFound: the user has no file of this name.
        """
        row = await fetchrow(self._readers, _GET, user_id, user_id, name)
        if row is None:
            raise no_file()
        return Stored.of(row)

    async def versions(self, user_id: str, name: str) -> list[Stored]:
        """All kept versions, newest first.

        Raises:
            NotFound: as :meth:`current`.
        """
        rows = await fetch(self._readers, _VERSIONS, user_id, user_id, name)
        if not rows:
            raise no_file()
        return [Stored.of(row) for row in rows]

    async def listed(
        self, user_id: str, after: str, limit: int, patterns: Sequence[str] = ()
    ) -> list[Stored]:
        """Files behind the name ``after``, in the order of their names.

        Args:
            user_id: Whose they are.
            after: The name before the first.
            limit: Most files.
            patterns: Patterns of ILIKE that the names must all match.
        """
        rows = await fetch(self._readers, _LIST, user_id, user_id, after, limit, list(patterns))
        return [Stored.of(row) for row in rows]

    async def held(self, user_id: str) -> Held:
        """Usage of the workspace."""
        row = await fetchrow(self._readers, _HELD, user_id, user_id)
        return Held(row["files"], row["size_bytes"]) if row else Held(0, 0)

    async def begin(self, user_id: str, writing: Writing) -> UUID | Stored:
        """The row of a content, so that its blob has an owner before it is stored.

        Returns:
            Its id, or the current version where that has this content already.

        Raises:
            ResourceExhausted: the workspace would hold more than it may; names the limit.
        """
        async with deed(self._pool) as connection:
            await connection.execute(_LOCK, user_id)
            row = await connection.fetchrow(_CURRENT, user_id, writing.name)
            current = None if row is None else Stored.of(row)
            if current is not None and current.digest == writing.digest:
                return current
            held = await connection.fetchrow(_COUNT, user_id)
            assert held is not None
            if current is None and held["files"] >= self.quota.files:
                raise ResourceExhausted(
                    f"Your workspace has {held['files']} files, and {self.quota.files} is the most;"
                    " delete one first.",
                    reason="FILE_COUNT_LIMIT",
                )
            if held["size_bytes"] + writing.size_bytes > self.quota.size_bytes:
                raise ResourceExhausted(
                    f"Your files, with their earlier versions, would have more than "
                    f"{self.quota.size_bytes} bytes; delete one first.",
                    reason="FILE_BYTES_LIMIT",
                )
            version_id = uuid4()
            await connection.execute(
                _STORING,
                version_id,
                user_id,
                writing.digest,
                writing.size_bytes,
                writing.media_type,
                writing.origin,
                writing.tainted,
                writing.run_id,
                writing.step_key,
            )
        return version_id

    async def commit(self, user_id: str, version_id: UUID, writing: Writing, by: By) -> Committed:
        """Make a stored content the current version of its file.

        What the same step wrote before is replaced, and versions beyond the limit are dropped.

        Raises:
            NotFound: the content was collected meanwhile, or its account is being deleted.
            ResourceExhausted: other writers took the last place for a file.
        """
        async with deed(self._pool) as connection:
            await connection.execute(_LOCK, user_id)
            row = await connection.fetchrow(_CURRENT, user_id, writing.name)
            current = None if row is None else Stored.of(row)
            if current is not None and current.digest == writing.digest:
                await connection.execute(_DROP, version_id)
                return Committed(current, existed=True, displaced=[version_id])
            displaced: list[UUID] = []
            if current is None:
                held = await connection.fetchrow(_COUNT, user_id)
                if held is not None and held["files"] >= self.quota.files:
                    raise ResourceExhausted(
                        f"Your workspace has {self.quota.files} files, which is the most.",
                        reason="FILE_COUNT_LIMIT",
                    )
                file_id, number = uuid4(), 1
                await connection.execute(_NEW_FILE, file_id, user_id, writing.name)
            else:
                file_id = current.file_id
                number = await connection.fetchval(_NEXT_NUMBER, file_id)
                if writing.step_key and current.step_key == writing.step_key:
                    number = current.number
                    await connection.execute(_DROP, current.version_id)
                    displaced.append(current.version_id)
            if await connection.fetchval(_STORED, version_id, file_id, number) is None:
                raise NotFound("The file was deleted while it was written; write it again.")
            await connection.execute(_MADE_CURRENT, file_id, number)
            oldest = number - self.quota.versions
            dropped = await connection.fetch(_DROP_OLD, file_id, oldest)
            displaced += [each["version_id"] for each in dropped]
            action = "file.uploaded" if writing.origin == "upload" else "file.written"
            await record(connection, [by.entry(action, str(file_id))])
            row = await connection.fetchrow(_CURRENT, user_id, writing.name)
            assert row is not None
        return Committed(Stored.of(row), existed=False, displaced=displaced)

    async def delete(
        self, user_id: str, name: str, by: By, *, digest: str | None = None
    ) -> list[UUID]:
        """Take a file from sight; returns its versions, whose blobs can then be deleted.

        Raises:
            NotFound: there is none, or its current content is not that of ``digest``.
        """
        async with deed(self._pool) as connection:
            await connection.execute(_LOCK, user_id)
            row = await connection.fetchrow(_CURRENT, user_id, name)
            if row is None or (digest is not None and row["digest"].hex() != digest):
                raise no_file()
            dropped = await connection.fetch(_DROP_ALL, row["file_id"])
            await connection.execute(_DELETE_FILE, row["file_id"])
            await record(connection, [by.entry("file.deleted", str(row["file_id"]))])
        return [each["version_id"] for each in dropped]

    async def rename(self, user_id: str, name: str, new_name: str, by: By) -> Stored:
        """Give a file another name. Nothing is overwritten; done already, it is done.

        Raises:
            NotFound: there is no such file.
            AlreadyExists: the new name is taken.
        """
        async with deed(self._pool) as connection:
            await connection.execute(_LOCK, user_id)
            taken = await connection.fetchrow(_CURRENT, user_id, new_name)
            row = await connection.fetchrow(_CURRENT, user_id, name)
            if row is None:
                if taken is not None and taken["renamed_from"] == name:
                    return Stored.of(taken)
                raise no_file()
            if taken is not None:
                raise AlreadyExists(
                    f"There is a file {new_name} already; choose another name.",
                    reason="FILE_NAME_TAKEN",
                )
            await connection.execute(_RENAME, row["file_id"], new_name, name)
            await record(connection, [by.entry("file.renamed", str(row["file_id"]))])
            row = await connection.fetchrow(_CURRENT, user_id, new_name)
            assert row is not None
        return Stored.of(row)

    async def abandoned(self, limit: int) -> list[tuple[UUID, str]]:
        """Versions, each with its user, whose blobs are to be deleted."""
        rows = await fetch(self._pool, _ABANDONED, STORING_S, limit)
        return [(row["version_id"], row["user_id"]) for row in rows]

    async def claim(self, version_id: UUID) -> bool:
        """Mark a version that is not stored for deletion; whether it may be deleted."""
        return await fetchrow(self._pool, _CLAIM, version_id) is not None

    async def gone(self, version_id: UUID) -> None:
        """Delete the row of a version whose blob was deleted."""
        await execute(self._pool, _GONE, version_id)

    async def hide_all(self, user_id: str) -> None:
        """Take all files of a user from sight, without an entry, for identity."""
        async with deed(self._pool) as connection:
            await connection.execute(_LOCK, user_id)
            await connection.execute(_HIDE_ALL, user_id)
            await connection.execute("DELETE FROM files WHERE user_id = $1", user_id)

    async def of_user(self, user_id: str, limit: int) -> list[UUID]:
        """Some versions of a user, in any state."""
        rows = await fetch(self._pool, _OF_USER, user_id, limit)
        return [row["version_id"] for row in rows]

    async def left(self, user_id: str) -> int:
        """How many versions of a user there are, in any state."""
        row = await fetchrow(self._pool, _LEFT, user_id)
        return int(row["count"]) if row else 0

    async def exported(self, user_id: str, name: str, number: int) -> list[Stored]:
        """Versions after this one, by name and number."""
        rows = await fetch(self._pool, _EXPORTED, user_id, name, number)
        return [Stored.of(row) for row in rows]


def no_file() -> NotFound:
    """There is no such file, as far as the caller may know."""
    return NotFound(
        "There is no such file in the workspace; `bos files list` and the tool list_files show "
        "what there is."
    )
