"""Webhooks of users: added within a limit, listed, deleted, with what was delivered to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from attrs import define

from bos.gateway import v1 as gateway
from bos_chassis.paging import after_time, time_token
from bos_errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from bos_gateway.webhooks.signing import new_secret
from bos_http import HttpRefused
from bos_postgres import fetch, for_user
from bos_postgres.audit import deed, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from bos_gateway.key_ring import SecretsKeyRing
    from bos_http import HttpClient, Target
    from bos_postgres.audit import By

    Pool = asyncpg.Pool[asyncpg.Record]

_DEFAULT_PAGE: Final = 50
_ALL_EVENTS: Final = (
    gateway.WEBHOOK_EVENT_RUN_FINISHED,
    gateway.WEBHOOK_EVENT_APPROVAL_REQUESTED,
)
# A concurrent insert for this account waits, and then counts this one.
_LOCK: Final = "SELECT pg_advisory_xact_lock(20261127, hashtext($1))"
_COUNT: Final = "SELECT count(*) FROM webhooks WHERE user_id = $1"
_SHOWN: Final = "webhook_id, url, events, created_at, last_success_at, last_failure_at, disabled_at"
_INSERT: Final = f"""
INSERT INTO webhooks (webhook_id, user_id, url, origin, events, key_id, secret)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING {_SHOWN}
"""  # noqa: S608  our own text
_LIST: Final = for_user(
    f"SELECT {_SHOWN} FROM webhooks WHERE user_id = $1 ORDER BY created_at, webhook_id"  # noqa: S608
)
_ONE: Final = for_user(
    f"SELECT {_SHOWN} FROM webhooks WHERE webhook_id = $1 AND user_id = $2"  # noqa: S608
)
_DELETE: Final = """
WITH gone AS (
    DELETE FROM webhooks WHERE webhook_id = $1 AND user_id = $2 RETURNING webhook_id
), dropped AS (
    DELETE FROM webhook_deliveries AS d USING gone AS g WHERE d.webhook_id = g.webhook_id
)
SELECT webhook_id FROM gone
"""
_DELIVERY: Final = (
    "delivery_id, webhook_id, event, run_id, state, attempts, outcome, created_at, due_at, ended_at"
)
_DELIVERIES: Final = for_user(
    f"""
