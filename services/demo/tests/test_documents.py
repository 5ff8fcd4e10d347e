"""Documents of the sample company: their files, and their agreement with its database."""

import io
import re
import zipfile
from collections import Counter
from decimal import Decimal
from xml.etree import ElementTree

import pytest

from bos_demo.documents.rendering import render
from bos_demo.documents.sources import (
    Heading,
    Item,
    Paragraph,
    Source,
    Table,
    load_sources,
    read_source,
)
from bos_demo.questions import RagStep, load_questions
from bos_demo.rows import CompanyRows

SOURCES = load_sources()
BY_NAME = {source.name: source for source in SOURCES}
QUESTIONS = load_questions("documents")
SUPERSEDED = "Price list centrifugal pumps 2024 (superseded).xlsx"
SMALL = """---
name: note.html
title: A note
date: 2026-01-02
---
# Title
Text on
two lines.

- first
  goes on
1. second
| a | b |
|---|---|
| 1 | 2 |
"""


def test_there_are_enough_documents_in_enough_formats() -> None:
    formats = Counter(source.format for source in SOURCES)
    assert len(BY_NAME) == len(SOURCES) >= 60
    assert formats.keys() == {"pdf", "docx", "xlsx", "pptx", "html", "md", "csv", "eml"}


def test_source_is_read_block_by_block() -> None:
    source = read_source("letters", SMALL.replace("1. second\n", "1. second\n\n"))
    assert source.blocks == (
        Heading(1, "Title"),
        Paragraph("Text on two lines."),
        Item("first goes on"),
        Item("1. second"),
        Table((("a", "b"), ("1", "2"))),
    )


@pytest.mark.parametrize("key", ["name", "title", "date"])
def test_source_without_a_name_title_or_date_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        read_source("letters", re.sub(rf"^{key}: .*\n", "", SMALL, flags=re.MULTILINE))


def test_documents_have_200_to_1500_words_and_stable_files() -> None:
    assert [each.name for each in SOURCES if not 200 <= len(each.body.split()) <= 1500] == []
    assert [each.name for each in SOURCES if not _is_rendered_whole(each)] == []


def _is_rendered_whole(source: Source) -> bool:
    """Whether the file has the same bytes each time and, in Office formats, the last words."""
    content = render(source)
    if content != render(source):
        return False
    if source.format not in ("docx", "xlsx", "pptx"):
        return True
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = [archive.read(name) for name in archive.namelist()]
    text = " ".join("".join(ElementTree.fromstring(part).itertext()) for part in parts)
    last = source.blocks[-1]
    return (last.rows[-1][0] if isinstance(last, Table) else last.text) in text


def test_quoted_words_stand_in_the_source() -> None:
    missing = []
    for question in QUESTIONS:
        steps = [step for step in question.steps if isinstance(step, RagStep)]
        assert steps, question.id
        for wanted in (passage for step in steps for passage in step.passages):
            body = BY_NAME[wanted.document].body
            quoted = " ".join(wanted.quote.split()) in " ".join(body.split())
            if not quoted or wanted.section not in body:
                missing.append((question.id, wanted))
    assert missing == []


def test_prices_agree_with_the_database_except_the_superseded_list(rows: CompanyRows) -> None:
    listed = {product.sku: product for product in rows.products}
    deviating = set()
    for source in SOURCES:
        if source.kind != "prices":
            continue
        share = Decimal("0.88") if source.name.startswith("Distributor") else Decimal(1)
        for sku, name, _, price in _priced(source):
            assert listed[sku].product_name == name
            if Decimal(price) != round(listed[sku].list_price * share, 2):
                deviating.add(source.name)
    assert deviating == {SUPERSEDED}


def test_costs_in_contracts_are_those_of_the_database(rows: CompanyRows) -> None:
    costs = {product.sku: product.unit_cost for product in rows.products}
    checked = 0
    for source in SOURCES:
        if source.kind == "contracts" and source.name.startswith("SA-"):
            for row in _table_rows(source):
                amounts = [cell for cell in row if re.fullmatch(r"[\d,]+\.\d\d", cell)]
                if row[0] in costs and amounts:
                    assert Decimal(amounts[0].replace(",", "")) == costs[row[0]], row
                    checked += 1
    assert checked > 30


def test_suppliers_and_products_that_documents_name_exist(rows: CompanyRows) -> None:
    skus = {product.sku for product in rows.products}
    orders = {order.po_number for order in rows.purchase_orders}
    for source in SOURCES:
        assert (
            set(re.findall(r"\b(?!WI|CP-0|IA|SL|SA|CA|TC)[A-Z]{2}-1\d{3}\b", source.body)) <= skus
        )
        assert set(re.findall(r"PO-\d{4}-\d{5}", source.body)) <= orders


def _priced(source: Source) -> list[tuple[str, ...]]:
    return [row for row in _table_rows(source) if re.fullmatch(r"[A-Z]{2}-\d{4}", row[0])]


def _table_rows(source: Source) -> list[tuple[str, ...]]:
    return [row for block in source.blocks if isinstance(block, Table) for row in block.rows]
