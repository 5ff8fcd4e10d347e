"""Files of earlier steps, read from the artefact store for an agent that takes files.

Nothing of them is logged again: every attempt, by whichever replica, reads the same content by its
digest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from attrs import define, field

from bos_errors import BosError, NotFound, ResourceExhausted, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.agent.v1 import InputFile
    from bos_artefacts import Owner
    from bos_gateway.effects.memory_budget import MemoryBudget
    from bos_gateway.run_log.run_files import RunFiles


@define(eq=False)
class InputFiles:
    """Files that a step is sent, in memory as long as this object is."""

    _budget: MemoryBudget
    """Where they are held."""
    read_files: list[InputFile] = field(init=False, factory=list)
    """What was read last."""

    async def read(
        self,
        listed: Sequence[InputFile],
        owner: Owner,
        kept: RunFiles,
        *,
        max_bytes: int,
        timeout_s: float,
    ) -> None:
        """Read the content of ``listed`` as far as ``max_bytes`` go, in the order of the list.

        A file that is larger than what is left, or gone, has a problem in words instead.

        Raises:
            Unavailable: the store is away or slow.
            ResourceExhausted: the process holds too many files at the moment.
        """
        if self.read_files or not listed:
            return
        fitting = _within(listed, max_bytes)
        if not self._budget.take(self, sum(file.size_bytes for file in fitting)):
            raise ResourceExhausted("The service holds too many files at the moment.")
        try:
            async with asyncio.timeout(timeout_s):
                for file in fitting:
                    await _fill(file, owner, kept)
        except TimeoutError:
            self._budget.free(self)
            raise Unavailable("The artefact store took too long.") from None
        except BosError:
            self._budget.free(self)
            raise
        self.read_files = list(listed)


def _within(listed: Sequence[InputFile], max_bytes: int) -> list[InputFile]:
    """Those that fit into ``max_bytes`` together; the others get their problem."""
    fitting, left = [], max_bytes
    for file in listed:
        if file.size_bytes <= left:
            left -= file.size_bytes
            fitting.append(file)
        else:
            file.problem = (
                f"It has {file.size_bytes} bytes, and the files that a step is sent may have "
                f"{max_bytes} in all (BOS_GATEWAY_MAX_INPUT_FILE_BYTES)."
            )
    return fitting


async def _fill(file: InputFile, owner: Owner, kept: RunFiles) -> None:
    try:
        file.content = await kept.kept(owner, file.digest.removeprefix("sha256:"))
    except NotFound as error:
        file.problem = error.message
