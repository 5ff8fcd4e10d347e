"""The agent accepts the metadata file that ``bos connect`` drafts."""

from pathlib import Path

from bos_mcp_db.connecting.allow_list import propose
from bos_mcp_db.connecting.draft import add_totals, draft
from bos_mcp_db.connecting.introspection import introspect
from bos_mcp_db.connecting.metadata_file import metadata_yaml
from bos_mcp_db.connecting.model_draft import merge
from bos_mcp_db.connecting.replies import SchemaWords

from .conftest import StartHarness, fixtures, sqlite_database
from .conftest import draft as draft_query

_SCHEMA = """
CREATE TABLE "Odd Name" ("select" NUMERIC, "total amount: {x}" NUMERIC, "Größe" TEXT);
CREATE TABLE OrderItems (
    "orderId" INTEGER, "netAmount" NUMERIC, "net_amount" NUMERIC, "on" DATE, "order" INTEGER
);
CREATE TABLE orders (id INTEGER PRIMARY KEY, amount NUMERIC, amounts NUMERIC, yes TEXT);
CREATE TABLE "on" (order_id INTEGER, "null" TEXT, "1" NUMERIC);
"""
_SAID = {
    "tables": [
        {
            "table": "on",
            "description": "yes: [no, {~",
            "synonyms": ["null", "1", "- a", "#b", "c: d", "*e", "&f"],
            "fields": [{"field": "null", "description": "'%@`", "synonyms": ["on"]}],
        }
    ],
    "metrics": [
        {"name": "order amounts", "aggregate": "sum", "field": "orders.amount"},
        {"name": "ordered amount", "aggregate": "avg", "field": "orders.amount"},
        {
            "name": "share",
            "aggregate": "count_distinct",
            "field": "orders.yes",
            "time": "OrderItems.on",
            "synonyms": ["order amount", "shares", "part"],
        },
    ],
    "joins": [{"left": "OrderItems.orderId", "right": "orders.id"}],
}


async def test_the_drafted_file_is_used(start: StartHarness, tmp_path: Path) -> None:
    url = sqlite_database(tmp_path, _SCHEMA)
    found = await introspect(url)
    proposal = propose(found.tables, found.sources)
    drafted = draft(proposal.tables)
    merge(drafted, proposal.tables, SchemaWords.model_validate(_SAID))
    add_totals(drafted, proposal.tables)
    path = tmp_path / "metadata.yaml"
    path.write_text(metadata_yaml(drafted, by_model=True), encoding="utf-8")
    query = fixtures(drafted=draft_query("SELECT count(*) AS n FROM orders"))
    harness = await start(query, url=url, tables=proposal.names, metadata_path=path)

    outcome = await harness.ask("How many orders are there?")

    assert proposal.names == ("Odd Name", "OrderItems", "on", "orders")
    assert drafted.metrics
    assert outcome.errors() == []
    (prompt,) = harness.prompts("QueryDraft")
    assert "yes: [no, {~" in prompt
    assert "order amounts" in prompt
