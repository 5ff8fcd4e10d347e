"""The sample company's curated file, and table suggestions for its questions."""

import sqlite3
from contextlib import closing
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import pytest

from bos_demo.company import table_names
from bos_demo.questions import SqlStep, load_questions
from bos_demo.schema import read_tables, schema_sql
from bos_mcp_db.backends.sqlite_schema import describe_tables
from bos_sql.grounding.catalog import Catalog, read_catalog
from bos_sql.grounding.curated import read_curated
from bos_sql.grounding.index import MetadataIndex

STEPS = [step for each in load_questions() for step in each.steps if isinstance(step, SqlStep)]


@pytest.fixture(scope="module")
def company() -> Catalog:
    comments = {table.name: table for table in read_tables()}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema_sql())
        described = [asdict(table) for table in describe_tables(connection, table_names())]
    for table in described:
        columns = {column.name: column.comment for column in comments[table["name"]].columns}
        table["comment"] = comments[table["name"]].comment
        for column in table["columns"]:
            column.update(comment=columns[column["name"]], sample_values=[])
    return read_catalog("company", described)


@pytest.fixture(scope="module")
def index(company: Catalog) -> MetadataIndex:
    curated = read_curated(Path(str(files("bos_demo") / "metadata.yaml")))
    return MetadataIndex(curated.applied_to(company))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.task)
def test_tables_of_every_demo_question_are_suggested(index: MetadataIndex, step: SqlStep) -> None:
    assert set(step.tables) <= set(index.suggested_tables(step.task, 6))


def test_every_metric_is_found_by_its_synonyms(index: MetadataIndex) -> None:
    for metric in index.catalog.metrics:
        for said in (metric.name, *metric.synonyms):
            (hit, *_) = index.search_metadata(said, 1)
            assert set(hit.doc.tables) & set(metric.tables), said
