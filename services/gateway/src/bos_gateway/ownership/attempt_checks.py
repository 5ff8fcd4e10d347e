"""Checks for other services whether the attempt of a run token is under way.

A token carries its run's epoch and where the log ended when the attempt began. So nothing has to be
kept about tokens: the attempt is over once the run has ended, waits, has another owner or one whose
lease has run out, or once its log says something about the same step behind that place. That is one
look-up by primary keys, and every replica can make it.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import asyncpg
from attrs import define, field

from bos_chassis.auth.callers import Principal, RunTokenSigner, RunTokenVerifier
from bos_chassis.auth.run_token_keys import key_sources, signing_keys_file
from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import PermissionDenied, ResourceExhausted
from bos_gateway.settings import GatewaySettings
from bos_postgres import fetch

FILE_VARIABLE = "BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEYS_FILE"
# An agent may be at work before the dispatch of its step is in the log. So only what speaks against
# an attempt counts; one that the log says nothing about is under way.
_UNDER_WAY = """
SELECT FROM runs AS r JOIN replicas AS p USING (replica_id)
WHERE r.run_id = $1 AND r.user_id = $2 AND r.epoch = $3 AND r.finished_at IS NULL
      AND p.lease_until >= now()
      AND NOT EXISTS (
          SELECT FROM run_events AS e
          WHERE e.run_id = r.run_id AND e.sequence > $4 AND e.step_id = $5
      )
"""
# So that however many ask, runs still get connections of the pool; users have them in turn.
_AT_ONCE = 3


def signer_of(
    settings: GatewaySettings, now: Callable[[], float], telemetry: Telemetry
) -> RunTokenSigner | None:
    """Signer of run tokens; None if the settings name no key.

    Raises:
        ConfigurationError: A key is not usable.
    """
    key, file = settings.run_token_private_key, settings.run_token_private_keys_file
    if file is not None:
        refresh_s = settings.auth.files_refresh_s
        return RunTokenSigner(signing_keys_file(file, FILE_VARIABLE, telemetry, refresh_s), now)
    return None if key is None else RunTokenSigner(key.get_secret_value(), now)


def verifier(
    signer: RunTokenSigner, settings: AuthSettings, telemetry: Telemetry | None = None
) -> RunTokenVerifier:
    """Verifier of run tokens for any service, signed by any gateway of the installation.

    While keys are being changed, replicas sign with different ones.
    """
    return RunTokenVerifier([signer.public_keys, *key_sources(settings, telemetry)], None)


@define(eq=False)
class Attempts:
    """Looks up attempts in the log of their runs."""

    _pool: asyncpg.Pool[asyncpg.Record]
    _turns: FairPlaces = field(init=False, factory=lambda: FairPlaces(_AT_ONCE))

    async def under_way(self, principal: Principal) -> bool:
        """Whether the attempt that the caller's run token was made for is under way.

        Raises:
            PermissionDenied: the caller has no such token.
            ResourceExhausted: too many questions about steps of the same user are waiting.
        """
        attempt = principal.attempt
        if attempt is None:
            raise PermissionDenied("This is for services that a step calls.")
        run_id = UUID(principal.run_id)  # which this gateway, or another, has written
        step_id = principal.step_key.rpartition("/")[2]
        given = run_id, principal.user_id, attempt.epoch, attempt.sequence, step_id
        try:
            async with self._turns.place(principal.user_id):
                return bool(await fetch(self._pool, _UNDER_WAY, *given))
        except NoPlaceToWait:
            raise ResourceExhausted(
                "Too many questions about steps of this user are waiting.",
                reason="TOO_MANY_TOKEN_CHECKS",
                retry_after_s=1.0,
            ) from None
