"""Address tokens: how the REST gateway proves that a call comes through it, and whose call it is.

The REST gateway sends ``bos-proxy-token`` with each call: a JWT signed by its own key (EdDSA) that
lives for a minute and holds the address of its client. Nothing else says where a client is: plain
headers such as ``x-forwarded-for`` can be written by any caller that reaches the port.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from ipaddress import ip_address
from typing import TYPE_CHECKING

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bos_chassis.credentials.watched_files import secret_file
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bos_chassis.credentials.watched_files import WatchedFiles
    from bos_chassis.settings import AuthSettings
    from bos_chassis.telemetry import Telemetry

    Keys = dict[str, Ed25519PublicKey]

PROXY_TOKEN_KEY = "bos-proxy-token"  # noqa: S105  The name of a metadata key, not a secret.

_FILE_VARIABLE = "BOS_AUTH_PROXY_PUBLIC_KEYS_FILE"
_ISSUER = "bos-rest"
_AUDIENCE = "bos"
_ALGORITHM = "EdDSA"
_REQUIRED_CLAIMS = ["iss", "aud", "iat", "exp", "adr"]
_LONGEST_LIFE_S = 60
_CLOCK_SKEW_S = 5
_MAX_TOKEN_CHARS = 1024
# An address has one token for a quarter of a minute, so this is for as many clients.
_VERIFIED_TOKENS = 4096


class ProxyTokenVerifier:
    """Accepts address tokens that were signed by the owner of one of the keys.

    Args:
        public_keys: Ed25519 public keys, each a PEM text that may hold several.
        now: Seconds since 1970.
        file: Further ones, in a file that may be replaced.

    Raises:
        ConfigurationError: There is no usable key.
    """

    def __init__(
        self,
        public_keys: Sequence[str],
        now: Callable[[], float] | None = None,
        *,
        file: WatchedFiles[Keys] | None = None,
    ) -> None:
        self._fixed = {name: key for text in public_keys for name, key in _keys_in(text).items()}
        self._file = file
        if not self._fixed and file is None:
            raise _unusable()
        self._of_file: Keys | None = None
        self._now = now or time.time
        self._verified: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def verify(self, metadata: Mapping[str, str]) -> str | None:
        """The address of the client whose call this is; None if it comes through no proxy of ours.

        Empty if the proxy itself does not know it.
        """
        token = metadata.get(PROXY_TOKEN_KEY)
        if token is None or len(token) > _MAX_TOKEN_CHARS:
            return None
        keys = self._keys()
        known = self._verified.get(token)
        if known is not None and self._now() < known[1]:
            self._verified.move_to_end(token)
            return known[0]
        checked = self._check(token, keys)
        if checked is None:
            return None
        self._verified[token] = checked
        while len(self._verified) > _VERIFIED_TOKENS:
            self._verified.popitem(last=False)
        return checked[0]

    def _keys(self) -> Keys:
        """The keys as they are now; what was signed with earlier ones is forgotten with them."""
        if self._file is None:
            return self._fixed
        of_file = self._file.current()
        if of_file is not self._of_file:
            self._of_file = of_file
            self._verified.clear()
        return {**of_file, **self._fixed}

    def _check(self, token: str, keys: Keys) -> tuple[str, float] | None:
        """Address and end of a valid token."""
        try:
            key = keys.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                issuer=_ISSUER,
                # Times are looked at below, by the clock given.
                options={"require": _REQUIRED_CLAIMS, "verify_exp": False, "verify_iat": False},
            )
            address, issued, ends = claims["adr"], float(claims["iat"]), float(claims["exp"])
            if not isinstance(address, str):
                return None
            if address:
                address = str(ip_address(address))
        except (jwt.InvalidTokenError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        now = self._now()
        timely = issued - _CLOCK_SKEW_S <= now < ends + _CLOCK_SKEW_S
        # Not a number compares as false.
        if not (timely and 0 < ends - issued <= _LONGEST_LIFE_S):
            return None
        return address, ends + _CLOCK_SKEW_S


def proxy_tokens_from(
    settings: AuthSettings, telemetry: Telemetry | None = None
) -> ProxyTokenVerifier | None:
    """The verifier that ``settings`` describe; None if they name no proxy.

    Raises:
        ConfigurationError: A key is not usable.
    """
    keys, file = settings.proxy_public_keys, settings.proxy_public_keys_file
    if file is None:
        return None if keys is None else ProxyTokenVerifier([keys])
    watched = secret_file(
        file, _FILE_VARIABLE, _of_text, telemetry, refresh_s=settings.files_refresh_s
    )
    return ProxyTokenVerifier([] if keys is None else [keys], file=watched)


def from_proxy(
    settings: AuthSettings, telemetry: Telemetry | None = None
) -> Callable[[Mapping[str, str]], str | None] | None:
    """Finds the client's address in metadata that prove that a call comes through a proxy of ours.

    None if there is no such proxy; see :meth:`ProxyTokenVerifier.verify`.

    Raises:
        ConfigurationError: A key is not usable.
    """
    verifier = proxy_tokens_from(settings, telemetry)
    return None if verifier is None else verifier.verify


def _of_text(text: str) -> Keys:
    try:
        return _keys_in(text)
    except ConfigurationError:
        raise ValueError("must hold Ed25519 public keys in PEM form, one after another") from None


def _keys_in(text: str) -> Keys:
    found: Keys = {}
    end = "-----END PUBLIC KEY-----"
    for part in text.split(end):
        if not part.strip():
            continue
        try:
            key = serialization.load_pem_public_key(f"{part.strip()}\n{end}\n".encode())
        except (ValueError, UnsupportedAlgorithm):
            raise _unusable() from None
        if not isinstance(key, Ed25519PublicKey):
            raise _unusable()
        found[_key_id(key)] = key
    return found


def _key_id(key: Ed25519PublicKey) -> str:
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()[:16]


def _unusable() -> ConfigurationError:
    return ConfigurationError(
        "BOS_AUTH_PROXY_PUBLIC_KEYS must hold Ed25519 public keys in PEM form, one after another: "
        "those that `openssl pkey -pubout` makes of the keys of REST gateways."
    )
