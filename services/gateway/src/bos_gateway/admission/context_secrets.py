"""Credentials in a request's context: found by declared keys at any depth and removed. Pure.

A key is a credential's because an agent's card or the operator says so, never because of what it
sounds like: ``token_budget`` is no token. Case does not matter, nor whether it is ``-`` or ``_``,
as in headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from attrs import define, field
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value

from bos.agent.v1 import AgentCard
from bos_errors import FieldViolation, InvalidArgument

_MAX_PATHS = 100
TOKEN_FILE_KEY = "api_token_file"  # noqa: S105  the name of a key
"""Names a file that holds the credential."""


@define(eq=False)
class DeclaredKeys:
    """Declared keys of credentials, of cards and settings."""

    _cards: Iterable[AgentCard]
    """Whose keys agents declare: only these credentials are ever handed on."""
    _configured: Iterable[str] = ()
    """Keys that hold credentials whether or not an agent declares them, or has answered yet."""
    _spelled: Mapping[str, set[str]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        configured = (TOKEN_FILE_KEY, *self._configured)
        spelled: dict[str, set[str]] = {_folded(key): set() for key in configured}
        for card in self._cards:
            for key in card.secret_context_keys:
                spelled.setdefault(_folded(key), set()).add(key)
        self._spelled = spelled

    def __contains__(self, key: str) -> bool:
        return _folded(key) in self._spelled

    def declared(self, key: str) -> set[str]:
        """The key as agents declare it; empty if none does."""
        return self._spelled.get(_folded(key), set())


@define(eq=False)
class Taken:
    """Credentials that were removed from a context."""

    secrets: dict[str, str] = field(factory=dict)
    """Values by declared key, of those that an agent declares; no agent would get the others."""
    withheld: dict[str, str] = field(factory=dict)
    """Values of the others by their path: as little to be kept."""
    paths: list[str] = field(factory=list)
    """Where all of them stood."""


def take_secrets(
    context: Struct, keys: DeclaredKeys, in_files: Mapping[str, str] = MappingProxyType({})
) -> Taken:
    """Remove credentials from ``context``, so that they never reach the log.

    Args:
        context: Of the request; changed in place.
        keys: What a credential is.
        in_files: What is in the files that it names (:func:`named_files`), by path.

    Raises:
        InvalidArgument: one key has two values.
    """
    taken, places = Taken(), dict[str, str]()
    for path, holder, key in sorted(_found(context, keys), key=lambda each: each[0]):
        value = holder.fields[key]
        if not value.HasField("null_value"):
            text = in_files.get(path, _text(value))
            for declared in sorted(keys.declared(key)):
                if taken.secrets.setdefault(declared, text) != text:
                    raise _ambiguous(declared, places[declared], path)
                places.setdefault(declared, path)
            if not keys.declared(key):
                taken.withheld[path] = text
        taken.paths.append(path)
        del holder.fields[key]
    return taken


def named_files(context: Struct, keys: DeclaredKeys) -> dict[str, str]:
    """The names of files that hold a credential instead of ``context``, by their path in it."""
    return {
        path: _text(holder.fields[key])
        for path, holder, key in _found(context, keys)
        if _folded(key) == TOKEN_FILE_KEY and not holder.fields[key].HasField("null_value")
    }


def without_secrets(context: Struct, keys: DeclaredKeys) -> None:
    """Remove credentials by key and by value, in place."""
    for _, holder, key in list(_found(context, keys)):
        del holder.fields[key]


def removal_message(paths: list[str]) -> str:
    """Trace message about the credentials that were removed, without their values."""
    more = f" and {len(paths) - _MAX_PATHS} more" if len(paths) > _MAX_PATHS else ""
    return f"Credentials were taken out of the request: {', '.join(paths[:_MAX_PATHS])}{more}."


def _found(context: Struct, keys: DeclaredKeys) -> Iterator[tuple[str, Struct, str]]:
    """Path, holder and key of every credential; not of those inside of another."""
    waiting: list[tuple[str, Any]] = [("context", context)]
    while waiting:
        path, holder = waiting.pop()
        for key in list(holder.fields):
            here, value = f"{path}.{key}", holder.fields[key]
            if key in keys:
                yield here, holder, key
            else:
                waiting += _inside(here, value)


def _inside(path: str, value: Value) -> Iterator[tuple[str, Struct]]:
    """Structures directly inside a value, through any number of lists."""
    waiting = [(path, value)]
    while waiting:
        path, value = waiting.pop()
        kind = value.WhichOneof("kind")
        if kind == "struct_value":
            yield path, value.struct_value
        elif kind == "list_value":
            items = value.list_value.values
            waiting += [(f"{path}[{number}]", item) for number, item in enumerate(items)]


def _text(value: Value) -> str:
    text = value.HasField("string_value")
    return value.string_value if text else json.dumps(_as_sent(MessageToDict(value)))


def _as_sent(value: Any) -> Any:
    """JSON with whole numbers written as such; a protobuf structure holds floats only."""
    if isinstance(value, dict):
        return {key: _as_sent(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_sent(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _ambiguous(key: str, first: str, second: str) -> InvalidArgument:
    problem = (
        f"holds another value for {key} than request.{first}; an agent is given one credential "
        "of each key, so send one of them"
    )
    text = f"The request cannot be run: request.{second} {problem}"
    return InvalidArgument(text, [FieldViolation(f"request.{second}", problem)])


def _folded(key: str) -> str:
    return key.casefold().replace("-", "_")
