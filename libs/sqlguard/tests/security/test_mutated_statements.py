"""Mutants of the hostile corpus, and every payload at every place: none of them passes.

All of it comes from a fixed seed, so that a failure is the same everywhere.
"""

import random
import re
import time
from collections.abc import Callable, Iterator

import pytest

from bos_sqlguard import DIALECTS, Dialect, Guard

Corpus = Callable[[str, Dialect], list[tuple[str, str]]]
Mutation = Callable[[random.Random, str], str]

pytestmark = [pytest.mark.security, pytest.mark.thorough]

SEED = 20251122
MUTANTS = 2_500
# Literals, quoted names, comments and parameters stay as they are: changing them could disarm.
KEPT = re.compile(
    r"'(?:[^']|'')*'?|\"(?:[^\"]|\"\")*\"?|`[^`]*`?|\[[^\]]*\]?|\$\w*\$.*|--[^\n]*|/\*.*|[@$:#%?{]\S*"
)
GAPS = (" ", "\n", "\t", "  ", "\r\n", "/**/", " /* x */ ", " -- x\n", "/*'*/", "/*;*/", '/*"*/')

# The place of a subquery that yields one value.
PLACES = (
    "SELECT {}",
    "SELECT 1 FROM orders WHERE {} IS NULL",
    "SELECT 1 FROM orders WHERE 1 = {}",
    "SELECT 1 FROM orders WHERE order_id IN (1, {})",
    "SELECT 1 FROM orders WHERE order_id BETWEEN 1 AND {}",
    "SELECT 1 FROM orders WHERE status LIKE {}",
    "SELECT count(*) FROM orders GROUP BY {}",
    "SELECT count(*) FROM orders GROUP BY status HAVING count(*) > {}",
    "SELECT order_id FROM orders ORDER BY {}",
    "SELECT sum(amount) OVER (PARTITION BY {}) FROM orders",
    "SELECT sum(amount) OVER (ORDER BY {}) FROM orders",
    "SELECT sum(amount) OVER w FROM orders WINDOW w AS (ORDER BY {})",
    "SELECT count(*) FILTER (WHERE {} = 1) FROM orders",
    "SELECT CASE WHEN {} = 1 THEN 1 END",
    "SELECT CASE 1 WHEN {} THEN 1 END",
    "SELECT CASE WHEN 1 = 2 THEN 1 ELSE {} END",
    "SELECT coalesce(NULL, {})",
    "SELECT CAST({} AS integer)",
    "SELECT 1 + {} * 2",
    "SELECT NOT {} = 1",
    "SELECT o.order_id FROM orders AS o JOIN orders AS p ON p.order_id = {}",
    "SELECT o.order_id FROM orders AS o LEFT JOIN (SELECT {} AS a) AS x ON x.a = 1",
    "WITH w AS (SELECT {} AS a) SELECT a FROM w",
    "SELECT 1 UNION ALL SELECT {}",
    "SELECT {} EXCEPT SELECT 1",
    "SELECT (SELECT (SELECT {}))",
    "SELECT EXISTS (SELECT {})",
    "SELECT * FROM (VALUES ({})) AS v",
    "SELECT 1 LIMIT {}",
    "SELECT 1 LIMIT 1 OFFSET {}",
)
PAYLOADS: dict[str, tuple[str, ...]] = {
    "duckdb": (
        "(SELECT max(amount) FROM salaries)", "(FROM salaries)", "getenv('HOME')", "evil()",
        "(SELECT content FROM read_text('/etc/passwd'))", "(SELECT 1 FROM 'x.csv')", "$1", "$a",
        "(SELECT 1 FROM glob('/etc/*'))", "(SELECT 1 FROM duckdb_settings())", "sleep_ms(9000)",
        "(SELECT 1 FROM information_schema.tables)", "(SELECT 1 FROM query('FROM salaries'))",
        "(SELECT 1 FROM private.orders)", "current_setting('threads')", "current_user", "(#1)",
        "list_transform([1], x -> x)", "{'a': 1}", "repeat('x', 1000000000)", "E'\\x41'",
        "(SELECT 1 FROM orders TABLESAMPLE 10%)", "(SELECT 1 FROM orders FOR SHARE)",
        "(SELECT count(*) FROM range(1000000000))", "'x'.upper()", "COLUMNS('a')",
        "(WITH RECURSIVE salaries AS (FROM salaries) SELECT 1 FROM salaries)",
    ),
    "mysql": (
        "(SELECT MAX(amount) FROM salaries)", "(SELECT 1 FROM mysql.user)", "SLEEP(9)", "evil()",
        "(SELECT 1 FROM information_schema.tables)", "LOAD_FILE('/etc/passwd')", "@@version", "@a",
        "BENCHMARK(1000000000, 1)", "GET_LOCK('a', 9)", "(TABLE salaries)", "(SELECT 1 FROM x)",
        "(SELECT 1 FROM private.orders)", "USER()", "VERSION()", "sys.version_major()", "x'41'",
        "(SELECT 1 FROM orders FOR SHARE)", "REPEAT('x', 1000000000)", "_utf8'x'", "NEXTVAL(s)",
        "(SELECT 1 FROM seq_1_to_9)", "(SELECT 1 FROM orders PARTITION (p))", "(@a := 1)",
    ),
    "postgres": (
        "(SELECT max(amount) FROM salaries)", "(SELECT 1 FROM pg_authid)", "pg_sleep(9)",
        "(SELECT 1 FROM information_schema.tables)", "pg_read_file('/etc/passwd')",
        "set_config('a', 'b', false)", "lo_import('/etc/passwd')", "pg_catalog.pg_sleep(9)",
        "(SELECT * FROM dblink('', '') AS t (a int))", "'salaries'::regclass", "nextval('s')",
        "(SELECT 1 FROM private.orders)", "query_to_xml('TABLE salaries', true, true, '')",
        "(SELECT o.pg_typeof FROM orders AS o)", "current_user", "$1", "pg_advisory_lock(1)",
        "(SELECT 1 FROM orders FOR SHARE)", "(WITH x AS (DELETE FROM orders RETURNING 1) TABLE x)",
        "repeat('x', 1000000000)", "evil()", "E'\\x41'", "(SELECT xmin FROM orders)",
    ),
    "sqlite": (
        "(SELECT max(amount) FROM salaries)", "(SELECT 1 FROM sqlite_master)", "readfile('/x')",
        "load_extension('/tmp/x')", "(SELECT 1 FROM pragma_table_info('salaries'))", "evil()",
        "(SELECT 1 FROM temp.orders)", "(SELECT 1 FROM other.orders)", "randomblob(1000000000)",
        "(SELECT 1 FROM dbstat)", "writefile('/x', 'y')", "fts3_tokenizer('a')", "?1", ":a",
        "printf('%1000000000d', 1)", "(1 IN salaries)", "zeroblob(1000000000)", "changes()",
        "edit('x')", "sqlite_version()", "('a' REGEXP 'b')", "('a' MATCH 'b')",
        "(SELECT 1 FROM main.salaries)", "(SELECT 1 FROM sqlite_schema LIMIT 1)",
    ),
    "tsql": (
        "(SELECT MAX(amount) FROM salaries)", "(SELECT 1 FROM sys.tables)", "HOST_NAME()",
        "(SELECT 1 FROM master.dbo.orders)", "(SELECT 1 FROM OPENQUERY(x, 'y'))", "@@VERSION",
        "(SELECT 1 FROM OPENROWSET('a', 'b', 'c'))", "xp_cmdshell('dir')", "@x", "dbo.evil(1)",
        "(SELECT 1 FROM orders WITH (TABLOCKX))", "OBJECT_ID('x')", "SYSTEM_USER",
        "(SELECT 1 FROM orders CROSS APPLY salaries)", "SPACE(1000000000)",
    ),
}  # fmt: skip

