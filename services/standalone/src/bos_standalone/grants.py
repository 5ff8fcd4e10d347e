"""What steps of an agent may call, and which of a user's connections they receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# made from descriptors (make generate)
AUDIENCES: Mapping[str, tuple[str, ...]] = {
    "code": ("sandbox",),
    "computation": ("sandbox",),
    "rag": ("documents",),
    "sql": ("mcp_db", "file_tables"),
}

CONNECTIONS: Mapping[str, tuple[str, ...]] = {
    "mail": ("mail.gmail", "mail.imap"),
}
# end of what is made
