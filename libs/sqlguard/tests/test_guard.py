import time

import pytest
from sqlglot import exp

from bos_sqlguard import FORBIDDEN_KEYWORDS, Guard, GuardPolicy, check_both, load_rules
from bos_sqlguard.grammar import Grammar
from bos_sqlguard.nodes import ARGUMENT_RULES, NODE_RULES, NODES

TABLES = frozenset({"orders", "customers"})


def guard(**changes: int) -> Guard:
    return Guard(GuardPolicy("postgres", TABLES, **changes))


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("SELECT a FROM orders", "SELECT a FROM orders LIMIT 11"),
        ("SELECT a FROM orders LIMIT 3", "SELECT a FROM orders LIMIT 3"),
        ("SELECT a FROM orders LIMIT 11", "SELECT a FROM orders LIMIT 11"),
        ("SELECT a FROM orders LIMIT 12", "SELECT a FROM orders LIMIT 11"),
        ("SELECT a FROM orders LIMIT ALL", "SELECT a FROM orders LIMIT 11"),
        ("SELECT a FROM orders LIMIT NULL", "SELECT a FROM orders LIMIT 11"),
        ("SELECT a FROM orders LIMIT -1", "SELECT a FROM orders LIMIT 11"),
        ("SELECT a FROM orders LIMIT (5)", "SELECT a FROM orders LIMIT (5)"),
        ("SELECT a FROM orders LIMIT 999999999999999999999", "SELECT a FROM orders LIMIT 11"),
        ("SELECT a FROM orders OFFSET 7", "SELECT a FROM orders LIMIT 11 OFFSET 7"),
        (
            "SELECT a FROM orders FETCH FIRST 500 ROWS ONLY",
            "SELECT a FROM orders FETCH FIRST 11 ROWS ONLY",
        ),
        (
            "SELECT a FROM orders UNION SELECT b FROM customers",
            "SELECT a FROM orders UNION SELECT b FROM customers LIMIT 11",
        ),
        ("(SELECT a FROM orders LIMIT 500)", "(SELECT a FROM orders LIMIT 500) LIMIT 11"),
        (
            "SELECT a FROM (SELECT a FROM orders LIMIT 500) AS x",
            "SELECT a FROM (SELECT a FROM orders LIMIT 500) AS x LIMIT 11",
        ),
    ],
)
@pytest.mark.requirement("D-16")
def test_the_row_limit_is_written_with_one_row_of_look_ahead(given: str, written: str) -> None:
    verdict = guard(max_rows=10).check(given)

    assert verdict.safe_sql == written
    assert verdict.limited == (given != written)


@pytest.mark.requirement("D-16")
def test_columns_are_counted_where_the_query_names_them() -> None:
    narrow = guard(max_columns=2)

    assert narrow.check("SELECT a, b FROM orders").is_safe
    assert narrow.check("SELECT * FROM orders").is_safe
    verdict = narrow.check("SELECT a, b, c FROM orders UNION SELECT 1, 2, 3")
    assert [violation.rule for violation in verdict.violations] == ["TOO_MANY_COLUMNS"]
    assert narrow.check("VALUES (1, 2, 3)").violations[0].rule == "TOO_MANY_COLUMNS"


def test_rows_listed_in_values_are_counted() -> None:
    small = guard(max_rows=2)

    assert small.check("VALUES (1), (2), (3)").is_safe
    assert small.check("VALUES (1), (2), (3), (4)").violations[0].rule == "TOO_MANY_ROWS"


@pytest.mark.requirement("D-14")
def test_every_keyword_is_found_in_any_case_but_not_in_text() -> None:
    for keyword in FORBIDDEN_KEYWORDS:
        mixed = keyword[0].lower() + keyword[1:]

        refused = guard().check(f"SELECT 1 FROM orders WHERE a = b OR {mixed}")
        passed = guard().check(
            f"SELECT '{keyword} x', a AS \"{keyword}\", {keyword}_date FROM orders -- {keyword}"
        )

        assert ("KEYWORD", keyword) in [(v.rule, v.detail) for v in refused.violations]
        assert passed.is_safe, keyword


def test_a_verdict_names_the_tables_but_not_the_ctes() -> None:
    query = "WITH n AS (SELECT * FROM public.orders) SELECT * FROM n JOIN CUSTOMERS ON true"

    assert guard().check(query).used_tables == ("customers", "orders")


def test_a_refusal_names_every_reason_for_people() -> None:
    verdict = guard().check("SELECT pg_sleep(1) FROM salaries")

    assert {(v.rule, v.detail) for v in verdict.violations} == {
        ("FUNCTION_NOT_ALLOWED", "pg_sleep"),
        ("TABLE_NOT_ALLOWED", "salaries"),
    }
    assert "the table salaries is not among the tables that may be read" in verdict.user_message
    assert "the function pg_sleep is not allowed" in verdict.user_message


@pytest.mark.parametrize(
    "bomb",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "NOT " * 4000 + "true",
        "SELECT " + "-" * 19_000 + "1",
        "SELECT " + "CASE WHEN " * 1500 + "1",
        "SELECT " + "1 + " * 2400 + "1",
        "SELECT 1 FROM " + ", ".join(["orders"] * 2400),
        "SELECT 1" + " UNION SELECT 1" * 1600,
        "WITH a AS (" * 50 + "SELECT 1" + ") SELECT 1" * 50,
        "SELECT '" + "\\" * 10_000,
    ],
    ids=lambda bomb: bomb[:20],
)
def test_oversized_and_deep_queries_end_in_a_verdict(bomb: str) -> None:
    verdict = guard().check(bomb)

    assert verdict.is_safe == bool(verdict.safe_sql) == (not verdict.violations)


