"""Bearer tokens of calls: source, origin, cache."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal
from weakref import WeakValueDictionary

from bos_agentkit import AgentFailure
from bos_api_docs.calls.urls import joined, with_query
from bos_errors import AgentErrorType, BosError
from bos_http import HttpRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pydantic import SecretStr

    from bos_api_docs.settings import ApiSettings
    from bos_http import HttpClient

GRACE_S = 120.0
"""A generated token is renewed this long before it expires."""
_DEFAULT_LIFE_S = 3600.0
_MAX_LIFE_S = 86_400.0
_MAX_TOKENS = 256
_MAX_FILE_BYTES = 64 * 1024
_SIGN_IN_TIMEOUT_S = 15.0
_DIRECT = ("api_bearer_token", "firebase_id_token")
_PARTS = ("web_api_key", "email", "password")

Origin = Literal["direct", "cached", "file", "generated"]


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and where it came from; never shown."""

    text: str
    origin: Origin

    def __repr__(self) -> str:
        return f"Token(origin={self.origin!r})"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials that may be sent to the origin of one call.

    Args:
        secrets: Of the request; empty where they do not belong to the origin.
        api: The operator's; None where they do not.
    """

    secrets: Mapping[str, str]
    api: ApiSettings | None


class Tokens:
    """Resolves tokens, and caches the generated ones until shortly before they expire.

    Args:
        http: Client for sign-ins.
        clock: Seconds, for expiry.
    """

    def __init__(self, http: HttpClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._clock = clock
        self._cache: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def resolve(
        self, credentials: Credentials, token_url: str, *, rejected: Collection[str] = ()
    ) -> Token | None:
        """The first token that is there: direct, cached, from a file, generated.

        Args:
            credentials: What belongs to the call's origin.
            token_url: Where a token is generated.
            rejected: Tokens that the API did not accept.

        Raises:
            AgentFailure: the token file cannot be read, or the sign-in failed.
        """
        secrets, api = credentials.secrets, credentials.api
        direct = [secrets.get(key, "").strip() for key in _DIRECT]
        direct.append(_plain(api.token) if api is not None else "")
        for text in direct:
            if text and text not in rejected:
                return Token(text, "direct")
        parts = _sign_in_parts(secrets, api)
        key = _digest([token_url, *parts])
        if all(parts) and (cached := self._cached(key)) and cached not in rejected:
            return Token(cached, "cached")
        text = secrets.get("api_token_file", "").strip()
        if not text and api is not None and api.token_file is not None:
            text = await asyncio.to_thread(_from_file, api.token_file)
        if text and text not in rejected:
            return Token(text, "file")
        if not all(parts):
            return None
        return Token(await self._generated(key, token_url, parts, rejected), "generated")

    def _cached(self, key: str) -> str:
        text, until = self._cache.get(key, ("", 0.0))
        return text if until > self._clock() else ""

    async def _generated(
        self, key: str, url: str, parts: tuple[str, ...], rejected: Collection[str]
    ) -> str:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            # Another step may have signed in meanwhile.
            if (cached := self._cached(key)) and cached not in rejected:
                return cached
            text, life_s = await self._sign_in(url, parts)
            self._cache[key] = (text, self._clock() + life_s - GRACE_S)
            self._cache.move_to_end(key)
            while len(self._cache) > _MAX_TOKENS:
                self._cache.popitem(last=False)
            return text

    async def _sign_in(self, url: str, parts: tuple[str, ...]) -> tuple[str, float]:
        web_api_key, email, password = parts
        body = {"email": email, "password": password, "returnSecureToken": True}
        try:
            answer = await self._http.request(
                "POST",
                with_query(url, {"key": web_api_key}),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                body=json.dumps(body).encode(),
                timeout_s=_SIGN_IN_TIMEOUT_S,
                follow_redirects=False,
            )
        except BosError as error:
            passing = not isinstance(error, HttpRefused)
            raise _not_signed_in(error.message, retryable=passing) from error
        if not answer.ok:
            passing = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            raise _not_signed_in(f"It answered with status {answer.status}.", retryable=passing)
        try:
            given = json.loads(answer.body)
            text = given.get("idToken") or given["access_token"]
            life_s = float(given.get("expiresIn") or given.get("expires_in") or _DEFAULT_LIFE_S)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _not_signed_in("Its answer holds no token.") from None
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise _not_signed_in("Its answer holds no token.")
        return text.strip(), min(max(life_s, 0.0), _MAX_LIFE_S) if life_s == life_s else 0.0


def token_url_of(api: ApiSettings | None, fallback: str) -> str:
    """Token URL of ``api``; relative ones are resolved against its base URL."""
    if api is None:
        return fallback
    return joined(api.base_url, api.token_url) if api.base_url else api.token_url


def _sign_in_parts(secrets: Mapping[str, str], api: ApiSettings | None) -> tuple[str, ...]:
    """Web API key, e-mail and password: each the request's, else the operator's."""
    return tuple(
        secrets.get(f"firebase_{name}", "").strip()
        or (_plain(getattr(api, name)) if api is not None else "")
        for name in _PARTS
    )


def _plain(secret: SecretStr | None) -> str:
    return secret.get_secret_value().strip() if secret is not None else ""


def _digest(parts: list[str]) -> str:
    """Key of the cache; credentials themselves are not kept."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ValueError("too large")
        return content.decode("ascii").strip()
    except (OSError, ValueError):
        raise AgentFailure(
            AgentErrorType.CONFIGURATION_ERROR,
            "The token file of the API cannot be read. Correct its setting (token_file or "
            "FIREBASE_TOKEN_FILE), or its content.",
        ) from None


def _not_signed_in(why: str, *, retryable: bool = False) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.HTTP_REQUEST_ERROR,
        f"No token for the API: the sign-in did not work. {why}",
        retryable=retryable,
    )
