"""``bos connect``: proposes what of a database may be read, and tests the role that reads it.

Exit codes: 0 done; 1 it could not be done; 2 the role was made and does not pass its tests.
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import click

from bos_errors import BosError, FailedPrecondition, InvalidArgument
from bos_mcp_db.connecting.allow_list import propose
from bos_mcp_db.connecting.drafting import draft_metadata
from bos_mcp_db.connecting.files import make_folder, make_password, refuse_existing, write_text
from bos_mcp_db.connecting.introspection import introspect
from bos_mcp_db.connecting.report import Report
from bos_mcp_db.connecting.roles.applying import apply_role, has_role, role_exists
from bos_mcp_db.connecting.roles.script import role_script, role_url
from bos_mcp_db.connecting.roles.trial import try_role
from bos_mcp_db.connecting.texts import one_line

UNSAFE = 2
_ROLE = "bos_reader"
_STEM_CHARS = 40  # names of PostgreSQL have 63 bytes


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
    "--role",
    default="",
    help="Name of the role that reads; by default bos_reader, or where another database on the"
    " server has that one, bos_reader_ and the name of this one.",
)
@click.option("--schema", "schemas", multiple=True, help="Only tables of this schema; repeatable.")
@click.option(
    "--include", multiple=True, help="Allow this table, also if it looks like secrets; repeatable."
)
@click.option("--exclude", multiple=True, help="Leave this table out; repeatable.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder of the files, made where there is none; by default this one.",
)
@click.option("--name", default="", help="What the files are called; by default as the database.")
@click.option("--no-model", is_flag=True, help="Draft from comments, keys and names alone.")
@click.option("--apply", is_flag=True, help="Run the role's script, then try the role.")
@click.option(
    "--force", is_flag=True, help="Overwrite files; with --apply and --role take over that role."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")
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
    as_json: bool,
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
    report = Report(as_json)
    options = Options(
        url, role or _ROLE, schemas, include, exclude, out, name, not no_model, apply, force
    )
    try:
        make_folder(out)
        is_safe = asyncio.run(_connect(options, report, is_named=bool(role)))
    except BosError as error:
        raise click.ClickException(one_line(error.message, 1_000)) from None
    report.end()
    sys.exit(0 if is_safe else UNSAFE)


async def _connect(options: Options, report: Report, *, is_named: bool) -> bool:
    """Do all of it; whether the role passed its tests, or none were due.

    ``is_named``: the role's name was given.
    """
    if not options.force:
        refuse_existing([options.script, options.metadata])
    found = await introspect(options.url, options.schemas)
    if options.apply and found.dialect == "tsql":
        raise InvalidArgument(
            "--apply is not for SQL Server: its script was never run against a real one. Read it,"
            " and run it yourself."
        )
    if options.apply and found.dialect != "sqlite":
        options = await _with_free_role(options, is_named=is_named)
    proposal = propose(
        found.tables, found.sources, include=options.include, exclude=options.exclude
    )
    report.proposed(proposal, found.unusable)
    if not proposal.tables:
        raise FailedPrecondition("No table is left to be read. See --include and --schema.")
    try:
        script = role_script(found.dialect, options.role, proposal.names, found.default_schema)
    except ValueError as error:
        raise InvalidArgument(f"--role: {error}.") from None
    metadata = await draft_metadata(
        proposal.tables, ask_model=options.ask_model, progress=report.progress
    )
    report.drafted(metadata)
    if script:
        write_text(options.script, script, overwrite=options.force)
    write_text(options.metadata, metadata.text, overwrite=options.force)
    has_roles = found.dialect != "sqlite"
    url = _role_url(options) if has_roles else _file_url(options.url)
    settings = {
        "BOS_DATABASE_URL": url,
        "BOS_DATABASE_ALLOWED_TABLES": ",".join(proposal.names),
        "BOS_SQL_METADATA_PATH": str(options.metadata),
    }
    role = {"role": str(options.script)} if has_roles else {}
    report.written({**role, "metadata": str(options.metadata)}, settings)
    # In SQLite a view has no rights of its own: it shows what the tables that it reads may show.
    left_out = [each.table for each in proposal.left_out if has_roles or each.kind != "view"]
    if not has_roles:
        report.note("SQLite has no roles: the file is opened to be read only.")
        return report.tried("That connection", await try_role(url, proposal.names, left_out))
    if not options.apply:
        report.note(f"Once the role is made, put its password into {options.password}.")
        return True
    await _apply(options, script)
    report.note(f"The role {options.role} is made; its password is in {options.password}.")
    return report.tried("The role", await try_role(url, proposal.names, left_out))


async def _with_free_role(options: Options, *, is_named: bool) -> Options:
    """The options with a role that nothing else uses, found before a model is asked.

    A role is of this database where its password file is in the folder; any other is taken over
    by ``--force`` alone, and only by its name.

    Raises:
        FailedPrecondition: there is a role of that name already.
    """
    own = re.sub(r"[^a-z0-9_]", "_", options.stem.lower())[:_STEM_CHARS]
    choices = [options] if is_named else [options, replace(options, role=f"{_ROLE}_{own}")]
    for each in choices:
        if each.password.exists() or (is_named and options.force):
            return each
    for each in choices:
        if not await has_role(each.url, each.role):
            return each
    raise role_exists(choices[-1].role)


def _role_url(options: Options) -> str:
    return role_url(options.url, options.role, options.password)


def _file_url(url: str) -> str:
    """URL of a SQLite file that means the same in every folder."""
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    return f"sqlite:///{quote(str(path.absolute()))}"


async def _apply(options: Options, script: str) -> None:
    """Make the role, and the file of its password unless that exists."""
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
