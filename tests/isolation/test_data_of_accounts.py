"""Every service that stores users' data offers its deletion: found by tables, dependencies."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.isolation

ROOT = Path(__file__).parents[2]
_OWNED = re.compile(r"^\s*(\w*user_id|owner(?:_id)?|username|email|actor)\s+(?:text|uuid)\b", re.M)
_OFFERS = "add_AccountDataServiceServicer_to_server"
_DELETES_ITSELF = {"identity"}
"""Asks the others, and deletes its own rows last."""


def services_with_users() -> set[str]:
    """Services whose tables have a column for a user, or that keep files of users."""
    found = set()
    for folder in ROOT.glob("services/**/pyproject.toml"):
        package = folder.parent
        tables = "\n".join(file.read_text() for file in package.glob("src/*/migrations/*.sql"))
        if _OWNED.search(tables) or '"bos-artefacts"' in folder.read_text():
            found.add(package.name)
    return found


def test_a_table_with_users_is_found_and_one_without_is_not() -> None:
    assert _OWNED.search("CREATE TABLE documents (\n    owner_id uuid NOT NULL")
    assert _OWNED.search("    user_id text")
    assert not _OWNED.search("CREATE TABLE replicas (\n    replica_id uuid PRIMARY KEY")


def test_every_service_that_stores_users_offers_to_delete_what_it_holds_of_them() -> None:
    found = services_with_users()
    assert found >= {"gateway", "memory", "documents", "files", "identity"}
    lacking = [
        name
        for name in sorted(found - _DELETES_ITSELF)
        if not hasattr(importlib.import_module(f"bos_{name}.service"), _OFFERS)
    ]
    assert lacking == [], "serve bos.account.v1.AccountDataService there, and name it to identity"
