"""Files of earlier steps, as an agent whose card says ``takes_files`` is given them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bos.agent.v1 import InputFile as Sent
from bos_errors import InvalidArgument

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that an earlier step of the run made."""

    name: str
    """Without any folder; files of several steps may have the same."""
    media_type: str
    """As the agent that made it declared it."""
    digest: str
    """"sha256:" and the hex digest of the content."""
    size_bytes: int
    step_id: str
    """The step that made it."""
    problem: str
    """Why the content was not sent; empty: it was."""
    _content: bytes

    @property
    def content(self) -> bytes:
        """The bytes, which are those of the digest.

        Raises:
            InvalidArgument: they were not sent; says why.
        """
        if self.problem:
            raise InvalidArgument(f"The file {self.name} cannot be used: {self.problem}")
        return self._content


class InputFiles:
    """Files of the steps that this one rests on, those of its own dependencies first.

    Args:
        sent: As the gateway sent them.
    """

    def __init__(self, sent: Iterable[Sent]) -> None:
        self._files = [_checked(file) for file in sent]

    def __iter__(self) -> Iterator[InputFile]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def find(
        self, name: str = "", *, step: str = "", digest: str = "", field: str = "file"
    ) -> InputFile:
        """The one file with that name, of that step and with that digest; empty: any.

        Args:
            name: Name of the file.
            step: Id of the step that made it.
            digest: "sha256:" and the hex digest of its content.
            field: What an error calls the argument.

        Raises:
            InvalidArgument: there is none, or several different ones; names those that there are.
        """
        found = [
            file
            for file in self._files
            if name in ("", file.name)
            and step in ("", file.step_id)
            and digest in ("", file.digest)
        ]
        if not found:
            raise InvalidArgument.field(
                field, f"no earlier step made {name!r}; {self._described()}"
            )
        if len({file.digest for file in found}) > 1:
            steps = ", ".join(file.step_id for file in found)
            raise InvalidArgument.field(
                field, f"several steps made different files {name!r}: name the step, of {steps}"
            )
        return found[0]

    def _described(self) -> str:
        if not self._files:
            return "there are no files of steps that this one depends on"
        named = [f"{file.name} (step {file.step_id})" for file in self._files[:_MOST_NAMED]]
        more = len(self._files) - len(named)
        return f"there are {', '.join(named)}{f' and {more} more' if more else ''}"


def _checked(sent: Sent) -> InputFile:
    problem, digest = sent.problem, f"sha256:{hashlib.sha256(sent.content).hexdigest()}"
    if not problem and digest != sent.digest:
        problem = "Its content is not that of its digest."
    return InputFile(
        name=sent.name,
        media_type=sent.media_type,
        digest=sent.digest,
        size_bytes=sent.size_bytes,
        step_id=sent.step_id,
        problem=problem,
        _content=sent.content,
    )
