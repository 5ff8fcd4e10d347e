"""What became of an HTTP request that an SDK had the guarded client send; headers in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_http.errors import Failure, HttpFailed, HttpRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_errors import BosError

# What the guarded client sets itself, or sends nowhere.
_OWN = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "accept-encoding"),
        *("user-agent", "traceparent", "tracestate", "baggage", "cookie"),
    }
)
# The body is unpacked already, and its length another than the head says. SDKs' clients would keep
# cookies, which the guarded one does not.
_GONE = frozenset({"content-encoding", "content-length", "transfer-encoding", "set-cookie"})
_UNSENT = frozenset({Failure.RESOLVE, Failure.CONNECT, Failure.TLS})


@dataclass(slots=True)
class Exchange:
    """What became of the HTTP request of one call; the errors of SDKs do not say it."""

    status: int = 0
    """Of the response; 0: none was received."""
    error: BosError | None = None
    """Why there is none, or why it broke off."""

    @property
    def is_unsent(self) -> bool:
        """Whether the request certainly never reached the server."""
        if isinstance(self.error, HttpRefused):
            return not self.error.rule.value.startswith("response_")
        return isinstance(self.error, HttpFailed) and self.error.failure in _UNSENT


def sent_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers of an SDK's request that the guarded client is given."""
    return {name: value for name, value in headers.items() if name.lower() not in _OWN}


def received_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers of a response that an SDK is given, whose body it gets unpacked."""
    return [(name, value) for name, value in headers.items() if name.lower() not in _GONE]
