"""Proposed actions and their digest, which ties an approval to one exact tool call.

The digest is ``sha256:`` and the hex SHA-256 of the canonical form, which is defined here alone
(independent of protobuf encoding, locale and map order):

* UTF-8 JSON without white space, keys sorted by code point, characters beyond ASCII as they are;
* ``{"arguments":{NAME:VALUE,…},"tool":NAME}``;
* a VALUE is ``null``, ``true``, ``false``, a JSON string for text, a JSON array for a list, or an
  object with one key that names the type: ``{"int":"5"}``, ``{"double":"0x1.8000000000000p+0"}``
  (C99 hex, so that no two doubles look alike; ``nan``, ``inf``, ``-inf``), ``{"decimal":"1.50"}``,
  ``{"bytes":HEX}``, ``{"date":"2026-01-31"}``,
  ``{"timestamp":"SECONDS.NANOS"}`` (since 1970 UTC, nine decimals), ``{"map":{NAME:VALUE,…}}``.

The gateway masks credentials of the run in an action, also parts and other encodings of them
(:mod:`bos_chassis.credentials.credential_forms`), and an approved action comes back masked. The
digest covers the unmasked action, so :func:`with_secrets` verifies what it restores.

Types are part of the form because a tool sees them: ``"5"`` and ``5`` are different arguments.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from bos.agent.v1 import ProposedAction
from bos.common.v1 import Value, ValueMap
from bos_chassis.credentials.credential_forms import TooManyParts, mask_of, telling_masks

_PREFIX = "sha256:"


def canonical_form(tool: str, arguments: ValueMap) -> str:
    """Canonical JSON of a call, the input of its digest."""
    return json.dumps(
        {"tool": tool, "arguments": _canonical_fields(arguments)},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )


def action_digest(tool: str, arguments: ValueMap) -> str:
    """Digest of one call of ``tool`` with exactly these ``arguments``."""
    return _PREFIX + hashlib.sha256(canonical_form(tool, arguments).encode()).hexdigest()


def digest_matches(action: ProposedAction) -> bool:
    """Whether ``action`` carries the digest of its own tool and arguments."""
    return action.digest == action_digest(action.tool, action.arguments)


def with_secrets(action: ProposedAction, secrets: Mapping[str, str]) -> ProposedAction:
    """Restore the credentials that the gateway masked in the arguments of an approved action.

    The digest verifies the result: a text that merely looks like a mask is kept, and an action
    that cannot be restored is returned unchanged, to be refused later.
    """
    if not secrets or digest_matches(action):
        return action
    whole = ProposedAction()
    whole.CopyFrom(action)
    try:
        forms = {mask: form for form, mask in telling_masks(secrets).items()}
    except TooManyParts:
        return action
    forms |= {mask_of(key): secret for key, secret in secrets.items()}
    _unmask(whole.arguments, _Masks(forms))
    return whole if digest_matches(whole) else action


class _Masks:
    """Replaces masks by forms of credentials in one pass; replacements are not scanned again."""

    def __init__(self, forms: Mapping[str, str]) -> None:
        self._forms = forms
        self._pattern = re.compile("|".join(map(re.escape, forms)))

    def text(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._forms[found[0]], text)

    def content(self, content: bytes) -> bytes:
        """As :meth:`text`, for bytes that need not be UTF-8."""
        return self.text(content.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _unmask(fields: ValueMap, masks: _Masks) -> None:
    for name, value in list(fields.fields.items()):
        _unmask_value(value, masks)
        if (unmasked := masks.text(name)) != name:
            fields.fields[unmasked].CopyFrom(value)
            del fields.fields[name]


def _unmask_value(value: Value, masks: _Masks) -> None:
    match value.WhichOneof("kind"):
        case "string_value":
            value.string_value = masks.text(value.string_value)
        case "bytes_value":
            value.bytes_value = masks.content(value.bytes_value)
        case "list_value":
            for item in value.list_value.values:
                _unmask_value(item, masks)
        case "map_value":
            _unmask(value.map_value, masks)


def _canonical_fields(fields: ValueMap) -> dict[str, Any]:
    return {name: _canonical(value) for name, value in fields.fields.items()}


def _canonical(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case None | "null_value":
            return None
        case "bool_value":
            return value.bool_value
        case "string_value":
            return value.string_value
        case "int64_value":
            return {"int": str(value.int64_value)}
        case "double_value":
            return {"double": value.double_value.hex()}
        case "decimal_value":
            return {"decimal": value.decimal_value}
        case "bytes_value":
            return {"bytes": value.bytes_value.hex()}
        case "date_value":
            day = value.date_value
            return {"date": f"{day.year:04}-{day.month:02}-{day.day:02}"}
        case "timestamp_value":
            moment = value.timestamp_value
            return {"timestamp": f"{moment.seconds}.{moment.nanos:09}"}
        case "list_value":
            return [_canonical(item) for item in value.list_value.values]
        case "map_value":
            return {"map": _canonical_fields(value.map_value)}
