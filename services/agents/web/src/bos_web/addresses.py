"""Addresses that a step may open without an approval: those that it was given verbatim.

Reading a page sends the address to its host. One that a model put together from what it had read
could carry that to the author of an injected instruction, so on a tainted step such an address is
opened only after an approval. One that a search brought carries nothing its author does
not know.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable

_MAX_RUNS = 512
_MAX_PER_RUN = 2_000
_URL = re.compile(r"https?://[^\s<>\"'`{}|\\^\[\]]+", re.IGNORECASE)
_TRAILING = ".,;:!?)*_~"


def addresses_in(text: str) -> list[str]:
    """Web addresses in a text, each once, without the punctuation after them."""
    found = (each.rstrip(_TRAILING) for each in _URL.findall(text))
    return [each for each in dict.fromkeys(found) if "." in each or "localhost" in each]


class FoundAddresses:
    """Addresses found by searches of a run; only the latest runs, in this process."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, dict[str, None]] = OrderedDict()

    def add(self, run_id: str, addresses: Iterable[str]) -> None:
        """Remember results of a search."""
        if not run_id:
            return
        known = self._runs.setdefault(run_id, {})
        self._runs.move_to_end(run_id)
        known.update(dict.fromkeys(addresses))
        while len(known) > _MAX_PER_RUN:
            del known[next(iter(known))]
        while len(self._runs) > _MAX_RUNS:
            self._runs.popitem(last=False)

    def has(self, run_id: str, address: str) -> bool:
        """Whether a search of the run brought an address."""
        return address in self._runs.get(run_id, {})
