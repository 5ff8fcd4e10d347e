"""The keys that sign access tokens: in the store, encrypted, or in files."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bos.identity.v1 import JsonWebKey
from bos_chassis.concurrency.tasks import running_task
from bos_errors import BosError, ConfigurationError
from bos_identity.accounts import SERVICE
from bos_identity.signing.rotation import KeyDates, RotationPolicy, due, signing_key
from bos_postgres import acquire, statement_errors
from bos_postgres.audit import record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_identity.metrics import IdentityMetrics
    from bos_identity.settings import IdentitySettings
    from bos_postgres.connections import Session

ALGORITHM = "EdDSA"
# Tokens are accepted a little longer by those whose clocks are behind.
_LEEWAY = timedelta(minutes=10)
_RETRY_S = 1.0
# Any number of our own; it names the right to rotate the keys of this store.
_LOCK = 0x626F73_6B657973

_SELECT = "SELECT key_id, public_key, sealed_key, active_from FROM signing_keys"
_INSERT = """
INSERT INTO signing_keys (key_id, public_key, sealed_key, active_from) VALUES ($1, $2, $3, $4)
"""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key, and its public part."""

    key_id: str
    private: Ed25519PrivateKey
    active_from: datetime

    @classmethod
    def of(cls, private: Ed25519PrivateKey, active_from: datetime) -> SigningKey:
        """The key under the id that follows from its public half."""
        public = private.public_key().public_bytes_raw()
        return cls(hashlib.sha256(public).hexdigest()[:16], private, active_from)

    @property
    def dates(self) -> KeyDates:
        """Its life."""
        return KeyDates(self.key_id, self.active_from)

    @property
    def published(self) -> JsonWebKey:
        """Its public half."""
        public = self.private.public_key().public_bytes_raw()
        text = base64.urlsafe_b64encode(public).rstrip(b"=").decode()
        return JsonWebKey(
            kty="OKP", crv="Ed25519", x=text, kid=self.key_id, use="sig", alg=ALGORITHM
        )


class KeyRing(Protocol):
    """Keys that sign and verify."""

    @property
    def current(self) -> SigningKey:
        """The key that signs now."""

    @property
    def published(self) -> list[JsonWebKey]:
        """Every key that verifies tokens, now or soon."""


class FileKeys:
    """Keys given by files; changing them means changing the files and starting again.

    Args:
        files: The first one signs, the others are published as well.

    Raises:
        ConfigurationError: A file does not hold a usable key.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        began = datetime.now(UTC)
        self._keys = [SigningKey.of(_read_key(file), began) for file in files]

    @property
    def current(self) -> SigningKey:
        """The key of the first file."""
        return self._keys[0]

    @property
    def published(self) -> list[JsonWebKey]:
        """The keys of all files."""
        return [key.published for key in self._keys]


class StoredKeys:
    """Keys in the store, shared by all replicas and rotated by whichever looks first.

    Args:
        pool: Connections whose search path is the service's schema.
        sealer: Encrypts private keys; the store never sees one.
        policy: When keys come and go.
        metrics: Where the state of the keys goes.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        sealer: MultiFernet,
        policy: RotationPolicy,
        metrics: IdentityMetrics,
    ) -> None:
        self._pool = pool
        self._sealer = sealer
        self._policy = policy
        self._metrics = metrics
        self._keys: list[SigningKey] = []

    @property
    def current(self) -> SigningKey:
        """The newest active key."""
        chosen = signing_key([key.dates for key in self._keys], datetime.now(UTC))
        return next(key for key in self._keys if key.key_id == chosen.key_id)

    @property
    def published(self) -> list[JsonWebKey]:
        """Every key of the store, as of the last look."""
        return [key.published for key in self._keys]

    async def refresh(self) -> None:
        """Read the keys, after making and deleting those that are due.

        Raises:
            ConfigurationError: A key in the store was encrypted by a key that is not configured.
            Unavailable: The store is away.
        """
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                async with connection.transaction():
                    # One replica decides at a time, so that all of them see the same keys.
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                    self._keys = await self._rotated(connection)
        self._metrics.signing_keys.set(len(self._keys))
        self._metrics.keys_loaded.set(time.time())

    async def _rotated(self, connection: Session) -> list[SigningKey]:
        now: datetime = await connection.fetchval("SELECT now()")
        keys = [self._opened(row) for row in await connection.fetch(_SELECT)]
        rotation = due([key.dates for key in keys], now, self._policy)
        if rotation.new_key_from is not None:
            new = SigningKey.of(Ed25519PrivateKey.generate(), rotation.new_key_from)
            sealed = self._sealer.encrypt(new.private.private_bytes_raw())
            public = new.private.public_key().public_bytes_raw()
            await connection.execute(_INSERT, new.key_id, public, sealed, new.active_from)
            keys.append(new)
            await record(connection, [SERVICE.entry("signing_key.created", new.key_id)])
        if rotation.dead:
            gone = [SERVICE.entry("signing_key.deleted", key_id) for key_id in rotation.dead]
            await record(connection, gone)
            await connection.execute(
                "DELETE FROM signing_keys WHERE key_id = ANY($1)", list(rotation.dead)
            )
        return [key for key in keys if key.key_id not in rotation.dead]

    def _opened(self, row: asyncpg.Record) -> SigningKey:
        try:
            private = Ed25519PrivateKey.from_private_bytes(self._sealer.decrypt(row["sealed_key"]))
        except InvalidToken:
            raise ConfigurationError(
                "A signing key in the store was encrypted by another key. Add that key to "
                "BOS_IDENTITY_KEY_ENCRYPTION_KEYS, behind the one to use from now on."
            ) from None
        key = SigningKey.of(private, row["active_from"])
        if key.key_id != row["key_id"] or private.public_key().public_bytes_raw() != bytes(
            row["public_key"]
        ):
            raise ConfigurationError(
                f"The signing key {row['key_id']} in the store is not what it says it is; delete "
                "its row and find out who changed it."
            )
        return key


