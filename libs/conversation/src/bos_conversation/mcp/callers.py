"""Who calls the MCP server, and what they may decide by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from bos_client.client import BosClient
    from bos_client.documents import DocumentsClient


class Callers(Protocol):
    """Clients that call as the sender of a request."""

    @property
    def has_documents(self) -> bool:
        """Whether documents can be searched."""

    def bos(self, request: Any) -> BosClient:
        """A client of the gateway.

        Args:
            request: The HTTP request; None where the server has one user.

        Raises:
            Unauthenticated: there is more than one credential.
        """

    def documents(self, request: Any) -> DocumentsClient:
        """A client of the documents service; raises as :meth:`bos` does."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the server does for its callers. Times are in seconds."""

    run_timeout_s: float = 3600.0
    """Longest time that a call follows a run."""
    tool_approvals: bool = False
    """Whether a call of a tool may approve an action without the person's own reply."""
