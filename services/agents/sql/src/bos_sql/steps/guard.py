"""Step ``safety_check``: every query passes the guard before anything is done with it.

``bos_sqlguard`` decides; mcp_db runs the same guard again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bos_errors import ConfigurationError
from bos_sqlguard import DIALECTS, Dialect, Guard, GuardPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_sql.database.metadata import Overview
    from bos_sqlguard import Verdict, Violation

# A query that breaks only this rule is no attack but a slip: it is corrected like any syntax error
# that the database reports. It never runs either.
_SYNTAX_RULES = frozenset({"PARSE"})
_KEPT_POLICIES = 8


@dataclass(frozen=True, slots=True)
class ApprovedQuery:
    """A query that may run: the text that the guard wrote."""

    sql: str
    used_tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SafetyDecision:
    """What the guard says about a query that is to run."""

    approved: ApprovedQuery | None
    violations: tuple[Mapping[str, Any], ...] = ()
    """Broken rules: ``dialect``, ``rule``, ``message``, ``detail``."""
    user_message: str = ""
    is_syntax_error: bool = False
    """Refused only because it cannot be read."""


class QueryGuard:
    """The guard of one database. Shared by concurrent steps."""

    def __init__(self, policy: GuardPolicy) -> None:
        self.dialect = policy.dialect
        self._guards = {dialect: Guard(policy.for_dialect(dialect)) for dialect in DIALECTS}

    def check(self, sql: str) -> SafetyDecision:
        """Check a query in the dialect of the database; never raises."""
        verdict = self._guards[self.dialect].check(sql)
        if verdict.is_safe:
            return SafetyDecision(ApprovedQuery(verdict.safe_sql, verdict.used_tables))
        rules = {violation.rule for violation in verdict.violations}
        return SafetyDecision(
            approved=None,
            violations=tuple(_described(self.dialect, each) for each in verdict.violations),
            user_message=verdict.user_message,
            is_syntax_error=rules <= _SYNTAX_RULES,
        )

    def verdict(self, dialect: Dialect, sql: str) -> Verdict:
        """What the guard of another dialect says about a variant, which never runs."""
        return self._guards[dialect].check(sql)

    def is_approved(self, query: ApprovedQuery, sql: str) -> bool:
        """Whether ``sql``, about to be sent, is the approved query and passes by itself."""
        verdict = self._guards[self.dialect].check(sql)
        return sql == query.sql and verdict.is_safe and verdict.safe_sql == sql


class Guards:
    """Guards by policy, the latest eight: making one takes longer than checking a query."""

    def __init__(self) -> None:
        self._guards: dict[GuardPolicy, QueryGuard] = {}

    def for_overview(self, overview: Overview) -> QueryGuard:
        """The guard whose allow-list are the tables of ``overview``.

        Raises:
            ConfigurationError: the overview holds something that must never be readable.
        """
        try:
            policy = GuardPolicy(
                overview.dialect,
                frozenset(table.name for table in overview.tables),
                default_schema=overview.default_schema,
                max_rows=overview.max_rows,
                max_columns=overview.max_columns,
            )
        except ValueError as error:
            raise ConfigurationError(f"The database {overview.database!r}: {error}.") from None
        guard = self._guards.pop(policy, None) or QueryGuard(policy)
        self._guards[policy] = guard
        while len(self._guards) > _KEPT_POLICIES:
            del self._guards[next(iter(self._guards))]
        return guard


def _described(dialect: Dialect, violation: Violation) -> dict[str, Any]:
    return {"dialect": dialect, **asdict(violation)}
