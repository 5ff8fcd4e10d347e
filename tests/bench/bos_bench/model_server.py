"""The scripted model as a process of its own, so that its processor time is not the client's.

Writes its base URL as a line of JSON and serves until its standard input ends, however that comes
about.
"""

from __future__ import annotations

import asyncio
import json
import sys

from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

REPLY = "The five customers brought 612,000 EUR, which is 41 % of the total. " * 4


async def main() -> None:
    """Serve."""
    anything = fixture("anything", [], text=REPLY)
    async with ScriptedModel([anything]) as model:
        print(json.dumps({"base_url": model.base_url}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
