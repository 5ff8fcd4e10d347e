"""Keeps the log of a run as a golden log of the present schema version.

::

    export PYTHONPATH=services/gateway/tests
    python -m gateway_harness.golden.record v1/NAME STORE_URL RUN_ID
    python -m gateway_harness.golden.record --pin  # what known logs mean, anew

The second is for a change that is meant to show other things of old runs; the logs themselves stay
as they are.
"""

import asyncio
import sys
from uuid import UUID

from bos_gateway.run_log.reader import Runs
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import open_database
from gateway_harness.golden.logs import NAMES, load, pin, save


async def record(name: str, dsn: str, run_id: UUID) -> None:
    """Store the log of a run under a name that is free."""
    assert name not in NAMES, "a golden log is never recorded anew"
    async with open_database(dsn, schema=SCHEMA) as pool:
        save(name, await Runs(pool).log(run_id))


if __name__ == "__main__":
    if sys.argv[1:] == ["--pin"]:
        for name in NAMES:
            pin(name, load(name))
    elif len(sys.argv) == 4:
        asyncio.run(record(sys.argv[1], sys.argv[2], UUID(sys.argv[3])))
    else:
        sys.exit(__doc__)
