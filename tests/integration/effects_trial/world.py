"""The outside of a trial, where effects are counted: REST services, a mail server, a workspace."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mail_servers import ImapServer, SmtpServer, imap_server, smtp_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bos_demo.company import DEFAULT_TODAY
from bos_demo.company_api.service import CompanyApi, serve_company_api
from bos_files.service import SCHEMA as FILES_SCHEMA
from bos_postgres import connect
from bos_testkit.asgi_server import asgi_server

from .actions import Action, Kind
from .gates import Gate, gate

_DELETED = """
SELECT target FROM audit_trail WHERE action = 'file.deleted'
UNION ALL SELECT target FROM audit_pending WHERE action = 'file.deleted'
"""
_NOTES = {
    "openapi": "3.1.0",
    "info": {"title": "Notes"},
    "paths": {"/notes": {"post": {"summary": "Leave a note", "responses": {}}}},
}


@dataclass(eq=False)
class World:
    company: CompanyApi
    notes: list[str]
    imap: ImapServer
    smtp: SmtpServer
    gates: Mapping[str, Gate]
    """By name: company, notes, imap, smtp."""
    files_dsn: str
    file_ids: dict[str, str] = field(default_factory=dict)
    """Label of each file that is to be deleted, by its id."""

    @property
    def apis(self) -> dict[str, Any]:
        company = {**self.company.settings, **self._at("company")}
        return {"company": company, "notes": self._at("notes")}

    def origin(self, name: str) -> str:
        return f"http://127.0.0.1:{self.gates[name].port}"

    def _at(self, name: str) -> dict[str, str]:
        return {"openapi": f"{self.origin(name)}/openapi.json", "base_url": self.origin(name)}

    def gates_of(self, kind: Kind) -> Sequence[Gate]:
        names = {"ticket": ("company",), "note": ("notes",), "mail": ("imap", "smtp"), "file": ()}
        return [self.gates[name] for name in names[kind]]

    async def remember_files(self) -> None:
        async with connect(self.files_dsn, schema=FILES_SCHEMA) as session:
            rows = await session.fetch("SELECT file_id, name FROM files")
        self.file_ids = {str(row["file_id"]): row["name"].removesuffix(".txt") for row in rows}

    async def landed(self, actions: Iterable[Action]) -> Mapping[str, int]:
        """How often each label has landed, unapproved ones included."""
        found: Counter[str] = Counter()
        found.update(str(each["text"]) for each in self.company.tickets.listed("", ""))
        found.update(self.notes)
        labels = [label for each in actions for label in (each.label, each.changed)]
        for envelope in self.smtp.taken:
            found.update(
                each for each in labels if f"Subject: {each}\r\n".encode() in envelope.content
            )
        async with connect(self.files_dsn, schema=FILES_SCHEMA) as session:
            rows = await session.fetch(_DELETED)
            left = {row["name"] for row in await session.fetch("SELECT name FROM files")}
        found.update(self.file_ids[row["target"]] for row in rows)
        gone = {label for label in self.file_ids.values() if f"{label}.txt" not in left}
        recorded = {label for label in self.file_ids.values() if found[label]}
        assert gone == recorded, f"files and audit trail differ: {gone ^ recorded}"
        return found


@asynccontextmanager
async def open_world(company_dsn: str, schema: str, files_dsn: str) -> AsyncIterator[World]:
    """All of it, until the block is left.

    Args:
        company_dsn: Database of the sample company.
        schema: Its schema.
        files_dsn: Database of the files agent.
    """
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        company = await enter(serve_company_api(company_dsn, schema, DEFAULT_TODAY))
        notes: list[str] = []
        notes_url = await enter(asgi_server(_notes_api(notes)))
        imap, smtp = await enter(imap_server()), await enter(smtp_server())
        ports = {
            "company": _port(company.base_url),
            "notes": _port(notes_url),
            "imap": imap.port,
            "smtp": smtp.port,
        }
        gates = {name: await enter(gate(port)) for name, port in ports.items()}
        yield World(company, notes, imap, smtp, gates, files_dsn)


def _notes_api(notes: list[str]) -> Starlette:
    """A service that knows no keys: every request leaves a note."""

    async def documented(request: Request) -> Response:
        return JSONResponse(_NOTES)

    async def leave(request: Request) -> Response:
        notes.append((await request.json())["text"])
        return JSONResponse({"left": True}, status_code=201)

    return Starlette(
        routes=[Route("/openapi.json", documented), Route("/notes", leave, methods=["POST"])]
    )


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
