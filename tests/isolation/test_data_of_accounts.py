"""Every service that stores users' data offers its deletion: found by tables, stores, settings."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from bos_chassis.auth.account_data import HOLDERS
from bos_standalone.agents import agent_factory, installed_agents

sys.path.append(str(Path(__file__).parents[2] / "libs/chassis"))
from settings_reference import settings_classes, variables

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.isolation

_OWNED = re.compile(r"^\s*(\w*user_id|owner(?:_id)?|username|email|actor)\s+(?:text|uuid)\b", re.M)
_OFFERS = "add_AccountDataServiceServicer_to_server"
_DELETES_ITSELF = {"identity"}
"""Asks the others, and deletes its own rows last."""
_STORES = re.compile(
    r"^(bos-postgres|bos-artefacts|qdrant\S*|obstore|aiosqlite|asyncpg|redis|valkey\S*|diskcache"
    r"|sqlalchemy|psycopg\S*|boto3|lancedb|duckdb|peewee)(?![\w-])"
)
"""Packages that keep things."""
_STORES_NOTHING_OF_USERS = {
    "demo": "rows of a made-up company",
    "standalone": "starts the services and their database",
    "mcp_db": "reads databases that are not its own",
}
_PLACES = re.compile(r"_(URL|URI|FOLDER|DIR|PATH|DSN|BUCKET)$")
_PLACES_OF_USERS = {
    "BOS_GATEWAY_STORE_URL": "gateway",
    "BOS_GATEWAY_ARTEFACTS_URL": "gateway",
    "BOS_IDENTITY_STORE_URL": "identity",
    "BOS_MEMORY_STORE_URL": "memory",
    "BOS_DOCUMENTS_STORE_URL": "documents",
    "BOS_DOCUMENTS_FILES_URL": "documents",
    "BOS_DOCUMENTS_INDEX_FOLDER": "documents",
    "BOS_DOCUMENTS_QDRANT_URL": "documents",
    "BOS_DOCUMENTS_SPOOL_FOLDER": "documents",
    "BOS_FILES_STORE_URL": "files",
    "BOS_FILES_WORKSPACE_URL": "files",
}
"""Settings that say where something of users is kept, and the service that deletes it there."""
_PLACES_OF_OTHERS = {
    "BOS_STORE_URL": "handed to the services, which delete in it",
    "BOS_STANDALONE_DATA_DIR": "parted among the services, which delete in it",
    "BOS_DATABASE_URL": "read only",
    "BOS_DEMO_DATABASE_URL": "rows of a made-up company",
    "BOS_DEMO_SQLITE_PATH": "rows of a made-up company",
    "BOS_API_DOCS_CATALOGUE_PATH": "read only",
    "BOS_API_DOCS_DEFAULT_BASE_URL": "of requests",
    "DEFAULT_BASE_URL": "of requests",
    "API_AGENT_BASE_URL": "of requests",
    "OPENAI_BASE_URL": "of a model",
    "BOS_AUTH_JWKS_URL": "of keys",
    "BOS_PROTOCOLS_PUBLIC_URL": "of Bos itself",
    "BOS_FILES_FONTS_FOLDER": "read only",
    "BOS_GATEWAY_TOKEN_FILES_FOLDER": "read only",
    "BOS_MAIL_GMAIL_API_URL": "of a user's own mailbox",
    "BOS_MAIL_GMAIL_TOKEN_URL": "of requests",
    "BOS_PLANNER_TEMPLATES_PATH": "read only",
    "BOS_SANDBOX_PROCESS_CACHE_DIR": "of Python itself",
    "BOS_SQL_MCP_URL": "of requests",
    "BOS_SQL_METADATA_PATH": "read only",
    "BOS_WEB_SEARCH_URL": "of requests",
}


def members() -> dict[str, Path]:
    found = [
        *ROOT.glob("services/*/pyproject.toml"),
        *ROOT.glob("services/agents/*/pyproject.toml"),
    ]
    return {path.parent.name: path.parent for path in found}


def stores(requirements: list[str]) -> bool:
    """Whether one of them is a package that keeps things."""
    return any(_STORES.match(each.lower()) for each in requirements)


def services_with_users() -> set[str]:
    """Services whose tables have a column for a user, or that keep things in any other store."""
    found = set()
    for name, folder in members().items():
        tables = "\n".join(file.read_text() for file in folder.glob("src/*/migrations/*.sql"))
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        keeps = stores(project["dependencies"]) and name not in _STORES_NOTHING_OF_USERS
        if _OWNED.search(tables) or keeps:
            found.add(name)
    return found


def offering() -> set[str]:
    """Services that serve the deletion and the export of what they hold of an account."""
    found = {name: folder / f"src/bos_{name}/service.py" for name, folder in members().items()}
    return {name for name, path in found.items() if path.exists() and _OFFERS in path.read_text()}


def places() -> set[str]:
    """Variables whose names say that they name a place."""
    return {
        name
        for cls in settings_classes()
        for variable in variables(cls)
        for name in variable.names
        if _PLACES.search(name)
    }


def test_services_that_store_users_offer_deletion() -> None:
    found = services_with_users()
    assert found >= {"gateway", "memory", "documents", "files", "identity"}
    lacking = sorted(found - _DELETES_ITSELF - offering())
    assert lacking == [], "serve bos.account.v1.AccountDataService there, and name it to identity"


def test_services_that_offer_deletion_are_asked_in_a_standalone() -> None:
    assert offering() == {*HOLDERS}
    agents = {name: agent_factory(name, target) for name, target in installed_agents().items()}
    serving = {name for name, factory in agents.items() if factory.settings.serves_people}
    assert serving == {*HOLDERS} & agents.keys()


def test_settings_of_stores_belong_to_services_that_delete() -> None:
    found = places()
    assert found == _PLACES_OF_USERS.keys() | _PLACES_OF_OTHERS.keys()
    assert {*_PLACES_OF_USERS.values()} == {*HOLDERS, *_DELETES_ITSELF}
