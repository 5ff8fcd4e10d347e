"""Credentials as they occur in texts: their parts, their encodings, and the masks of these. Pure.

Masking a credential and putting it in again go by the same list: of a credential under
KEY its own text is ``[secret KEY]``, and each other form of it ``[secret KEY #N]``, where N counts
the others in the order of their texts. A mask reveals nothing but which form stood there.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

MIN_SECRET_CHARS: Final = 6
"""Shorter ones are words of ordinary text, which would be riddled."""
MAX_PARTS: Final = 32
"""Texts that one run's credentials may consist of: all that its services say is searched for each
of them in a dozen forms."""
_SCHEME: Final = re.compile(r"(?:Bearer|Basic|Token|ApiKey)\s+(\S+)", re.IGNORECASE)
_PERCENT: Final = re.compile(r"%[0-9A-F]{2}")
_TELLING: Final = re.compile(
    r"auth|token|key|secret|cookie|passw|credential|session|signature", re.IGNORECASE
)
_RANDOM: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{20,}")


class TooManyParts(ValueError):
    """The credentials of a run consist of more texts than can be looked for."""


def mask_of(key: str) -> str:
    """What people read where a credential stood, in any form."""
    return f"[secret {key}]"


def masks(secrets: Mapping[str, str]) -> dict[str, str]:
    """What people read for each form of credentials, which may be one mask for several forms.

    Args:
        secrets: The credentials by key.

    Raises:
        TooManyParts: They consist of over :data:`MAX_PARTS` texts.
    """
    parts = [(key, part) for key in sorted(secrets) for part in _parts(secrets[key])]
    if len(parts) > MAX_PARTS:
        raise TooManyParts
    return {form: mask_of(key) for key, part in parts for form in _forms(part)}


def telling_masks(secrets: Mapping[str, str]) -> dict[str, str]:
    """As :func:`masks`, with one mask for each form, so that the form can stand there again.

    Raises:
        TooManyParts: They consist of over :data:`MAX_PARTS` texts.
    """
    found = masks(secrets)
    for key, secret in secrets.items():
        others = {form for part in _parts(secret) for form in _forms(part)} - {secret}
        for number, form in enumerate(sorted(others), start=1):
            if found[form] == mask_of(key):  # and not another credential's as well
                found[form] = f"[secret {key} #{number}]"
    return found


def _parts(secret: str) -> Iterable[str]:
    """What of a credential gives it away: all of it, and of headers and such each text in it."""
    found = {secret, secret.strip()}
    try:
        structure = json.loads(secret)
    except (ValueError, RecursionError):
        structure = None
    waiting: list[tuple[str, Any]] = [("", structure)]
    while waiting and len(found) <= MAX_PARTS:
        name, each = waiting.pop()
        if isinstance(each, str):
            if not name or _gives_away(name, each):
                found.add(each)
        elif isinstance(each, int | float) and (not name or _TELLING.search(name)):
            found.add(json.dumps(each))
        elif isinstance(each, dict):
            waiting += each.items()
        elif isinstance(each, list):
            waiting += [(name, inner) for inner in each]
    found |= {match[1] for each in found if (match := _SCHEME.fullmatch(each.strip()))}
    return sorted(each for each in found if len(each) >= MIN_SECRET_CHARS and _is_text(each))


def _gives_away(name: str, value: str) -> bool:
    """Whether an entry of a map is a credential, and not a word such as ``application/json``."""
    return bool(_TELLING.search(name) or _SCHEME.match(value) or _RANDOM.fullmatch(value))


def _is_text(text: str) -> bool:
    """Whether it is one that can be sent: JSON may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _forms(secret: str) -> set[str]:
    """The text of a credential, and what it looks like inside of URLs, JSON, HTML and base64."""
    content = secret.encode()
    urls = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    urls |= {_PERCENT.sub(lambda match: match[0].lower(), url) for url in urls}
    inside = {json.dumps(secret), json.dumps(secret, ensure_ascii=False)}
    inside |= {each.replace("/", "\\/") for each in inside}
    forms = {secret, *urls, *(each[1:-1] for each in inside), html.escape(secret)}
    forms |= {content.hex(), content.hex().upper()}
    for before in range(3):  # what stands before it decides how its bits are cut
        first, last = -(-before * 8 // 6), (before + len(content)) * 8 // 6
        forms |= {
            encode(bytes(before) + content).decode()[first:last]
            for encode in (base64.b64encode, base64.urlsafe_b64encode)
        }
    return forms
