"""Gateways with the product's settings, forked by the thousand."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from crash_house import PROGRAM, Gateway
from gateway_house import House, gateway_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def forked_gateway(
    house: House, *options: str, log: str = os.devnull, **overrides: object
) -> AsyncIterator[Gateway]:
    """As ``crash_house.crashing_gateway``, with the product's settings but for ``overrides``.

    Raises:
        ValueError: it ended before it could serve.
    """
    replica_id = uuid4()
    program = (str(PROGRAM), "disarm", "--replica-id", str(replica_id), *options)
    with Path(log).open("ab") as errors:  # noqa: ASYNC230
        started = gateway_process(house, log=errors, program=program, **overrides)
        async with started as (process, client):
            yield Gateway(process, client, replica_id)
