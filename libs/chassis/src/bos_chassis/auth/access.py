"""Access of groups: agents, their tools, tables, and the role that reads them.

What a group may use is the operator's setting; who is in it, identity says (or the issuer's claim).
All users have what ``BOS_ACCESS_EVERYBODY`` gives, and beside it what their groups give; what is
nowhere named may not be used. Pure: settings in, answers out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from bos_chassis.names import MAX_NAMES, GroupName, is_name
from bos_chassis.settings import Settings
from bos_errors import FailedPrecondition

ALL = "*"
_MAX_GROUPS = 256
_MAX_ENTRIES = 1000
_MAX_NAMES_BYTES = MAX_NAMES * 68

_AGENT = re.compile(r"[a-z][a-z0-9_]{0,62}\*?")
_TOOL = re.compile(r"[a-z][a-z0-9_]{0,62}\.(?:[a-z][a-z0-9_]{0,62})?\*?")
_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def _checked(form: str, fits: Callable[[str], bool]) -> AfterValidator:
    def check(value: str) -> str:
        if not fits(value):
            raise ValueError(f'"{value[:80]}" is not {form}')
        return value

    return AfterValidator(check)


def _is_agent(text: str) -> bool:
    return text == ALL or _AGENT.fullmatch(text) is not None


def is_tool_pattern(text: str) -> bool:
    """Whether this names tools of an agent: ``mail.send``, ``mail.*`` or ``*``."""
    return text == ALL or (_TOOL.fullmatch(text) is not None and not text.endswith("."))


def _is_tables(text: str) -> bool:
    stem = text.removesuffix(ALL)
    plain = stem.isprintable() and stem == stem.strip() and ALL not in stem
    return text == ALL or (plain and all(stem.split(".")[:-1]) and not text.endswith("."))


def _is_database(text: str) -> bool:
    return text == ALL or (is_name(text) and ALL not in text)


_Agent = Annotated[
    str, _checked("an agent: write its name, a beginning with * behind, or *", _is_agent)
]
ToolPattern = Annotated[str, _checked("a tool: write agent.tool, agent.* or *", is_tool_pattern)]
_Tables = Annotated[
    str, _checked("a table: write table or schema.table, with * at the end alone", _is_tables)
]
_Database = Annotated[str, _checked("a database: write its name, or * for every one", _is_database)]
_DatabaseRole = Annotated[
    str,
    _checked(
        "a role: write lower-case letters, digits and _; not none",
        lambda text: _ROLE.fullmatch(text) is not None and text != "none",
    ),
]


class Grant(BaseModel):
    """What a group may use; what it leaves out gives nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: tuple[_Agent, ...] = Field(
        default=(), max_length=_MAX_ENTRIES, description="Agents: names, beginnings*, or *"
    )
    tools: tuple[ToolPattern, ...] = Field(
        default=(), max_length=_MAX_ENTRIES, description="Tools of these agents: agent.tool or *"
    )
    tables: dict[_Database, tuple[_Tables, ...]] = Field(
        default_factory=dict,
        max_length=_MAX_ENTRIES,
        description="Tables by database (* for every one), out of those that it offers at all",
    )
    database_role: dict[_Database, _DatabaseRole] = Field(
        default_factory=dict,
        max_length=_MAX_ENTRIES,
        description="Role of PostgreSQL, by database, that reads these tables",
    )

    @model_validator(mode="after")
    def _roles_read_something(self) -> Self:
        for database in self.database_role:
            if database == ALL or database not in self.tables:
                raise ValueError(
                    f'database_role names "{database[:80]}", which is not a database under tables'
                )
        return self

    def reads(self, database: str) -> tuple[str, ...]:
        """Patterns of the tables of ``database``; none if the grant gives nothing of it."""
        return (*self.tables.get(database, ()), *self.tables.get(ALL, ()))


_EVERYTHING = Grant(agents=(ALL,), tools=(ALL,), tables={ALL: (ALL,)})


class AccessSettings(Settings):
    """Who may use which agents, tools and tables. Nothing set means: everybody everything."""

    model_config = SettingsConfigDict(env_prefix="BOS_ACCESS_")

    groups: dict[GroupName, Grant] = Field(
        default_factory=dict,
        max_length=_MAX_GROUPS,
        description='What members may use beside everybody, as JSON: {"analysts": {"agents": '
        '["sql"], "tools": ["sql.*"], "tables": {"company": ["public.orders", "public.sales_*"]}, '
        '"database_role": {"company": "company_analysts"}}}',
    )
    everybody: Grant | None = Field(
        default=None,
        description="What everybody may use, groups or none, as JSON in the form of one group; "
        "unset: everything",
    )

    @property
    def of_everybody(self) -> Grant:
        """The grant of all users."""
        return _EVERYTHING if self.everybody is None else self.everybody

    @field_validator("groups")
    @classmethod
    def _names_fit_into_tokens(cls, groups: dict[str, Grant]) -> dict[str, Grant]:
        # As run tokens have them: characters beyond ASCII take six bytes each.
        sizes = sorted((len(json.dumps(name)) for name in groups), reverse=True)
        if sum(sizes[:MAX_NAMES]) > _MAX_NAMES_BYTES:
            raise ValueError(
                "names of groups are too long: a run token has no room for all that one user may "
                f"be in. {MAX_NAMES} of them may take {_MAX_NAMES_BYTES} bytes as JSON; shorten "
                "them"
            )
        return groups

    @model_validator(mode="after")
    def _roles_agree(self) -> Self:
        # A member of a group has what all users have as well: if the two read one database in two
        # ways, no member could read it at all.
        for name, grant in self.groups.items():
            for database in grant.tables:
                if not self.of_everybody.reads(database) or database == ALL:
                    continue
                own, all_of = grant.database_role.get(database), self.of_everybody.database_role
                if own != all_of.get(database):
                    raise ValueError(
                        f'BOS_ACCESS_GROUPS: group "{name}" reads the database "{database}" by '
                        "another database_role than everybody. Take the database out of the "
                        "tables of BOS_ACCESS_EVERYBODY, or give both the same role"
                    )
        return self


