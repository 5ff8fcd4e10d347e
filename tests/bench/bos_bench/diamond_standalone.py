"""``python -m bos_bench.diamond_standalone``: standalone as it is, with the diamond's agents."""

import asyncio
import json
import sys

from bos_bench.one_call import AGENTS as DIAMOND
from bos_standalone.process import run_standalone
from bos_standalone.service import Standalone


async def _stay(standalone: Standalone) -> int:
    print(json.dumps({"address": standalone.target, "key": standalone.api_key}), flush=True)
    await asyncio.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(run_standalone(_stay, log_level="info", agents=DIAMOND))