# Inside another query a limit is irrelevant, and a bare word is a column.
ONLY_OUTERMOST = re.compile(r"\b(LIMIT|FETCH|TOP)\b", re.IGNORECASE)
QUERY = re.compile(r"[(\s]*(SELECT|WITH|VALUES)\b\s*[^\s)]", re.IGNORECASE)
NOT_ATTACKS = {
    "what no language model should send",
    "nothing",
    "blank",
    "half a query",
    "a table in another case",
    # sqlglot 30.30 joins a WITH with the one before it and leaves the clause out: harmless.
    "a search clause",
}
WRAPPINGS = (
    "({})",
    "(({}))",
    "SELECT * FROM ({}) AS w",
    "WITH w AS ({}) SELECT * FROM w",
    "SELECT 1 UNION ALL ({})",
    "SELECT 1 FROM orders WHERE order_id IN ({})",
    "SELECT 1 FROM orders WHERE EXISTS ({})",
    "SELECT CASE WHEN ({}) IS NULL THEN 1 END",
    "SELECT (SELECT 1 FROM ({}) AS w)",
    "WITH a AS (SELECT 1 AS x), b AS ({}) SELECT * FROM a, b",
)


def in_gaps(source: random.Random, statement: str, change: Callable[[str], str]) -> str:
    """Change the text between what is kept."""
    parts, end = [], 0
    for kept in KEPT.finditer(statement):
        parts += [change(statement[end : kept.start()]), kept.group()]
        end = kept.end()
    return "".join([*parts, change(statement[end:])])


