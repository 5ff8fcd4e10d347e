"""Audit trail of a service: who did what, in rows that cannot be changed unnoticed.

An entry is written in the transaction of what it records, so there is none without the other.
Within seconds it is sealed: it gets its place in the trail and a hash over itself and the hash
before it. A row that is changed, added or taken out breaks the chain from there on; an end that is
cut off is found by an exported hash, or by one of those in the log.

Entries name users by id and hold no content: no question, no answer, no value, no e-mail address.
"""

from bos_postgres.audit.actors import OPERATOR, By, unauthenticated
from bos_postgres.audit.chain import Checkpoint, Defect, SealedEntry, verify
from bos_postgres.audit.entries import (
    AuditEntry,
    columns_of,
    deed,
    record,
    record_alone,
)
from bos_postgres.audit.own_settings import record_settings, settings_entry
from bos_postgres.audit.refusals import Refusals
from bos_postgres.audit.sealing import (
    AUDIT_MIGRATIONS,
    AuditSettings,
    migrate_audit,
    running_audit,
)
from bos_postgres.audit.servicer import AUDIT_SERVICE, audit_servicer
from bos_postgres.audit.store import ServiceStore
from bos_postgres.audit.trail import checkpoint, drop_older, read, seal

__all__ = [
    "AUDIT_MIGRATIONS",
    "AUDIT_SERVICE",
    "OPERATOR",
    "AuditEntry",
    "AuditSettings",
    "By",
    "Checkpoint",
    "Defect",
    "Refusals",
    "SealedEntry",
    "ServiceStore",
    "audit_servicer",
    "checkpoint",
    "columns_of",
    "deed",
    "drop_older",
    "migrate_audit",
    "read",
    "record",
    "record_alone",
    "record_settings",
    "running_audit",
    "seal",
    "settings_entry",
    "unauthenticated",
    "verify",
]
