"""Address and credentials of the gateway: options, environment, or the local standalone.

``bos serve all`` writes ``.data/standalone.json`` (mode 0600), which is searched from the working
directory upwards::

    {"target": "127.0.0.1:40001", "api_key": "...", "context": {"current_date": "2026-06-15"}}

``context`` holds what questions there mean by "today" unless they say otherwise. The file is
believed only while a standalone of this very user runs there (see :mod:`bos_client.local`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bos_client.local import FILE, NotBelieved, read_believed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_client.calling import TokenSource

CONNECTION_FILE = Path(".data", FILE)


class NoConnection(Exception):
    """Nothing says where the gateway is, or what says so cannot be used."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A gateway to talk to."""

    target: str
    api_key: str | None = field(default=None, repr=False)
    context: Mapping[str, Any] = field(default_factory=dict)
    """Context of questions that bring none of these keys."""
    operator: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What commands for operators need: store, targets. Empty unless the standalone says so."""
    standalone: str = ""
    """Data folder of the local standalone that said so; empty if none did."""
    identity_target: str | None = None
    """Where identity is, if that is said."""
    memory_target: str | None = None
    """Where memory is, if that is said."""
    documents_target: str | None = None
    """Where documents are, if that is said."""
    files_target: str | None = None
    """Where workspaces are, if that is said."""
    tokens: TokenSource | None = field(default=None, repr=False)
    """Tokens of the signed-in user; they win over the key of a local standalone."""

    def context_for(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """``given`` with the defaults; a caller that sets one of their keys sets all of them."""
        if any(key in given for key in self.context):
            return dict(given)
        return {**self.context, **given}


def find_connection(target: str | None, api_key: str | None, start: Path) -> Connection:
    """The gateway that options and environment name, else the local one.

    Args:
        target: From an option or the environment.
        api_key: From an option or the environment.
        start: Folder from which the file is searched upwards.

    Raises:
        NoConnection: there is none; says what to do.
    """
    if target:
        return Connection(target, api_key or None)
    passed_over: list[str] = []
    for folder in (start, *start.parents):
        path = folder / CONNECTION_FILE
        if path.is_file():
            try:
                return _local(path, read_believed(path), api_key)
            except NotBelieved as reason:
                passed_over.append(f" {path} is passed over: {reason}.")
    raise NoConnection(
        "No gateway is known: start one with `bos serve all`, or name one with --target "
        f"(or BOS_TARGET), and its key with BOS_API_KEY.{''.join(passed_over[:3])}"
    )


def _local(path: Path, content: Mapping[str, Any], api_key: str | None) -> Connection:
    try:
        return Connection(
            target=str(content["target"]),
            api_key=api_key or content.get("api_key"),
            context=dict(content.get("context") or {}),
            operator=dict(content.get("operator") or {}),
            standalone=str(path.parent.resolve()),
            identity_target=str(content.get("identity_target") or "") or None,
            memory_target=str(content.get("memory_target") or "") or None,
            documents_target=str(content.get("documents_target") or "") or None,
            files_target=str(content.get("files_target") or "") or None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise NoConnection(
            f"{path} cannot be used ({type(error).__name__}); start `bos serve all` again, or name "
            "a gateway with --target."
        ) from error
