"""Credentials of runs, encrypted at rest, so that an adopter can hand them on.

A row is written by the statement that accepts its run and deleted by the one that ends it. The
ciphertext is bound to its run: in another run's row it does not open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from bos_gateway.key_ring import SealedSecrets, SecretsKeyRing, SecretsUnreadable
from bos_postgres import fetchrow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    import asyncpg
    from structlog.typing import FilteringBoundLogger

    from bos_chassis.telemetry import Telemetry

_ROW = "SELECT key_id, ciphertext FROM run_secrets WHERE run_id = $1"


@define(eq=False)
class RunSecrets:
    """Seals the credentials of new runs and finds those of adopted ones; logs none of them."""

    _ring: SecretsKeyRing | None
    """The keys; None keeps credentials in memory only."""
    _pool: asyncpg.Pool[asyncpg.Record]
    _telemetry: Telemetry
    _log: FilteringBoundLogger = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Say so if no key is configured."""
        self._log = self._telemetry.logger("bos.gateway.run_secrets")
        if self._ring is None:
            self._log.warning(
                "no BOS_GATEWAY_SECRETS_KEYS: a run whose gateway dies loses its credentials"
            )

    def seal(self, run_id: UUID, secrets: Mapping[str, str]) -> SealedSecrets | None:
        """Encrypt the credentials of a new run; None if there is nothing, or no key."""
        if self._ring is None or not secrets:
            return None
        return self._ring.seal(run_id, secrets)

    async def load(self, run_id: UUID) -> dict[str, str]:
        """The stored credentials of a run; empty if there are none that can be read.

        Raises:
            BosError: the database is away.
        """
        row = await fetchrow(self._pool, _ROW, run_id)
        if row is None:
            return {}
        try:
            if self._ring is None:
                raise SecretsUnreadable("no key is configured")
            return self._ring.open(run_id, SealedSecrets(*row))
        except SecretsUnreadable as error:
            self._log.error(
                "credentials cannot be read", run=str(run_id), key_id=row["key_id"], why=str(error)
            )
            return {}
