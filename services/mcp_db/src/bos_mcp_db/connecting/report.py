"""What ``bos connect`` found, wrote and tried: for people as it goes, or as JSON at the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import click

from bos_mcp_db.connecting.allow_list import LeftOut, Proposal
from bos_mcp_db.connecting.drafting import Metadata
from bos_mcp_db.connecting.roles.trial import Finding
from bos_mcp_db.connecting.texts import one_line

_SHOWN: Final = 40
_FILES: Final = {
    "role": "the role, for an administrator to run",
    "metadata": "what the tables mean",
}


@dataclass(slots=True)
class Report:
    """Collects what is reported. With ``as_json`` nothing is shown before :meth:`end`."""

    as_json: bool
    _parts: dict[str, Any] = field(default_factory=dict)

    def proposed(self, proposal: Proposal, unusable: Sequence[LeftOut]) -> None:
        """The allow-list, and what is not on it."""
        left_out = (*proposal.left_out, *unusable)
        self._parts |= {
            "tables": list(proposal.names),
            "left_out": [asdict(each) for each in left_out],
            "to_check": list(proposal.to_check),
        }
        self._list(f"Proposed to be read ({len(proposal.names)}):", proposal.names)
        self._list("Left out:", [f"{each.table}: {each.reason}" for each in left_out])
        self._list("To check before it is read:", proposal.to_check)

    def drafted(self, metadata: Metadata) -> None:
        """The metadata file, and what in it is to be checked."""
        self._parts["metadata"] = {
            "author": metadata.author,
            "to_check": list(metadata.to_check),
        }
        self._say(f"\n{one_line(metadata.author, 500)}")
        self._list("To check in the metadata file:", metadata.to_check)

    def written(self, files: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """Files by kind, ``role`` and ``metadata``, and settings by variable."""
        self._parts |= {"files": dict(files), "settings": dict(settings)}
        self._list("Written:", [f"{path}: {_FILES[kind]}" for kind, path in files.items()])
        self._say("\nSettings:")
        for variable, value in settings.items():
            self._say(f"{variable}={shlex.quote(value)}")

    def note(self, text: str) -> None:
        """A line for people."""
        self._say(f"\n{one_line(text, 500)}")

    def progress(self, text: str) -> None:
        """A line about what takes a while."""
        if not self.as_json:
            click.echo(one_line(text, 200), err=True)

    def tried(self, what: str, findings: Sequence[Finding]) -> bool:
        """What was tried, and how it went; whether all of it went as it has to."""
        is_safe = all(finding.ok for finding in findings)
        self._parts["trial"] = {
            "is_safe": is_safe,
            "findings": [asdict(finding) for finding in findings],
        }
        self._say(f"\n{what} was tried:")
        for each in findings:
            self._say(f"  {'ok      ' if each.ok else 'PROBLEM '} {one_line(each.text, 400)}")
        if not is_safe:
            self._say("Do not use it before this is mended: REVOKE what goes beyond reading.")
        return is_safe

    def end(self) -> None:
        """Print the JSON, if that was asked for."""
        if self.as_json:
            click.echo(json.dumps(self._parts, ensure_ascii=False, indent=2))

    def _list(self, title: str, lines: Sequence[str]) -> None:
        if not lines:
            return
        self._say(f"\n{title}")
        for line in lines[:_SHOWN]:
            self._say(f"  {one_line(line, 400)}")
        if len(lines) > _SHOWN:
            self._say(f"  and {len(lines) - _SHOWN} more")

    def _say(self, line: str) -> None:
        if not self.as_json:
            click.echo(line)