@pytest.mark.parametrize(
    "bomb",
    [
        "SELECT 1 FROM orders" + " JOIN orders" * 300,
        "SELECT a::" + "int(" * 58 + "1" + ")" * 58,
        "SELECT " + "ARRAY[" * 58 + "1" + "]" * 58,
        "SELECT a" + "[1]" * 1200,
    ],
    ids=lambda bomb: bomb[:24],
)
def test_queries_that_make_the_parser_backtrack_are_given_up(bomb: str) -> None:
    started = time.process_time()

    verdict = guard().check(bomb)

    assert [violation.rule for violation in verdict.violations] == ["TOO_COMPLEX"]
    assert time.process_time() - started < 30  # unbounded, some of these take hours


def test_a_failing_guard_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = guard()

    def explode(*_: object) -> str:
        raise KeyError("internal detail")

    monkeypatch.setattr(Grammar, "write", explode)
    verdict = broken.check("SELECT 1")

    assert [violation.rule for violation in verdict.violations] == ["GUARD_ERROR"]
    assert "internal detail" not in verdict.user_message


def test_a_query_that_changes_by_writing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = guard()
    monkeypatch.setattr(Grammar, "write", lambda *_: "SELECT 1 FROM salaries")

    assert careless.check("SELECT 1 FROM orders").violations[0].rule == "TABLE_NOT_ALLOWED"
    monkeypatch.setattr(Grammar, "write", lambda *_: "SELECT 1 FROM customers")
    assert careless.check("SELECT 1 FROM orders").violations[0].rule == "UNSTABLE"


def test_nothing_but_listed_constructs_is_allowed() -> None:
    changing = [exp.Insert, exp.Update, exp.Delete, exp.Create, exp.Drop, exp.Command, exp.Merge]

    assert not [node for node in changing if node in NODES]
    assert not [node for node in NODE_RULES if node in NODES]
    assert not [pair for pair in ARGUMENT_RULES if pair[1] in NODES[pair[0]]]


def test_allowed_arguments_exist_on_their_nodes() -> None:
    unknown = {node.__name__: arguments - set(node.arg_types) for node, arguments in NODES.items()}

    assert not {name: extra for name, extra in unknown.items() if extra}


def test_every_rule_that_code_names_is_described() -> None:
    rules = load_rules()

    assert set(NODE_RULES.values()) | set(ARGUMENT_RULES.values()) <= set(rules)
    assert all(rule.title and rule.why and rule.message for rule in rules.values())


def test_impossible_allow_lists_and_limits_are_refused() -> None:
    for entry in ("*", "public.*", "", "pg_catalog.pg_class", "pg_shadow", "a."):
        with pytest.raises(ValueError, match="allowed_tables"):
            GuardPolicy("postgres", frozenset({entry}))
    for changes in ({"max_rows": 0}, {"max_columns": 0}):
        with pytest.raises(ValueError, match="max_rows"):
            GuardPolicy("postgres", TABLES, **changes)


def test_postgres_names_fold_and_sqlite_names_ignore_case() -> None:
    mixed = frozenset({"Orders"})

    assert Guard(GuardPolicy("postgres", mixed)).check('SELECT 1 FROM "Orders"').is_safe
    assert not Guard(GuardPolicy("postgres", mixed)).check("SELECT 1 FROM Orders").is_safe
    assert Guard(GuardPolicy("sqlite", mixed)).check("SELECT 1 FROM oRDERS").is_safe


@pytest.mark.requirement("D-15", "D-17")
def test_both_variants_are_checked_in_their_dialects() -> None:
    policy = GuardPolicy("postgres", frozenset({"public.orders"}))

    verdicts = check_both(
        policy,
        {"tsql": "SELECT TOP 3 a FROM dbo.orders", "sqlite": "SELECT a FROM orders LIMIT 3"},
    )

    assert verdicts.is_safe
    assert verdicts.violations == ()
    assert verdicts.safe_sql("tsql") == "SELECT TOP 3 a FROM dbo.orders"
    assert verdicts.safe_sql("sqlite") == "SELECT a FROM orders LIMIT 3"
    assert verdicts.safe_sql("postgres") == ""


@pytest.mark.requirement("D-15")
def test_one_unsafe_variant_makes_the_query_unsafe() -> None:
    policy = GuardPolicy("postgres", TABLES)

    verdicts = check_both(policy, {"postgres": "SELECT a FROM orders", "sqlite": "PRAGMA x"})

    assert not verdicts.is_safe
    assert verdicts.safe_sql("postgres")
    assert verdicts.safe_sql("sqlite") == ""
    assert verdicts.user_message.endswith(
        "only SELECT queries are allowed, this starts with PRAGMA."
    )


def test_a_variant_that_never_runs_is_checked_for_syntax_alone() -> None:
    tsql = Guard(GuardPolicy("tsql", TABLES))

    assert tsql.check_syntax("SELECT TOP 3 x FROM anything") is None
    problem = tsql.check_syntax("SELECT x FROM WHERE")
    assert problem is not None
    assert problem.rule == "PARSE"


def test_a_narrowed_guard_allows_some_of_the_tables() -> None:
    whole = Guard(GuardPolicy("postgres", frozenset({"orders", "crm.accounts"})))
    part = whole.narrowed(["orders"])
    assert part.check("SELECT id FROM orders").is_safe
    assert not part.check("SELECT id FROM crm.accounts").is_safe
    assert not part.check("SELECT 1 FROM orders JOIN crm.accounts ON true").is_safe
    assert whole.check("SELECT id FROM crm.accounts").is_safe
    with pytest.raises(ValueError, match="salaries"):
        whole.narrowed(["orders", "salaries"])
