"""Keys of run tokens: those that sign, those that verify, and files of them that may be replaced.

A token names its key, so it is good for as long as verifiers list that one: the gateway's file
holds the new key above the old one until the last token of the old one has expired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from bos_chassis.auth.ed25519 import key_id, load_public, split_pem
from bos_chassis.credentials.watched_files import REFRESH_S, secret_file
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bos_chassis.credentials.watched_files import WatchedFiles
    from bos_chassis.settings import AuthSettings
    from bos_chassis.telemetry import Telemetry

    PublicKeys = Mapping[str, Ed25519PublicKey]
    KeySource = Callable[[], PublicKeys]

PUBLIC_VARIABLE: Final = "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS_FILE"
_END: Final = "-----END PRIVATE KEY-----"
_MOST: Final = 32


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """The private keys of a gateway."""

    first: Ed25519PrivateKey = field(repr=False)
    """What signs."""
    first_id: str
    public: PublicKeys
    """What verifies the tokens of all of them, by id."""


def signing_keys(text: str) -> SigningKeys:
    """The private keys in a PEM text that holds one after another.

    Raises:
        ConfigurationError: One of them is not usable, or there is none.
    """
    parts = [part for part in text.split(_END) if part.strip()]
    keys = [_private(f"{part.strip()}\n{_END}\n") for part in parts[:_MOST]]
    if not keys or len(parts) > _MOST:
        raise _unusable()
    public = {key_id(key): key for key in (each.public_key() for each in keys)}
    return SigningKeys(keys[0], key_id(keys[0].public_key()), public)


def signing_keys_file(
    path: Path, variable: str, telemetry: Telemetry | None = None, refresh_s: float = REFRESH_S
) -> WatchedFiles[SigningKeys]:
    """The private keys of a file that may be replaced.

    Raises:
        ConfigurationError: The file is not usable.
    """

    def parse(text: str) -> SigningKeys:
        try:
            return signing_keys(text)
        except ConfigurationError:
            raise ValueError(
                f"must hold unencrypted Ed25519 private keys in PEM form, at most {_MOST}"
            ) from None

    return secret_file(path, variable, parse, telemetry, refresh_s=refresh_s)


def public_keys(text: str) -> PublicKeys:
    """The public keys in a PEM text that holds one after another, by id.

    Raises:
        ConfigurationError: One of them is not usable.
    """
    keys = [load_public(pem) for pem in split_pem(text)]
    return {key_id(key): key for key in keys}


def key_sources(settings: AuthSettings, telemetry: Telemetry | None = None) -> list[KeySource]:
    """Sources of public keys of run tokens, by the settings; empty if there are none.

    Raises:
        ConfigurationError: A key is not usable.
    """
    found: list[KeySource] = []
    if settings.run_token_public_keys is not None:
        found.append(fixed_source(settings.run_token_public_keys))
    if settings.run_token_public_keys_file is not None:
        watched = secret_file(
            settings.run_token_public_keys_file,
            PUBLIC_VARIABLE,
            _of_file,
            telemetry,
            refresh_s=settings.files_refresh_s,
        )
        found.append(watched.current)
    return found


def fixed_source(text: str) -> KeySource:
    """The public keys of a text that does not change.

    Raises:
        ConfigurationError: There is none, or one is not usable.
    """
    keys = public_keys(text)
    if not keys:
        raise ConfigurationError(
            "No public key for run tokens is set. "
            "Set BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS to one or more PEM blocks."
        )
    return lambda: keys


class MergedKeys:
    """The keys of all sources as they are now.

    Args:
        sources: Each gives the same object until its keys change.

    Raises:
        ConfigurationError: There is no source.
    """

    def __init__(self, sources: Sequence[KeySource]) -> None:
        if not sources:
            raise ConfigurationError(
                "No public key for run tokens is set. Set BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS, or "
                f"{PUBLIC_VARIABLE}."
            )
        self._sources = tuple(sources)
        self._seen: tuple[PublicKeys, ...] = ()
        self._merged: PublicKeys = {}

    def current(self) -> PublicKeys:
        """All keys by id, the same object until one changes."""
        found = tuple(source() for source in self._sources)
        if len(found) != len(self._seen) or any(
            now is not before for now, before in zip(found, self._seen, strict=True)
        ):
            self._seen = found
            self._merged = {name: key for keys in found for name, key in keys.items()}
        return self._merged


def _of_file(text: str) -> PublicKeys:
    try:
        keys = public_keys(text)
    except ConfigurationError:
        keys = {}
    if not 0 < len(keys) <= _MOST:
        raise ValueError(
            f"must hold Ed25519 public keys in PEM form, one after another, at most {_MOST}"
        )
    return keys


def _private(pem: str) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable()
    return key


def _unusable() -> ConfigurationError:
    return ConfigurationError(
        "The private key for run tokens is not an unencrypted Ed25519 key in PEM form. "
        "Make one with `openssl genpkey -algorithm ed25519`."
    )
