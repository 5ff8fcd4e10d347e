"""Gateways with the product's settings, forked by the thousand."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from gateway_harness.crash.harness import PROGRAM, Gateway
from gateway_harness.harness import Harness, gateway_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def forked_gateway(
    harness: Harness, *options: str, log: str = os.devnull, **overrides: object
) -> AsyncIterator[Gateway]:
    """As ``crash.harness.crashing_gateway``, with the product's settings but for ``overrides``.

    Raises:
        ValueError: it ended before it could serve.
    """
    replica_id = uuid4()
    program = (str(PROGRAM), "disarm", "--replica-id", str(replica_id), *options)
    with Path(log).open("ab") as errors:  # noqa: ASYNC230
        started = gateway_process(harness, log=errors, program=program, **overrides)
        async with started as (process, client):
            yield Gateway(process, client, replica_id)
