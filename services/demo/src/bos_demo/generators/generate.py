"""Generation of all rows of the sample company, deterministic by date and seed."""

from __future__ import annotations

import hashlib
from datetime import date

from bos_demo.generators.catalogue import add_catalogue
from bos_demo.generators.people import add_people
from bos_demo.generators.sales import add_sales
from bos_demo.generators.service_desk import add_tickets
from bos_demo.generators.supply import add_supply
from bos_demo.generators.world import World
from bos_demo.rows import CompanyRows, DictionaryEntry
from bos_demo.schema import read_tables

SEED = 20_090_401


def generate(today: date, seed: int = SEED) -> CompanyRows:
    """Return the company as it stands at the end of `today`; takes about a second."""
    world = World.at(today, seed)
    rows = CompanyRows()
    add_people(rows, world)
    add_catalogue(rows, world)
    add_sales(rows, world)
    add_supply(rows, world)
    add_tickets(rows, world)
    for table in read_tables():
        rows.data_dictionary.append(DictionaryEntry(table.name, "", table.comment))
        rows.data_dictionary += [
            DictionaryEntry(table.name, column.name, column.comment) for column in table.columns
        ]
    return rows


def digest(rows: CompanyRows) -> str:
    """Return a SHA-256 over every row of every table, to compare two companies."""
    sha = hashlib.sha256()
    for name, table in rows.tables().items():
        sha.update(name.encode())
        for row in table:
            sha.update(repr(tuple(str(value) for value in row)).encode())
    return sha.hexdigest()
