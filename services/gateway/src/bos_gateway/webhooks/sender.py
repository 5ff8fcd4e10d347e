"""One attempt to post one event: its body is made of the log, signed, and posted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attrs import define
from google.protobuf.message import DecodeError

from bos.gateway import v1 as gateway
from bos_errors import NotFound
from bos_gateway.core.fold import fold
from bos_gateway.core.run_state import BrokenLog, UnknownEvent
from bos_gateway.core.shown.display import with_display
from bos_gateway.key_ring import SecretsUnreadable
from bos_gateway.run_log.reader import run_of
from bos_gateway.webhooks import payload
from bos_gateway.webhooks.signing import signed_headers
from bos_http import HttpFailed, HttpRefused, HttpTimedOut
from bos_postgres import fetchval, for_user

if TYPE_CHECKING:
    import asyncio

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.key_ring import SecretsKeyRing
    from bos_gateway.run_log.reader import Runs
    from bos_gateway.webhooks.outbox import Claim
    from bos_http import HttpClient

_GONE = 410
_APPROVAL = for_user("SELECT payload FROM approvals WHERE approval_id = $1")


@define(eq=False)
class Sender:
    """Posts events to receivers."""

    _runs: Runs
    _readers: asyncpg.Pool[asyncpg.Record]
    """Connections of the role that sees the rows of one user."""
    _ring: SecretsKeyRing | None
    _http: HttpClient
    _rendering: asyncio.Semaphore
    """Runs that are held in memory at once."""
    _telemetry: Telemetry
    _max_body_bytes: int
    _timeout_s: float

    async def attempt(self, claim: Claim) -> gateway.WebhookOutcome:
        """Post the event once; how the receiver answered, of which no more is kept.

        Raises:
            BosError: the database is away.
        """
        log = self._telemetry.logger("bos.gateway.webhooks")
        try:
            async with self._rendering:
                body = await self._body(claim)
            headers = self._headers(claim, body)
        except NotFound:  # deleted meanwhile, and the delivery with it
            return gateway.WEBHOOK_OUTCOME_NOT_SENT
        except (BrokenLog, UnknownEvent, DecodeError, SecretsUnreadable, ValueError) as error:
            log.error("webhook event not rendered", error=type(error).__name__)
            return gateway.WEBHOOK_OUTCOME_NOT_SENT
        return await self._post(claim.url, headers, body)

    async def _body(self, claim: Claim) -> bytes:
        at = claim.created_at
        if claim.run_id is None:
            return payload.test(str(claim.webhook_id), at)
        if claim.event == gateway.WEBHOOK_EVENT_APPROVAL_REQUESTED:
            stored = await fetchval(self._readers, _APPROVAL, claim.user_id, claim.approval_id)
            if stored is None:
                raise NotFound("There is no such approval.")
            approval = with_display(gateway.Approval.FromString(stored))
            return payload.approval_requested(approval, at, self._max_body_bytes)
        events = await self._runs.of(claim.user_id).log(claim.run_id)
        if not events:
            raise NotFound("There is no such run.")
        run = run_of(fold(str(claim.run_id), events))
        return payload.run_finished(run, at, self._max_body_bytes)

    def _headers(self, claim: Claim, body: bytes) -> dict[str, str]:
        if self._ring is None:
            raise SecretsUnreadable("no key is configured")
        secret = self._ring.open(claim.webhook_id, claim.sealed)["secret"]
        signed = signed_headers(secret, str(claim.delivery_id), int(time.time()), body)
        return {"Content-Type": "application/json; charset=utf-8", **signed}

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> gateway.WebhookOutcome:
        try:
            response = await self._http.request(
                "POST",
                url,
                headers=headers,
                body=body,
                timeout_s=self._timeout_s,
                content_types=(),
                follow_redirects=False,
                read_body=False,
            )
        except HttpRefused:
            return gateway.WEBHOOK_OUTCOME_REFUSED
        except HttpTimedOut:
            return gateway.WEBHOOK_OUTCOME_TIMED_OUT
        except HttpFailed:
            return gateway.WEBHOOK_OUTCOME_UNREACHABLE
        return _outcome(response.status)


def _outcome(status: int) -> gateway.WebhookOutcome:
    if status == _GONE:
        return gateway.WEBHOOK_OUTCOME_GONE
    return {
        2: gateway.WEBHOOK_OUTCOME_ACCEPTED,
        3: gateway.WEBHOOK_OUTCOME_REDIRECTED,
        4: gateway.WEBHOOK_OUTCOME_CLIENT_ERROR,
    }.get(status // 100, gateway.WEBHOOK_OUTCOME_SERVER_ERROR)
