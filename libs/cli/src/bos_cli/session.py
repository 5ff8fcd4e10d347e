"""Shared parts of all commands: the connection, error messages, exit codes.

====  ==================================================================
0     answered, possibly in part; or the command succeeded
1     failed
2     wrong usage: options, request, API key, or an unknown run
3     the gateway cannot be reached
4     no answer because the run was cancelled or needs clarification
130   interrupted; a run that was accepted goes on
====  ==================================================================
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bos.common.v1 import Outcome
from bos.gateway.v1 import RunStatus
from bos_client.client import BosClient
from bos_client.connection import Connection, NoConnection, find_connection
from bos_client.sign_in import StoredTokens, TokenFile
from bos_errors import (
    AlreadyExists,
    BosError,
    Cancelled,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from bos_plainjson import plain_json

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from google.protobuf.message import Message

    from bos.gateway.v1 import OrchestratorResponse
    from bos_client.sign_in import SignedIn

ANSWERED, FAILED, USAGE, UNREACHABLE, NO_ANSWER, INTERRUPTED = 0, 1, 2, 3, 4, 130

_BY_STATUS = {
    RunStatus.RUN_STATUS_SUCCEEDED: ANSWERED,
    RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED: ANSWERED,
    RunStatus.RUN_STATUS_CANCELLED: NO_ANSWER,
    RunStatus.RUN_STATUS_CLARIFICATION_NEEDED: NO_ANSWER,
}
_NO_ANSWER = frozenset(
    {
        *(Outcome.OUTCOME_NOT_IN_SOURCE, Outcome.OUTCOME_DENIED),
        *(Outcome.OUTCOME_EXPIRED, Outcome.OUTCOME_SKIPPED),
    }
)
_USAGE_ERRORS = (InvalidArgument, NotFound, AlreadyExists, Unauthenticated, PermissionDenied)


@dataclass(frozen=True, slots=True)
class Target:
    """Address and credentials of the gateway, from options and environment."""

    target: str | None
    api_key: str | None
    identity_target: str | None = None
    memory_target: str | None = None
    documents_target: str | None = None
    files_target: str | None = None

    def connection(self) -> Connection:
        """The gateway to call, as the signed-in user unless a key says otherwise.

        Raises:
            NoConnection: there is none.
        """
        found = self.to_sign_in()
        signed_in = None if self.api_key else self.signed_in(found)
        if signed_in is None:
            return found
        tokens = StoredTokens(TokenFile.of_this_user(), found.target, signed_in.identity_target)
        return replace(
            found,
            identity_target=signed_in.identity_target,
            memory_target=signed_in.memory_target,
            documents_target=signed_in.documents_target or None,
            files_target=signed_in.files_target or None,
            tokens=tokens,
        )

    def identity(self) -> str:
        """Address of identity, for the user that the commands act as.

        Raises:
            NoConnection: no gateway is known.
        """
        return identity_of(self.connection())

    def to_sign_in(self) -> Connection:
        """The gateway and the services beside it that options, environment or the standalone name.

        Raises:
            NoConnection: there is none.
        """
        found = find_connection(self.target, self.api_key, Path.cwd())
        return replace(
            found,
            identity_target=self.identity_target or found.identity_target,
            memory_target=self.memory_target or found.memory_target,
            documents_target=self.documents_target or found.documents_target,
            files_target=self.files_target or found.files_target,
        )

    def signed_in(self, connection: Connection) -> SignedIn | None:
        """Who is signed in to that gateway, with the only places that the tokens may go to."""
        kept = TokenFile.of_this_user().read(connection.target)
        # What options and variables name now is not where the tokens came from.
        found = find_connection(self.target, None, Path.cwd())
        return None if kept is None else kept.now_at(found)


def identity_of(connection: Connection) -> str:
    """Where identity is: where it is said to be, or behind the gateway's own address."""
    return connection.identity_target or connection.target


def client_for(connection: Connection) -> BosClient:
    """A client of the gateway that ``connection`` names."""
    return BosClient(connection.target, api_key=connection.api_key, tokens=connection.tokens)


def run(work: Coroutine[Any, Any, int], *, as_json: bool = False) -> NoReturn:
    """Do the work of a command, then exit with the code it returns.

    Args:
        work: The command.
        as_json: Errors go to stdout as JSON.
    """
    _survive_narrow_encodings()
    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        code = INTERRUPTED
    except (BosError, NoConnection) as error:
        code = report(error, as_json=as_json)
    sys.stdout.flush()
    sys.exit(code)


def report(error: BosError | NoConnection, *, as_json: bool = False) -> int:
    """Print an error; returns the exit code."""
    if as_json:
        click.echo(json.dumps({"error": error_json(error)}, ensure_ascii=False, indent=2))
    else:
        click.echo(f"Error: {_explain(error)}", err=True)
    if isinstance(error, NoConnection | Unavailable):
        return UNREACHABLE
    if isinstance(error, _USAGE_ERRORS):
        return USAGE
    return NO_ANSWER if isinstance(error, Cancelled) else FAILED


def exit_code(response: OrchestratorResponse) -> int:
    """The exit code for a run that ended: 0 answered, 1 failed, 4 nothing to answer or not done."""
    code = _BY_STATUS.get(response.status, FAILED)
    return NO_ANSWER if code == ANSWERED and response.outcome in _NO_ANSWER else code


def print_json(message: Message) -> None:
    """One JSON object on stdout, as REST answers with it."""
    click.echo(json.dumps(plain_json(message), ensure_ascii=False, indent=2))


def _survive_narrow_encodings() -> None:
    """A mark that the terminal's encoding lacks becomes a question mark, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _explain(error: BosError | NoConnection) -> str:
    if isinstance(error, NoConnection):
        return str(error)
    lines = [error.message]
    lines += [
        f"  {v.field}: {v.description}"
        for v in error.violations
        if v.description not in error.message
    ]
    if error.retry_after_s is not None:
        lines.append(f"  Try again in {error.retry_after_s:g} s.")
    if isinstance(error, Unauthenticated):
        lines.append("  Sign in with `bos login NAME`, or set BOS_TARGET and BOS_API_KEY;")
        lines.append("  `bos serve all` keeps its key in .data/standalone.json.")
    if isinstance(error, Unavailable):
        lines.append(
            "  Is it running? Start one with `bos serve all`, or check --target; of one that"
        )
        lines.append("  speaks TLS also --ca-file, and --cert-file if it demands certificates.")
    return "\n".join(lines)


def error_json(error: BosError | NoConnection) -> dict[str, Any]:
    """An error as JSON."""
    if isinstance(error, NoConnection):
        return {"code": "UNAVAILABLE", "reason": "NO_CONNECTION", "message": str(error)}
    described: dict[str, Any] = {
        "code": error.code.name,
        "reason": error.reason,
        "message": error.message,
    }
    if error.violations:
        described["violations"] = [
            {"field": v.field, "description": v.description} for v in error.violations
        ]
    if error.retry_after_s is not None:
        described["retry_after_s"] = error.retry_after_s
    return described
