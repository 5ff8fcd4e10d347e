"""Domain metrics of the identity service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class IdentityMetrics:
    """Prometheus metrics of sign-in. No label names a user or an address."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.logins = Counter(
            "bos_identity_logins",
            "Attempts to sign in: succeeded, refused or throttled",
            ("outcome",),
            registry=registry,
        )
        self.refreshes = Counter(
            "bos_identity_refreshes",
            "Uses of refresh tokens: succeeded, repeated, refused or reused",
            ("outcome",),
            registry=registry,
        )
        self.registrations = Counter(
            "bos_identity_registrations", "Accounts made", registry=registry
        )
        self.deletions_pending = Gauge(
            "bos_identity_account_deletions",
            "Accounts that are being deleted, as this replica last saw it",
            registry=registry,
        )
        self.deletions_oldest = Gauge(
            "bos_identity_account_deletion_oldest_age_seconds",
            "Age of the oldest deletion that is not done; 0 if there is none",
            registry=registry,
        )
        self.hash_seconds = Histogram(
            "bos_identity_hash_duration_seconds",
            "Time for hashing or verifying a password, the wait for a thread included",
            buckets=_SECONDS,
            registry=registry,
        )
        self.signing_keys = Gauge(
            "bos_identity_signing_keys", "Signing keys that are published", registry=registry
        )
        self.keys_loaded = Gauge(
            "bos_identity_keys_loaded_timestamp_seconds",
            "When this replica last read the signing keys",
            registry=registry,
        )