@asynccontextmanager
async def open_key_ring(
    settings: IdentitySettings,
    pool: asyncpg.Pool[asyncpg.Record],
    metrics: IdentityMetrics,
    telemetry: Telemetry,
) -> AsyncIterator[KeyRing]:
    """The keys that the settings describe, kept fresh until the block is left.

    Raises:
        ConfigurationError: No keys are configured, or they are not usable.
        Unavailable: The store is away.
    """
    if settings.signing_key_files:
        yield FileKeys(settings.signing_key_files)
        return
    keys = StoredKeys(pool, sealer(settings), _policy(settings), metrics)
    await keys.refresh()
    log = telemetry.logger("bos.identity.keys")

    async def stay_fresh() -> None:
        wait_s = settings.signing_key_refresh_s
        while True:
            await asyncio.sleep(wait_s)
            try:
                await keys.refresh()
                wait_s = settings.signing_key_refresh_s
            except BosError as error:
                log.warning("signing keys not read", reason=error.reason)
                wait_s = min(_RETRY_S, settings.signing_key_refresh_s)
            except Exception:
                # After any error, the next look must come.
                log.exception("signing keys not read")

    async with running_task(stay_fresh(), "signing keys"):
        yield keys


def new_key_encryption_key() -> str:
    """A key for ``BOS_IDENTITY_KEY_ENCRYPTION_KEYS``."""
    return Fernet.generate_key().decode()


def _policy(settings: IdentitySettings) -> RotationPolicy:
    return RotationPolicy(
        life=timedelta(seconds=settings.signing_key_life_s),
        ahead=timedelta(seconds=settings.signing_key_ahead_s),
        after=timedelta(seconds=settings.access_token_s) + _LEEWAY,
    )


def sealer(settings: IdentitySettings) -> MultiFernet:
    """What encrypts secrets in the store.

    Raises:
        ConfigurationError: No key is configured, or it is not usable.
    """
    secret = settings.key_encryption_keys
    keys = [] if secret is None else secret.get_secret_value().split(",")
    try:
        sealers = [Fernet(key.strip()) for key in keys if key.strip()]
    except (ValueError, TypeError):
        sealers = []
    if not sealers:
        raise ConfigurationError(
            "The signing keys need a key that encrypts them in the store. Set "
            "BOS_IDENTITY_KEY_ENCRYPTION_KEYS to 32 random bytes in URL-safe base64 "
            "(`openssl rand -base64 32 | tr +/ -_`), or BOS_IDENTITY_SIGNING_KEY_FILES to keys of "
            "your own."
        )
    return MultiFernet(sealers)


def _read_key(file: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(
            f"{file} (BOS_IDENTITY_SIGNING_KEY_FILES) does not hold an unencrypted Ed25519 private "
            "key in PEM form. Make one with `openssl genpkey -algorithm ed25519`."
        )
    return key