SELECT {_DELIVERY} FROM webhook_deliveries
WHERE webhook_id = $1 AND user_id = $2 AND (created_at, delivery_id) < ($3, $4)
ORDER BY created_at DESC, delivery_id DESC LIMIT $5
"""  # noqa: S608  our own text
)
_ONE_DELIVERY: Final = for_user(
    f"SELECT {_DELIVERY} FROM webhook_deliveries WHERE delivery_id = $1 AND user_id = $2"  # noqa: S608
)


@define(eq=False)
class Webhooks:
    """Reads and changes webhooks; rows of other users are never found.

    Raises of all methods:
        Unavailable: the database is away.
    """

    _pool: Pool
    _readers: Pool
    """Connections of the role that sees the rows of one user."""
    _ring: SecretsKeyRing | None
    _http: HttpClient
    """Whose policy says where events may be posted."""
    _limit: int
    """Webhooks of one account."""

    async def create(
        self, user_id: str, url: str, events: Sequence[gateway.WebhookEvent], by: By
    ) -> tuple[gateway.Webhook, str]:
        """Add a webhook; returns it with its secret, which is not shown again.

        Raises:
            InvalidArgument: the address may not be called.
            FailedPrecondition: the operator has set no key, or allows no webhooks.
            ResourceExhausted: the user is at its limit.
        """
        target = self._checked(url)
        if self._ring is None or not self._limit:
            raise webhooks_off()
        webhook_id, secret = uuid4(), new_secret()
        sealed = self._ring.seal(webhook_id, {"secret": secret})
        origin = "{}://{}:{}".format(*target.origin)
        chosen = sorted(events or _ALL_EVENTS)
        async with deed(self._pool) as session:
            await session.execute(_LOCK, user_id)
            if await session.fetchval(_COUNT, user_id) >= self._limit:
                raise ResourceExhausted(
                    f"You have {self._limit} webhooks, the most allowed; delete one.",
                    reason="WEBHOOK_LIMIT",
                )
            columns = (webhook_id, user_id, target.url, origin, chosen, *sealed)
            row = await session.fetchrow(_INSERT, *columns)
            assert row is not None
            # The address is content: a path may hold a secret of the receiver's.
            entry = by.entry("webhook.created", str(webhook_id), host=target.host)
            await record(session, [entry])
        return _webhook(row), secret

    async def all(self, user_id: str) -> list[gateway.Webhook]:
        """All webhooks of a user, oldest first."""
        return [_webhook(row) for row in await fetch(self._readers, _LIST, user_id, user_id)]

    async def get(self, webhook_id: str, user_id: str) -> gateway.Webhook:
        """A webhook of the user's.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        rows = await fetch(self._readers, _ONE, user_id, key_of(webhook_id), user_id)
        if not rows:
            raise _not_found(webhook_id)
        return _webhook(rows[0])

    async def delete(self, webhook_id: str, user_id: str, by: By) -> None:
        """Delete a webhook of the user's, and what was to be delivered to it.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        key = key_of(webhook_id)
        async with deed(self._pool) as session:
            if await session.fetchval(_DELETE, key, user_id) is None:
                raise _not_found(webhook_id)
            await record(session, [by.entry("webhook.deleted", str(key))])

    async def deliveries(
        self, request: gateway.ListWebhookDeliveriesRequest, user_id: str
    ) -> tuple[list[gateway.WebhookDelivery], str]:
        """A page of a webhook's deliveries, newest first, and the token of the next page.

        Raises:
            NotFound: there is no such webhook of the user's.
            InvalidArgument: the page token is not one of ours.
        """
        await self.get(request.webhook_id, user_id)
        before, last_id = after_time(request.page_token)
        size = request.page_size or _DEFAULT_PAGE
        arguments = (user_id, key_of(request.webhook_id), user_id, before, last_id, size + 1)
        rows = await fetch(self._readers, _DELIVERIES, *arguments)
        last = rows[size - 1] if len(rows) > size else None
        token = time_token(last["created_at"], last["delivery_id"]) if last else ""
        return [_delivery(row) for row in rows[:size]], token

    async def delivery(self, delivery_id: UUID, user_id: str) -> gateway.WebhookDelivery:
        """A delivery to one of the user's webhooks.

        Raises:
            NotFound: there is none any more.
        """
        rows = await fetch(self._readers, _ONE_DELIVERY, user_id, delivery_id, user_id)
        if not rows:
            raise NotFound("There is no such webhook.")
        return _delivery(rows[0])

    def _checked(self, url: str) -> Target:
        if "#" in url:
            raise InvalidArgument.field("url", "has a fragment, which is never sent; leave it out")
        try:
            return self._http.check(url)
        except HttpRefused as error:
            raise InvalidArgument.field("url", f"is refused: {error.message}") from None


def webhooks_off() -> FailedPrecondition:
    """The refusal where the operator has set no key, or allows no webhooks."""
    return FailedPrecondition(
        "Webhooks are off here. An operator turns them on by BOS_GATEWAY_SECRETS_KEYS and "
        "BOS_GATEWAY_MAX_WEBHOOKS_PER_USER.",
        reason="WEBHOOKS_OFF",
    )


def key_of(webhook_id: str) -> UUID:
    """The id of a webhook, from its text.

    Raises:
        NotFound: no webhook can have such an id.
    """
    try:
        return UUID(webhook_id)
    except ValueError:
        raise _not_found(webhook_id) from None


def _not_found(webhook_id: str) -> NotFound:
    return NotFound("There is no such webhook.", metadata={"webhook_id": webhook_id})


def _webhook(row: asyncpg.Record) -> gateway.Webhook:
    webhook = gateway.Webhook(
        webhook_id=str(row["webhook_id"]),
        url=row["url"],
        events=row["events"],
        disabled=row["disabled_at"] is not None,
    )
    webhook.create_time.FromDatetime(row["created_at"])
    if row["last_success_at"] is not None:
        webhook.last_success_time.FromDatetime(row["last_success_at"])
    if row["last_failure_at"] is not None:
        webhook.last_failure_time.FromDatetime(row["last_failure_at"])
    return webhook


def _delivery(row: asyncpg.Record) -> gateway.WebhookDelivery:
    delivery = gateway.WebhookDelivery(
        delivery_id=str(row["delivery_id"]),
        webhook_id=str(row["webhook_id"]),
        event=row["event"],
        run_id="" if row["run_id"] is None else str(row["run_id"]),
        state=row["state"],
        attempts=row["attempts"],
        outcome=row["outcome"],
    )
    delivery.create_time.FromDatetime(row["created_at"])
    if row["ended_at"] is not None:
        delivery.end_time.FromDatetime(row["ended_at"])
    else:
        delivery.next_attempt_time.FromDatetime(row["due_at"])
    return delivery
