"""Requests to REST with any headers and from any address of loopback."""

import asyncio
import http.client
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 60.0
HERE, OTHER_ADDRESS = "127.0.0.1", "127.0.0.2"


@dataclass(frozen=True)
class Answer:
    """What REST says."""

    status: int
    text: str

    @property
    def reason(self) -> str:
        """Of an error in the one shape that they all have."""
        error = json.loads(self.text)["error"]
        assert error["code"] == self.status
        assert error["message"]
        return str(error["details"][0]["reason"])


async def call_rest(
    address: str,
    verb: str,
    path: str,
    headers: Sequence[tuple[str, str]] = (),
    body: Any = None,
    source: str = HERE,
) -> Answer:
    """One request over a connection of its own; text and bytes are sent as they are."""

    def call() -> Answer:
        host, _, port = address.rpartition(":")
        connection = http.client.HTTPConnection(
            host, int(port), timeout=TIMEOUT_S, source_address=(source, 0)
        )
        try:
            connection.putrequest(verb, path)
            for name, value in headers:
                connection.putheader(name, value)
            content = None
            if body is not None:
                text = body if isinstance(body, str | bytes) else json.dumps(body)
                content = text.encode() if isinstance(text, str) else text
                connection.putheader("Content-Type", "application/json")
                connection.putheader("Content-Length", str(len(content)))
            with suppress(ConnectionError):  # it may answer before it has all
                connection.endheaders(content)
            answer = connection.getresponse()
            pieces: list[bytes] = []
            with suppress(ConnectionError):  # the end of what it does not read may be a reset
                while piece := answer.read1():
                    pieces.append(piece)
            return Answer(answer.status, b"".join(pieces).decode())
        finally:
            connection.close()

    return await asyncio.to_thread(call)
