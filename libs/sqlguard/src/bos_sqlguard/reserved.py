"""Reserved words of each dialect: unquoted they are no names, or mean something else.

PostgreSQL reads ``FROM user`` as the name of the login. The lists are
``pg_get_keywords()`` of PostgreSQL 18 (categories R and T), ``duckdb_keywords()`` of DuckDB 2.0
(reserved and type_function), what SQLite 3.40 and MariaDB 10.11 refuse as the name of a table, and
for T-SQL Microsoft's page of reserved keywords; all but T-SQL are compared with the databases by
``services/mcp_db/tests/test_names_agree.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from bos_sqlguard.names import Dialect

_DUCKDB = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by
case cast check collate collation column concurrently constraint create cross default deferrable
desc describe distinct do else end except false fetch for foreign freeze from full glob group
having ilike in initially inner intersect into is isnull join lambda lateral leading left like
limit natural not notnull null offset on only or order outer overlaps pivot pivot_longer
pivot_wider placing positional primary qualify references returning right select semi show
similar some summarize symmetric table tablesample then to trailing true union unique unpack
unpivot using variadic verbose when where window with
"""
_MYSQL = """
_armscii8 _ascii _big5 _binary _cp1250 _cp1251 _cp1256 _cp1257 _cp850 _cp852 _cp866 _cp932 _dec8
_eucjpms _euckr _gb2312 _gbk _geostd8 _greek _hebrew _hp8 _keybcs2 _koi8r _koi8u _latin1 _latin2
_latin5 _latin7 _macce _macroman _sjis _swe7 _tis620 _ucs2 _ujis _utf16 _utf16le _utf32 _utf8
_utf8mb3 _utf8mb4 accessible add all alter analyze and as asc asensitive before between bigint
binary blob both by call cascade case change char character check collate column condition
constraint continue convert create cross current_date current_role current_time
current_timestamp current_user cursor databases day_hour day_microsecond day_minute day_second
dec decimal declare default delayed delete delete_domain_id desc describe deterministic distinct
distinctrow div do_domain_ids double drop dual each else elseif enclosed escaped except exists
exit explain false fetch float float4 float8 for force foreign from fulltext grant group having
high_priority hour_microsecond hour_minute hour_second if ignore ignore_domain_ids in index
infile inner inout insensitive insert int int1 int2 int3 int4 int8 integer intersect interval
into is iterate join key keys kill leading leave left like limit linear lines load localtime
localtimestamp lock long longblob longtext loop low_priority master_demote_to_replica
master_demote_to_slave master_ssl_verify_server_cert match maxvalue mediumblob mediumint
mediumtext middleint minute_microsecond minute_second mod modifies natural no_write_to_binlog
not null numeric offset on optimize optionally or order out outer outfile over page_checksum
parse_vcol_expr partition portion precision primary procedure purge range read read_write reads
real recursive ref_system_id references regexp release rename repeat replace require resignal
restrict return returning revoke right rlike row_number rows schemas second_microsecond select
sensitive separator set show signal smallint spatial specific sql sql_big_result
sql_buffer_result sql_cache sql_calc_found_rows sql_no_cache sql_small_result sqlexception
sqlstate sqlwarning ssl starting stats_auto_recalc stats_persistent stats_sample_pages
straight_join table terminated then tinyblob tinyint tinytext to trailing trigger true undo
union unique unlock unsigned update usage use using utc_date utc_time utc_timestamp values
varbinary varchar varcharacter varying when where while with write xor year_month zerofill
"""
_POSTGRES = """
all analyse analyze and any array as asc asymmetric authorization binary both case cast check
collate collation column concurrently constraint create cross current_catalog current_date
current_role current_schema current_time current_timestamp current_user default deferrable desc
distinct do else end except false fetch for foreign freeze from full grant group having ilike in
initially inner intersect into is isnull join lateral leading left like limit localtime
localtimestamp natural not notnull null offset on only or order outer overlaps placing primary
references returning right select session_user similar some symmetric system_user table
tablesample then to trailing true union unique user using variadic verbose when where window
with
"""
_SQLITE = """
add all alter and as autoincrement between case cast check collate commit constraint create
default deferrable delete distinct drop else escape except exists foreign from group having in
index insert intersect into is isnull join limit not nothing notnull null on or order primary
raise references returning select set table then to transaction union unique update using values
when where window
"""
_TSQL = """
add all alter and any as asc authorization backup begin between break browse bulk by cascade
case check checkpoint close clustered coalesce collate column commit compute constraint contains
containstable continue convert create cross current current_date current_time current_timestamp
current_user cursor database dbcc deallocate declare default delete deny desc disk distinct
distributed double drop dump else end errlvl escape except exec execute exists exit external
fetch file fillfactor for foreign freetext freetexttable from full function goto grant group
having holdlock identity identity_insert identitycol if in index inner insert intersect into is
join key kill left like lineno load merge national nocheck nonclustered not null nullif of off
offsets on open opendatasource openquery openrowset openxml option or order outer over percent
pivot plan precision primary print proc procedure public raiserror read readtext reconfigure
references replication restore restrict return revert revoke right rollback rowcount rowguidcol
rule save schema securityaudit select semantickeyphrasetable semanticsimilaritydetailstable
semanticsimilaritytable session_user set setuser shutdown some statistics system_user table
tablesample textsize then to top tran transaction trigger truncate try_convert tsequal union
unique unpivot update updatetext use user values varying view waitfor when where while with
within writetext
"""

RESERVED: Mapping[Dialect, frozenset[str]] = {
    "duckdb": frozenset(_DUCKDB.split()),
    "mysql": frozenset(_MYSQL.split()),
    "postgres": frozenset(_POSTGRES.split()),
    "sqlite": frozenset(_SQLITE.split()),
    "tsql": frozenset(_TSQL.split()),
}
# Elsewhere a reserved word is quoted behind a dot and behind AS as well.
_FREE_BEHIND_DOT_AND_AS = frozenset({"duckdb", "mysql", "postgres"})


def is_reserved(dialect: Dialect, word: str, *, behind_dot_or_as: bool = False) -> bool:
    """Whether ``word`` must be quoted to be a name.

    Args:
        dialect: that of the query.
        word: as written, in any case.
        behind_dot_or_as: of a column or table after its qualifier, or of the name of an output
            column, which the guard writes after ``AS``.
    """
    if behind_dot_or_as and dialect in _FREE_BEHIND_DOT_AND_AS:
        return False
    return word.lower() in RESERVED[dialect]
