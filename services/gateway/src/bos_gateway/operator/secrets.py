"""Check of what is kept of credentials: is there a key, and does it open what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos_gateway.operator.findings import Finding, ok, problem, warning
from bos_gateway.run_secrets import SealedSecrets, SecretsUnreadable

if TYPE_CHECKING:
    import asyncpg

    from bos_gateway.operator.deployment import Deployment

_MOST_ROWS: Final = 1000

_ROWS = """
SELECT s.run_id, s.key_id, s.ciphertext FROM run_secrets AS s JOIN runs AS r USING (run_id)
WHERE r.finished_at IS NULL ORDER BY s.created_at DESC LIMIT $1
"""


async def check_secrets(
    session: asyncpg.Connection[asyncpg.Record], deployment: Deployment
) -> Finding:
    """Whether the credentials of the runs under way survive their gateway; shows none of them."""
    rows = await session.fetch(_ROWS, _MOST_ROWS)
    unreadable = [row for row in rows if not _readable(deployment, row)]
    if unreadable:
        ids = ", ".join(sorted({row["key_id"] for row in unreadable}))
        return problem(
            "secrets",
            f"credentials of {len(unreadable)} run(s) cannot be read; encrypted by {ids}",
            "Add the key of that id to BOS_GATEWAY_SECRETS_KEYS of every gateway, behind the "
            "newest one, until these runs have ended. If it is there, the rows were changed.",
        )
    if not deployment.secrets_key_ids:
        return warning(
            "secrets",
            "no key: a run that changes its gateway loses the credentials given with its question",
            "Set BOS_GATEWAY_SECRETS_KEYS of every gateway to id=KEY, with KEY made by "
            "`openssl rand -base64 32`.",
        )
    ids = ", ".join(sorted(deployment.secrets_key_ids))
    return ok("secrets", f"credentials of {len(rows)} run(s) under way can be read; keys: {ids}")


def _readable(deployment: Deployment, row: asyncpg.Record) -> bool:
    if deployment.secrets is None:
        return row["key_id"] in deployment.secrets_key_ids
    try:
        deployment.secrets.open(row["run_id"], SealedSecrets(row["key_id"], row["ciphertext"]))
    except SecretsUnreadable:
        return False
    return True
