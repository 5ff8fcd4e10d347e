"""What groups give: unions that are never wider than their parts, and settings that fail closed."""

import json
from typing import Any

import pytest

from bos_chassis.auth.access import AccessRules, AccessSettings, ConflictingRoles
from bos_chassis.auth.callers import Principal, RunTokenSigner, generate_keypair
from bos_chassis.auth.roles import require_role
from bos_chassis.names import ROLES
from bos_errors import ConfigurationError, PermissionDenied

NO_RULES: dict[str, Any] = {}
ANALYSTS = {
    "agents": ["sql", "comp*"],
    "tools": ["sql.*", "computation.plot_*"],
    "tables": {"company": ["public.orders", "sales_*", "hr.*"]},
    "database_role": {"company": "company_analysts"},
}


def rules(everybody: dict[str, Any] | None = NO_RULES, **groups: Any) -> AccessRules:
    chosen = {} if everybody is None else {"everybody": everybody}
    return AccessRules(AccessSettings.load(groups=groups, **chosen))


def reads(access: Any, database: str, table: str) -> bool:
    schema, _, name = table.rpartition(".")
    return bool(access.may_read(database, schema or "public", name, default_schema="public"))


def test_without_settings_everybody_may_use_everything() -> None:
    access = AccessRules(AccessSettings.load()).of(())
    assert access.may_use_agent("sql")
    assert access.may_use_tool("mail", "send")
    assert access.has_every_tool("mail")
    assert reads(access, "company", "hr.salaries")
    assert access.database_role("company") == ""


def test_group_gives_its_members_alone_what_it_names() -> None:
    found = rules(analysts=ANALYSTS)
    member, outsider = found.of(["analysts", "unheard-of"]), found.of(["unheard-of"])
    assert [member.may_use_agent(n) for n in ("sql", "computation", "mail", "sqlx")] == [
        *(True, True, False, False)
    ]
    assert member.may_use_tool("computation", "plot_line")
    assert not member.may_use_tool("computation", "write")
    assert member.has_every_tool("sql")
    assert not member.has_every_tool("computation")
    seen = ("orders", "public.orders", "sales_2024", "hr.salaries")
    assert [reads(member, "company", table) for table in seen] == [True] * 4
    hidden = ("orders_old", "crm.sales_2024", "hrx.salaries", "Orders")
    assert [reads(member, "company", table) for table in hidden] == [False] * 4
    assert not reads(member, "other", "orders")
    assert member.database_role("company") == "company_analysts"
    assert not outsider.may_use_agent("sql")
    assert not outsider.may_use_tool("sql", "anything")
    assert not reads(outsider, "company", "orders")


def test_grants_add_up_without_sharing_tools() -> None:
    everybody = {"agents": ["computation"], "tools": ["*"]}
    found = rules(everybody, analysts=ANALYSTS, mailers={"agents": ["mail"]})
    assert all(map(found.of(["analysts", "mailers"]).may_use_agent, ("computation", "sql", "mail")))
    access = found.of(["mailers"])
    assert not access.may_use_agent("sql")
    assert access.may_use_tool("computation", "plot")
    assert access.may_use_agent("mail")
    assert not access.may_use_tool("mail", "send")


def test_database_is_read_by_a_role_of_all_groups_or_not_at_all() -> None:
    same = {"tables": {"company": ["orders"]}, "database_role": {"company": "r1"}}
    other = {"tables": {"company": ["sales"]}, "database_role": {"company": "r2"}}
    plain = {"tables": {"*": ["notes"]}}
    found = rules(a=same, b=same, c=other, d=plain)
    assert found.of(["a", "b"]).database_role("company") == "r1"
    assert found.of(["c"]).database_role("company") == "r2"
    assert found.of(["d"]).database_role("company") == ""
    assert found.of(["a", "d"]).database_role("elsewhere") == ""
    for groups in (["a", "c"], ["a", "d"]):
        with pytest.raises(ConflictingRoles, match='"a"'):
            found.of(groups).database_role("company")
    assert found.database_roles() == {"company": {"r1", "r2"}}


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("agents", ["s*l"], '"s*l"'),
        ("tools", ["send"], '"send"'),
        ("tools", ["*.send"], '"*.send"'),
        ("tables", {"company": ["*.orders"]}, '"*.orders"'),
        ("tables", {"company": ["public."]}, '"public."'),
        ("tables", {"comp*": ["orders"]}, '"comp*"'),
        ("database_role", {"company": "none"}, '"none"'),
        ("database_role", {"company": 'a"; reset role'}, "reset role"),
        ("database_role", {"company": "fine"}, '"company"'),
        ("agent", ["sql"], "AGENT"),
    ],
)
def test_an_odd_entry_ends_the_process_and_is_named(
    part: str, value: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_ACCESS_GROUPS", json.dumps({"analysts": {part: value}}))
    with pytest.raises(ConfigurationError) as raised:
        AccessSettings.load()
    assert "BOS_ACCESS_GROUPS" in raised.value.message
    assert said in raised.value.message


def test_role_beside_tables_of_all_users_is_refused_at_start() -> None:
    for everybody in (None, {"tables": {"company": ["notes"]}}):
        with pytest.raises(ConfigurationError, match='group "analysts"'):
            rules(everybody, analysts=ANALYSTS)
    both = {"tables": {"company": ["notes"]}, "database_role": {"company": "company_analysts"}}
    assert rules(both, analysts=ANALYSTS).of([]).database_role("company") == "company_analysts"


def test_names_of_groups_must_fit_into_a_run_token() -> None:
    """All at once: a user may be in all of them."""
    signer = RunTokenSigner(generate_keypair()[0])
    longest = [f"{number:064}" for number in range(64)]
    AccessSettings.load(groups={name: {} for name in longest})
    assert signer.mint("u" * 128, "r" * 36, "s" * 80, ["a" * 63] * 4, 60, groups=longest)
    with pytest.raises(ConfigurationError, match="BOS_ACCESS_GROUPS"):
        AccessSettings.load(groups={"ü" * 62 + f"{number:02}": {} for number in range(64)})


def test_patterns_are_shown_to_people_by_database() -> None:
    found = rules({"tables": {"*": ["notes"]}}, analysts={"tables": {"company": ["orders"]}})
    assert found.of(["analysts"]).table_patterns() == {"*": ("notes",), "company": ("orders",)}
    assert found.databases() == {"company"}


def test_a_role_is_required_of_everybody_who_is_known() -> None:
    user = Principal("anna", "", "", "user_token", roles=frozenset({"user"}))
    require_role(user, "user")
    require_role(None, "administrator")
    for role in ROLES[1:]:
        with pytest.raises(PermissionDenied, match=role) as refused:
            require_role(user, role)
        assert refused.value.reason == "ROLE_REQUIRED"
