"""``bos connect``: proposes what of a database may be read, and tests the role that reads it.

Exit codes: 0 done; 1 it could not be done; 2 the role was made and does not pass its tests.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

import click

from bos_errors import BosError, FailedPrecondition, InvalidArgument
from bos_mcp_db.connecting.allow_list import propose
from bos_mcp_db.connecting.drafting import draft_metadata
from bos_mcp_db.connecting.files import make_password, refuse_existing, write_text
from bos_mcp_db.connecting.introspection import introspect
from bos_mcp_db.connecting.roles.applying import apply_role
from bos_mcp_db.connecting.roles.script import role_script, role_url
from bos_mcp_db.connecting.roles.trial import try_role
from bos_mcp_db.connecting.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_mcp_db.connecting.allow_list import Proposal
    from bos_mcp_db.connecting.introspection import Found
    from bos_mcp_db.connecting.roles.trial import Finding

UNSAFE = 2
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Options:
    """Of the command line."""

    url: str
    role: str
    schemas: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    out: Path
    name: str
    ask_model: bool
    apply: bool
    force: bool

    @property
    def stem(self) -> str:
        """What files are called: after the database, if nothing else is said."""
        path = unquote(urlsplit(self.url).path).rstrip("/").rpartition("/")[2]
        return (
            self.name or re.sub(r"[^A-Za-z0-9_-]+", "-", Path(path).stem).strip("-") or "database"
        )

    @property
    def script(self) -> Path:
        """Of the role."""
        return (self.out / f"{self.stem}-role.sql").absolute()

    @property
    def metadata(self) -> Path:
        """What ``BOS_SQL_METADATA_PATH`` is to name."""
        return (self.out / f"{self.stem}-metadata.yaml").absolute()

    @property
    def password(self) -> Path:
        """Of the role; an existing one is used and never overwritten."""
        return (self.out / f"{self.stem}-{self.role}.password").absolute()


@click.command()
@click.argument("url")
@click.option(
    "--role", default="bos_reader", show_default=True, help="Name of the role that reads."
)
@click.option("--schema", "schemas", multiple=True, help="Only tables of this schema; repeatable.")
@click.option(
    "--include", multiple=True, help="Allow this table, whatever it looks like; repeatable."
)
@click.option("--exclude", multiple=True, help="Leave this table out; repeatable.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, exists=True, writable=True, path_type=Path),
    default=Path(),
    help="Folder of the files; by default this one.",
)
@click.option("--name", default="", help="What the files are called; by default as the database.")
@click.option("--no-model", is_flag=True, help="Draft from comments, keys and names alone.")
@click.option("--apply", is_flag=True, help="Run the role's script, then try the role.")
@click.option("--force", is_flag=True, help="Overwrite files; with --apply take over the role.")
def connect(
    url: str,
    role: str,
    schemas: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    out: Path,
    name: str,
    no_model: bool,
    apply: bool,
    force: bool,
) -> None:
    """Propose what of the database at URL may be read, and draft what its tables mean.

    URL is of an administrator: postgresql://, mysql://, mariadb://, mssql:// or sqlite:///file.db,
    best with ?password_file=/path in place of a password. It is written nowhere. Writes the script
    of a role that only reads, and a metadata file to check; prints the settings to use. The
    database is changed with --apply alone.
    """
    if name and not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
        raise click.ClickException("--name: only letters, digits, - and _.")
    try:
        urlsplit(url)
    except ValueError:
        raise click.ClickException("URL: this is none; see --help.") from None
    options = Options(url, role, schemas, include, exclude, out, name, not no_model, apply, force)
    try:
        is_safe = asyncio.run(_connect(options))
    except BosError as error:
        raise click.ClickException(one_line(error.message, 1_000)) from None
    sys.exit(0 if is_safe else UNSAFE)


async def _connect(options: Options) -> bool:
    """Do all of it; whether the role passed its tests, or none were due."""
    if not options.force:
        refuse_existing([options.script, options.metadata])
    found = await introspect(options.url, options.schemas)
    if options.apply and found.dialect == "tsql":
        raise InvalidArgument(
            "--apply is not for SQL Server: its script was never run against a real one. Read it,"
            " and run it yourself."
        )
    proposal = propose(found.tables, include=options.include, exclude=options.exclude)
    _show(found, proposal)
    if not proposal.tables:
        raise FailedPrecondition("No table is left to be read. See --include and --schema.")
    try:
        script = role_script(found.dialect, options.role, proposal.names, found.default_schema)
    except ValueError as error:
        raise InvalidArgument(f"--role: {error}.") from None
    metadata = await draft_metadata(
        proposal.tables, ask_model=options.ask_model, progress=_progress
    )
    click.echo(f"\n{one_line(metadata.author, 500)}")
    _list("To check in the metadata file:", metadata.to_check)
    if script:
        write_text(options.script, script, overwrite=options.force)
    write_text(options.metadata, metadata.text, overwrite=options.force)
    url = _file_url(options.url) if found.dialect == "sqlite" else _role_url(options)
    _show_settings(options, found, proposal, url)
    if not options.apply and found.dialect != "sqlite":
        return True
    if found.dialect != "sqlite":
        await _apply(options, script)
    left_out = [each.table for each in proposal.left_out]
    return _judged(await try_role(url, proposal.names, left_out))


def _role_url(options: Options) -> str:
    return role_url(options.url, options.role, options.password)


def _file_url(url: str) -> str:
    """URL of a SQLite file that means the same in every folder."""
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    return f"sqlite:///{quote(str(path.absolute()))}"


async def _apply(options: Options, script: str) -> None:
    known = options.password.exists()
    if not known:
        make_password(options.password)
    try:
        await apply_role(
            options.url,
            script,
            options.role,
            options.password,
            may_exist=known or options.force,
        )
    except BaseException:
        if not known:
            options.password.unlink()
        raise
    click.echo(f"\nThe role {options.role} is made; its password is in {options.password}.")


def _progress(text: str) -> None:
    click.echo(one_line(text, 200), err=True)


def _show(found: Found, proposal: Proposal) -> None:
    _list(f"Proposed to be read ({len(proposal.tables)}):", proposal.names)
    left_out = (*proposal.left_out, *found.unwritable)
    _list("Left out:", [f"{each.table}: {each.reason}" for each in left_out])
    _list("To check before it is read:", proposal.to_check)


def _show_settings(options: Options, found: Found, proposal: Proposal, url: str) -> None:
    click.echo("\nWritten:")
    if found.dialect != "sqlite":
        click.echo(f"  {options.script}: the role, for an administrator to run")
    click.echo(f"  {options.metadata}: what the tables mean")
    if found.dialect == "sqlite":
        click.echo("SQLite has no roles: the file is opened to be read only.")
    elif not options.apply:
        click.echo(f"  not yet {options.password}: the role's password, which you put there")
    click.echo("\nSettings:")
    for variable, value in (
        ("BOS_DATABASE_URL", url),
        ("BOS_DATABASE_ALLOWED_TABLES", ",".join(proposal.names)),
        ("BOS_SQL_METADATA_PATH", str(options.metadata)),
    ):
        click.echo(f"{variable}={shlex.quote(value)}")


def _judged(findings: Sequence[Finding]) -> bool:
    click.echo("\nThe role was tried:")
    for finding in findings:
        click.echo(f"  {'ok      ' if finding.ok else 'PROBLEM '} {one_line(finding.text, 400)}")
    if all(finding.ok for finding in findings):
        return True
    click.echo("Do not use it before this is mended: REVOKE what it may do beyond reading.")
    return False


def _list(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    click.echo(f"\n{title}")
    for line in lines[:_SHOWN]:
        click.echo(f"  {one_line(line, 400)}")
    if len(lines) > _SHOWN:
        click.echo(f"  and {len(lines) - _SHOWN} more")
