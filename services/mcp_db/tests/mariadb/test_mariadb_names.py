"""Guard and MariaDB take the same words of a statement for names."""

import asyncmy
import pytest
from mariadb_server import MariaDb
from name_readings import MariaDbReader, compared
from name_statements import parser_words, statements
from test_names_agree import COUNT, SEED, agree, guard_of, schema_of

pytestmark = [pytest.mark.security, pytest.mark.timeout(3600)]


async def test_mariadb(mariadb: MariaDb) -> None:
    await mariadb.administer("CREATE DATABASE differential")
    rows = await mariadb.administer("SELECT WORD FROM information_schema.KEYWORDS")
    listed = {row[0].lower() for row in rows if row[0].replace("_", "").isalnum()}
    words = sorted(listed | parser_words("mysql"))
    await mariadb.administer(";\n".join(schema_of(words, "`")), "differential")
    connection = asyncmy.Connection(
        unix_socket=str(mariadb.socket), user="root", db="differential", autocommit=True
    )
    await connection.connect()
    try:
        given = statements("mysql", words, schema="differential", seed=SEED, count=COUNT)
        guard = guard_of("mysql", words, "differential")
        found = await compared(MariaDbReader(connection, "differential"), guard, given)
    finally:
        connection.close()
    agree("mysql", found)
