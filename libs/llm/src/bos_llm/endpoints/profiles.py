"""Key profiles of model calls: named profiles, and the one that a task asks for.

A task that names a profile is given it like its deadline, so that no agent has to hand it on and
none can use other keys by mistake::

    set_key_profile("research")
    await model.text(messages)  # with the keys of BOS_MODEL_KEYS' "research", or not at all
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
)

from bos_chassis.credentials.watched_files import REFRESH_S, secret_file
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from bos_chassis.credentials.watched_files import WatchedFiles
    from bos_chassis.telemetry import Telemetry

MAX_KEYS = 32
MAX_PROFILES = 64

_current: ContextVar[str] = ContextVar("bos_key_profile", default="")


def set_key_profile(name: str) -> None:
    """Have model calls of the current task (and of what it starts) use the profile ``name`` only.

    An empty name leaves it to the settings of each agent.
    """
    _current.set(name)


def current_key_profile() -> str:
    """The profile that the current task asks for; empty if none."""
    return _current.get()


def split_keys(secret: SecretStr | None) -> tuple[SecretStr, ...]:
    """The keys in a variable that may hold several, separated by commas or white space.

    Keys hold neither; those read from files end in a newline, which no header may hold.
    """
    text = secret.get_secret_value() if secret is not None else ""
    return tuple(map(SecretStr, dict.fromkeys(text.replace(",", " ").split())))


def keys_in_file(text: str) -> tuple[SecretStr, ...]:
    """The keys in a file, one a line or as in a variable.

    Raises:
        ValueError: they cannot be keys.
    """
    keys = split_keys(SecretStr(text))
    if not 0 < len(keys) <= MAX_KEYS or not text.isascii():
        raise ValueError(f"must hold one key a line, at most {MAX_KEYS}")
    return keys


def key_file(
    path: Path, variable: str, telemetry: Telemetry | None = None, refresh_s: float = REFRESH_S
) -> WatchedFiles[tuple[SecretStr, ...]]:
    """The keys of the file that stands in for ``variable``, as they are now.

    Raises:
        ConfigurationError: the file is not usable.
    """
    return secret_file(path, f"{variable}_FILE", keys_in_file, telemetry, refresh_s=refresh_s)


def keys_of(secret: SecretStr | None, file: Path | None, variable: str) -> tuple[SecretStr, ...]:
    """The keys of a variable, or of the file beside it.

    Raises:
        ConfigurationError: both are given, or the file is not usable.
    """
    if file is None:
        return split_keys(secret)
    if secret is not None:
        raise ConfigurationError(f"{variable} and {variable}_FILE are set; remove one of them")
    return key_file(file, variable).current()


def _as_profile(value: Any) -> Any:
    """A profile may be written as its keys alone: ``"k1"`` or ``["k1", "k2"]``."""
    return {"keys": value} if isinstance(value, str | list | tuple) else value


def _as_keys(value: Any) -> Any:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        return value
    return tuple(_keys_of(given))


def _keys_of(given: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    for one in given:
        yield from split_keys(SecretStr(one)) if isinstance(one, str) else (one,)


class KeyProfile(BaseModel):
    """Keys that go together, such as those of one team or one contract."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    keys: Annotated[tuple[SecretStr, ...], BeforeValidator(_as_keys)] = Field(
        min_length=1, max_length=MAX_KEYS, description="Used in this order"
    )
    provider: str = Field(default="", description="The only provider they are ever sent to")
    base_url: str | None = Field(
        default=None, pattern=r"^https?://", description="Instead of the provider's own address"
    )

    @property
    def keys_in_order(self) -> tuple[SecretStr, ...]:
        """Its keys, each once."""
        return tuple(dict.fromkeys(self.keys))


NamedProfile = Annotated[KeyProfile, BeforeValidator(_as_profile)]
Profiles = Mapping[str, NamedProfile]
"""As a variable or file holds them."""
_PROFILES: Final[TypeAdapter[Profiles]] = TypeAdapter(Profiles)


def profiles_file(
    path: Path, telemetry: Telemetry | None = None, refresh_s: float = REFRESH_S
) -> WatchedFiles[Profiles]:
    """The profiles of the file that stands in for ``BOS_MODEL_KEYS``, as they are now.

    Raises:
        ConfigurationError: the file is not usable.
    """
    return secret_file(path, "BOS_MODEL_KEYS_FILE", _profiles_in, telemetry, refresh_s=refresh_s)


def _profiles_in(text: str) -> Profiles:
    try:
        found = _PROFILES.validate_python(json.loads(text))
    except (ValueError, RecursionError):
        found = {}  # and nothing of the error, which may show keys
    if not 0 < len(found) <= MAX_PROFILES:
        raise ValueError(
            f"must hold a JSON object of at most {MAX_PROFILES} profiles, as BOS_MODEL_KEYS does"
        )
    return found


@dataclass(frozen=True, slots=True)
class LiveProfiles(Mapping[str, KeyProfile]):
    """The profiles of a file, as it is at the moment."""

    file: WatchedFiles[Profiles]

    def __getitem__(self, name: str) -> KeyProfile:
        return self.file.current()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.file.current())

    def __len__(self) -> int:
        return len(self.file.current())


class KeysNow(Protocol):
    """Keys that may change while calls are made."""

    def current(self) -> tuple[SecretStr, ...]:
        """Them, as of a few seconds ago at most."""

    def look(self) -> tuple[SecretStr, ...]:
        """Them in this moment, for when one was refused."""


@dataclass(frozen=True, slots=True)
class ProfileKeys:
    """The keys of one profile of a file; without that profile there are none to call with."""

    profiles: LiveProfiles
    name: str

    def current(self) -> tuple[SecretStr, ...]:
        """Its keys, as of a few seconds ago at most.

        Raises:
            ConfigurationError: the file does not hold the profile any more.
        """
        return self._of(self.profiles.file.current())

    def look(self) -> tuple[SecretStr, ...]:
        """Its keys in this moment.

        Raises:
            ConfigurationError: the file does not hold the profile any more.
        """
        return self._of(self.profiles.file.look())

    def _of(self, profiles: Profiles) -> tuple[SecretStr, ...]:
        found = profiles.get(self.name)
        if found is None:
            raise ConfigurationError(
                f"there is no key profile {self.name!r} here any more; add it to BOS_MODEL_KEYS"
            )
        return found.keys_in_order