def other_case(source: random.Random, statement: str) -> str:
    def change(text: str) -> str:
        return "".join(c.upper() if source.random() < 0.5 else c.lower() for c in text)

    return in_gaps(source, statement, change)


def other_spaces(source: random.Random, statement: str) -> str:
    def change(text: str) -> str:
        # The parser takes ORDER BY and its kin for one word, and a comment within for a mistake.
        return re.sub(r" +(?!BY\b)", lambda _: source.choice(GAPS), text)

    return in_gaps(source, statement, change)


def comments_at_signs(source: random.Random, statement: str) -> str:
    def change(text: str) -> str:
        return re.sub(r"[(),.]", lambda sign: f"/**/{sign.group()}/* ' */", text)

    return in_gaps(source, statement, change)


def quoted_table(source: random.Random, statement: str) -> str:
    quotes = source.choice(('""', "``", "[]"))
    return re.sub(r"\bsalaries\b", f"{quotes[0]}salaries{quotes[1]}", statement, count=1)


def more_behind(source: random.Random, statement: str) -> str:
    if not ONLY_OUTERMOST.search(statement) and source.random() < 0.2:
        return f"{statement} UNION SELECT 1"
    return statement + source.choice((";", " ;", " -- x", " /* x */", ";;", "\n", " ; SELECT 1"))


def more_before(source: random.Random, statement: str) -> str:
    head = source.choice(("/* x */ ", "-- x\n", "\n\n", "SELECT 1; ", ";", "WITH w AS (SELECT 1) "))
    return head + statement


def wrapped(source: random.Random, statement: str) -> str:
    if ONLY_OUTERMOST.search(statement) or not QUERY.match(statement):
        return statement
    return source.choice(WRAPPINGS).replace("{}", statement.rstrip("; "))


MUTATIONS: tuple[Mutation, ...] = (
    other_case,
    other_spaces,
    comments_at_signs,
    quoted_table,
    more_behind,
    more_before,
    wrapped,
)


def harms(heading: str) -> bool:
    """Whether these are attacks; what is only no query may become one when it is changed."""
    return heading.partition(" | ")[0] not in NOT_ATTACKS


def mutants(dialect: str, statements: list[str]) -> Iterator[str]:
    """Yield ``MUTANTS`` different mutants, each of one to three mutations."""
    source = random.Random(f"{SEED} {dialect}")
    seen = set(statements)
    while len(seen) < len(statements) + MUTANTS:
        mutant = source.choice(statements)
        for mutate in source.sample(MUTATIONS, source.randint(1, 3)):
            mutant = mutate(source, mutant)
        if mutant not in seen:
            seen.add(mutant)
            yield mutant


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_mutant_passes(dialect: Dialect, corpus: Corpus, guards: dict[str, Guard]) -> None:
    statements = sorted({s for heading, s in corpus("hostile", dialect) if harms(heading)})
    started = time.process_time()

    passed = [m for m in mutants(dialect, statements) if guards[dialect].check(m).is_safe]

    assert passed == []
    assert time.process_time() - started < 60


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_payload_passes_at_any_place(dialect: Dialect, guards: dict[str, Guard]) -> None:
    source = random.Random(SEED)
    queries = [place.format(payload) for place in PLACES for payload in PAYLOADS[dialect]]
    queries += [other_spaces(source, other_case(source, query)) for query in queries]

    assert [query for query in queries if guards[dialect].check(query).is_safe] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_same_mutations_leave_legitimate_queries_readable(
    dialect: Dialect, corpus: Corpus, guards: dict[str, Guard]
) -> None:
    """The mutations do not only break syntax: what was harmless still passes after them."""
    source = random.Random(SEED)
    statements = [statement for _, statement in corpus("legitimate", dialect)[::3]]

    passed = [s for s in statements if guards[dialect].check(other_spaces(source, s)).is_safe]

    assert len(passed) >= 0.9 * len(statements)