class ConflictingRoles(FailedPrecondition):
    """Groups of one member read a database by different roles: none of them is right for all."""

    default_reason = "DATABASE_ROLES_CONFLICT"


@dataclass(frozen=True, slots=True)
class Access:
    """Access of one caller: what all users may use, and the groups it is in."""

    grants: tuple[tuple[str, Grant], ...]
    """By group; that of all users comes first, under an empty name."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the caller that are defined."""
        return tuple(name for name, _ in self.grants if name)

    def may_use_agent(self, agent: str) -> bool:
        """Whether steps may be planned for and sent to ``agent``."""
        return any(_fits(agent, grant.agents) for _, grant in self.grants)

    def may_use_tool(self, agent: str, tool: str) -> bool:
        """Whether ``agent`` may use ``tool`` for this caller: one grant must give both."""
        return any(
            _fits(agent, grant.agents) and _fits(f"{agent}.{tool}", grant.tools)
            for _, grant in self.grants
        )

    def has_every_tool(self, agent: str) -> bool:
        """Whether no tool of ``agent``, of today or of tomorrow, is kept from this caller."""
        return any(
            _fits(agent, grant.agents) and (ALL in grant.tools or f"{agent}.*" in grant.tools)
            for _, grant in self.grants
        )

    def may_read(self, database: str, schema: str, table: str, *, default_schema: str) -> bool:
        """Whether a table that ``database`` offers may be read; names as the database has them."""
        full = f"{schema}.{table}"
        return any(
            _fits(full, [_with_schema(each, default_schema) for each in grant.reads(database)])
            for _, grant in self.grants
        )

    def table_patterns(self) -> Mapping[str, tuple[str, ...]]:
        """Table patterns that may be read, by database, as the operator wrote them; for people."""
        found: dict[str, dict[str, None]] = {}
        for _, grant in self.grants:
            for database, patterns in grant.tables.items():
                found.setdefault(database, {}).update(dict.fromkeys(patterns))
        return {database: tuple(patterns) for database, patterns in sorted(found.items())}

    def database_role(self, database: str) -> str:
        """The role that reads ``database`` for this caller; empty for the database's own user.

        A role may see rows that the other one of a member does not, so all groups that give tables
        of the database have to agree, also those that name none.

        Raises:
            ConflictingRoles: they do not.
        """
        roles = {
            group: grant.database_role.get(database, "")
            for group, grant in self.grants
            if grant.reads(database)
        }
        if len(set(roles.values())) > 1:
            names = ", ".join(f'"{name}"' if name else "everybody" for name in sorted(roles))
            raise ConflictingRoles(
                f'The database "{database}" cannot be read: of your groups, {names} read it by '
                "different roles. Ask the operator to give them one role, or to part the groups."
            )
        return next(iter(roles.values()), "")


class AccessRules:
    """Finds what the members of groups may use.

    Args:
        settings: What the operator gives to all users, and to groups.
    """

    def __init__(self, settings: AccessSettings) -> None:
        self._everybody = settings.of_everybody
        self._groups = dict(settings.groups)

    def of(self, groups: Iterable[str]) -> Access:
        """Access of a user in these groups; groups that are not configured give nothing."""
        known = sorted(self._groups.keys() & set(groups))
        return Access((("", self._everybody), *((name, self._groups[name]) for name in known)))

    def database_roles(self) -> Mapping[str, frozenset[str]]:
        """Every role that may be taken, by database; for a look whether they are there."""
        found: dict[str, set[str]] = {}
        for grant in (self._everybody, *self._groups.values()):
            for database, role in grant.database_role.items():
                found.setdefault(database, set()).add(role)
        return {database: frozenset(roles) for database, roles in found.items()}

    def databases(self) -> frozenset[str]:
        """Every database that a grant names."""
        grants = (self._everybody, *self._groups.values())
        return frozenset(name for grant in grants for name in grant.tables) - {ALL}


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(
        name.startswith(each.removesuffix(ALL)) if each.endswith(ALL) else name == each
        for each in patterns
    )


def _with_schema(pattern: str, default_schema: str) -> str:
    return pattern if pattern == ALL or "." in pattern else f"{default_schema}.{pattern}"
