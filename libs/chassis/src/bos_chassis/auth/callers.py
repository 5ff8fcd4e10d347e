"""Authentication of callers: keys and access tokens at the edge, signed run tokens inside.

People and API clients send ``authorization: Bearer <key or access token>``; access tokens are
verified in :mod:`bos_chassis.auth.user_tokens`. Services send ``bos-run-token``, a JWT signed by
the
gateway (EdDSA) that names user, run, step and the services that may accept it; whether its step is
still under way is asked in :mod:`bos_chassis.auth.run_token_checks`. An :class:`Authenticator`
looks at
the metadata of a call; the server interceptor does the rest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bos_chassis.auth.ed25519 import public_pem
from bos_chassis.auth.run_token_keys import MergedKeys, fixed_source, key_sources, signing_keys
from bos_chassis.credentials.static_keys import StaticKeys
from bos_chassis.log_fields import set_log_fields
from bos_chassis.names import MAX_NAME_CHARS, MAX_NAMES, USER, Role, required_names
from bos_errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from bos_chassis.auth.run_token_keys import KeySource, PublicKeys, SigningKeys
    from bos_chassis.credentials.watched_files import WatchedFiles
    from bos_chassis.settings import AuthSettings
    from bos_chassis.telemetry import Telemetry

AUTHORIZATION_KEY = "authorization"
RUN_TOKEN_KEY = "bos-run-token"  # noqa: S105  The name of a metadata key, not a secret.

API_KEY_PREFIX = "bosk_"

LOCAL_USER = "local"
"""The user where authentication is off, and the static key's user unless a setting says."""

Use = Literal["service", "step"]
"""What a run token is for: a call of the gateway's own, to one service; or the work of one attempt
at a step, which an agent is handed with the right to call others on its behalf."""
Accepts = Literal["service", "step", "agent"]
"""Which run tokens a service takes: those of the gateway's own calls; those of steps; an agent
both, if they were made out to itself and not only let through to it."""

_ISSUER = "bos"
_ALGORITHM = "EdDSA"
_REQUIRED_CLAIMS = ["iss", "sub", "aud", "iat", "exp", "use", "run", "step"]
_CLOCK_SKEW_S = 2
_VERIFIED_TOKENS = 1024
# With all groups that it may name. Servers refuse calls with more than 8 KiB of metadata.
_MAX_TOKEN_CHARS = 7168
_MAX_POSITION = 2**63


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a step, by where its run stood when it began; nothing else need be kept."""

    epoch: int = 0
    """Of the run; another owner of it has another."""
    sequence: int = 0
    """Where the run's log ended: what ends the attempt comes behind."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller of the call in progress."""

    user_id: str
    run_id: str
    """Empty outside of a run."""
    step_key: str
    """``run/revision/step``; empty outside of a step."""
    kind: Literal["run_token", "static_key", "user_token", "api_key", "account_data"]
    session_id: str = ""
    """Session of an access token, if its issuer names one; of an ``api_key`` the id of the key."""
    roles: frozenset[str] = frozenset()
    """Roles of the user, of :data:`ROLES`; none inside of a run."""
    groups: frozenset[str] = frozenset()
    """Groups of the user; inside of a run those that it had when it asked."""
    scopes: frozenset[str] | None = None
    """What an API key, or identity's own token, is limited to; None: its user's rights alone."""
    attempt: Attempt | None = None
    """Of a step's run token: the attempt that it was made for."""
    agent: str = ""
    """Of a step's run token: the agent that it was made for."""


class Authenticator(Protocol):
    """Decides from the metadata of a call who is calling."""

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        """The caller, or None if the call carries no credential of the kind examined here.

        Args:
            metadata: Text entries of the call's metadata by lower-case key.

        Raises:
            Unauthenticated: There is a credential of this kind and it is not valid.
        """


_principal: ContextVar[Principal | None] = ContextVar("bos_principal", default=None)
_run_token: ContextVar[str | None] = ContextVar("bos_run_token", default=None)


def current_principal() -> Principal | None:
    """The caller of the server call in progress; None outside of one or without authentication."""
    return _principal.get()


def current_run_token() -> str | None:
    """The run token that outgoing calls pass on."""
    return _run_token.get()


def set_caller(principal: Principal | None, run_token: str | None) -> None:
    """Set caller and run token for the current task; for the server interceptor."""
    _principal.set(principal)
    _run_token.set(run_token)
    if principal is None:
        set_log_fields()
    else:
        set_log_fields(principal.user_id, principal.run_id)


@contextmanager
def run_token(token: str) -> Iterator[None]:
    """Outgoing calls made inside carry ``token``; for the gateway, which mints it."""
    reset = _run_token.set(token)
    try:
        yield
    finally:
        _run_token.reset(reset)


def generate_keypair() -> tuple[str, str]:
    """A new Ed25519 key pair as PEM text: (private, public)."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem.decode(), public_pem(private.public_key())


class RunTokenSigner:
    """Mints run tokens.

    Args:
        private_keys: Ed25519 private keys (PEM), or a file of them that may be replaced; the first
            one signs.
        now: Seconds since 1970; the clock of those who verify must not be off by much from it.

    Raises:
        ConfigurationError: The text holds no Ed25519 private key in PEM form.
    """

    def __init__(
        self,
        private_keys: str | WatchedFiles[SigningKeys],
        now: Callable[[], float] | None = None,
    ) -> None:
        self._now = now or time.time
        if isinstance(private_keys, str):
            keys = signing_keys(private_keys)
            self._keys: Callable[[], SigningKeys] = lambda: keys
        else:
            self._keys = private_keys.current

    def public_keys(self) -> PublicKeys:
        """The keys that verify what its keys of now have signed, by id."""
        return self._keys().public

    def mint(
        self,
        user: str,
        run: str,
        step: str,
        audiences: Sequence[str],
        ttl_s: float,
        *,
        use: Use | None = None,
        attempt: Attempt | None = None,
        groups: Iterable[str] = (),
    ) -> str:
        """A token for ``audiences`` (service names), valid for ``ttl_s`` seconds.

        Args:
            user: On whose behalf.
            run: Empty outside of a run.
            step: ``run/revision/step``; empty outside of a step.
            audiences: Who may accept it. An agent that is handed the token comes first.
            ttl_s: For how long, at most.
            use: What it is for; if not given, ``step`` for a step and ``service`` without.
            attempt: At the step.
            groups: Of the user, when it asked.

        Raises:
            ValueError: There are more groups than a token has room for.
        """
        now, attempt, named = self._now(), attempt or Attempt(), sorted(groups)
        claims = {
            "iss": _ISSUER,
            "sub": user,
            "use": use or ("step" if step else "service"),
            "run": run,
            "step": step,
            "epoch": attempt.epoch,
            "seq": attempt.sequence,
            "aud": list(audiences),
            "iat": int(now),
            "exp": now + ttl_s,
            **({"groups": named} if named else {}),
        }
        keys = self._keys()
        token = jwt.encode(claims, keys.first, algorithm=_ALGORITHM, headers={"kid": keys.first_id})
        if len(token) > _MAX_TOKEN_CHARS or _groups(named) is None:
            raise ValueError(
                f"{len(named)} groups exceed a run token: at most {MAX_NAMES} of at "
                f"most {MAX_NAME_CHARS} printable characters, in {_MAX_TOKEN_CHARS} bytes."
            )
        return token


class RunTokenVerifier:
    """Accepts run tokens that were minted for ``audience`` by the owner of one of the keys.

    Args:
        public_keys: Ed25519 public keys: each a PEM text that may hold several, or what gives
            those of now by id.
        audience: Name of this service, as the gateway writes it into tokens. None takes those for
            any caller, for the gateway alone: it is asked about the token itself.
        accepts: Which of them.

    Raises:
        ConfigurationError: There is no usable key.
    """

    def __init__(
        self,
        public_keys: Sequence[str | KeySource],
        audience: str | None,
        accepts: Accepts = "step",
    ) -> None:
        sources = [fixed_source(each) if isinstance(each, str) else each for each in public_keys]
        self._merged = MergedKeys(sources)
        self._keys = self._merged.current()
        self._audience = audience
        self._accepts = accepts
        # A verification costs about 0.15 ms and a step makes many calls with one token.
        self._verified: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        """The principal of the token under ``bos-run-token``; see :class:`Authenticator`."""
        token = metadata.get(RUN_TOKEN_KEY)
        return None if token is None else self.verify(token)

    def verify(self, token: str) -> Principal:
        """The principal that ``token`` names.

        Raises:
            Unauthenticated: Wrong signature, expired, for another service, or incomplete.
        """
        return self.verified(token)[0]

    def verified(self, token: str) -> tuple[Principal, float]:
        """The principal that ``token`` names, and when it expires in seconds since 1970.

        Raises:
            Unauthenticated: Wrong signature, expired, for another service, or incomplete.
        """
        keys = self._merged.current()
        if keys is not self._keys:
            self._keys = keys
            self._verified.clear()  # what an earlier key has signed is looked at again
        known = self._verified.get(token)
        if known is not None and time.time() < known[1]:
            self._verified.move_to_end(token)
            return known
        found = self._verified[token] = self._check(token)
        while len(self._verified) > _VERIFIED_TOKENS:
            self._verified.popitem(last=False)
        return found

    def _check(self, token: str) -> tuple[Principal, float]:
        # One message for all defects: which of them it was helps only forgers of tokens.
        refusal = Unauthenticated("The run token is not valid.", reason="RUN_TOKEN_INVALID")
        if len(token) > _MAX_TOKEN_CHARS:
            raise refusal
        try:
            key = self._keys.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise refusal
            claims = jwt.decode(
                token,
                key,
                algorithms=[_ALGORITHM],
                audience=self._audience,
                issuer=_ISSUER,
                leeway=_CLOCK_SKEW_S,
                options={"require": _REQUIRED_CLAIMS, "verify_aud": self._audience is not None},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated(
                "The run token has expired.", reason="RUN_TOKEN_EXPIRED"
            ) from None
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            raise refusal from None
        principal = _principal_of(claims)
        if principal is None or not self._takes(claims):
            raise refusal
        return principal, float(claims["exp"])

    def _takes(self, claims: Mapping[str, Any]) -> bool:
        """Whether a sound token is one of those that are accepted here."""
        use, audience = claims["use"], claims["aud"]
        if use == "service":
            # Made out to no other service, and for no step.
            return self._accepts != "step" and audience == [self._audience] and not claims["step"]
        if self._accepts == "agent":
            return bool(audience[0] == self._audience)
        return self._accepts == "step"


def _principal_of(claims: Mapping[str, Any]) -> Principal | None:
    """Whom the claims of a run token name; None if they cannot be what the gateway has written."""
    user, run, step, use = (claims[name] for name in ("sub", "run", "step", "use"))
    texts = all(isinstance(text, str) for text in (user, run, step))
    epoch, sequence = claims.get("epoch", 0), claims.get("seq", 0)
    placed = all(type(each) is int and 0 <= each < _MAX_POSITION for each in (epoch, sequence))
    groups = _groups(claims.get("groups", []))
    listed = isinstance(claims["aud"], list) and claims["aud"]
    if not (texts and user and placed and listed) or groups is None:
        return None
    if use not in get_args(Use) or (use == "step" and not run):
        return None
    if use == "service":
        return Principal(user, run, step, "run_token", groups=groups)
    attempt, agent = Attempt(epoch, sequence), str(listed[0])
    return Principal(user, run, step, "run_token", groups=groups, attempt=attempt, agent=agent)


def _groups(claim: Any) -> frozenset[str] | None:
    try:
        return required_names(claim, "groups")
    except ValueError:
        return None


class StaticKey:
    """Accepts fixed bearer keys; the holder of one acts as ``user_id``."""

    def __init__(
        self,
        key: str | StaticKeys,
        user_id: str = LOCAL_USER,
        roles: Iterable[Role] = (USER,),
        groups: Iterable[str] = (),
    ) -> None:
        self._keys = StaticKeys(key) if isinstance(key, str) else key
        self._principal = Principal(
            user_id, "", "", "static_key", roles=frozenset(roles), groups=frozenset(groups)
        )

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        """The holder of the key under ``authorization``; see :class:`Authenticator`."""
        return await Bearer(self).authenticate(metadata)

    def verify(self, key: str) -> Principal | None:
        """The principal if this is the key."""
        return self._principal if self._keys.hold(key) else None


class Bearer:
    """Accepts what comes under ``authorization``: the static key, or the access token of a user.

    Args:
        key: The static key, if there is one.
        verify_token: Accepts access tokens; raises Unauthenticated.
        verify_api_key: Accepts API keys of identity, which begin with ``bosk_``, likewise.
        refused: Makes the refusal of what is neither.
    """

    def __init__(
        self,
        key: StaticKey | None,
        verify_token: Callable[[str], Awaitable[Principal]] | None = None,
        refused: Callable[[], Unauthenticated] | None = None,
        *,
        verify_api_key: Callable[[str], Awaitable[Principal]] | None = None,
    ) -> None:
        self._key = key
        self._verify_token = verify_token
        self._verify_api_key = verify_api_key
        self._refused = refused or _key_refused

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        """The caller whom the credential under ``authorization`` names, by an authenticator."""
        header = metadata.get(AUTHORIZATION_KEY)
        if header is None:
            return None
        scheme, _, credential = header.partition(" ")
        if scheme.lower() != "bearer":
            raise self._refused()
        credential = credential.strip()
        principal = self._key.verify(credential) if self._key is not None else None
        if principal is not None:
            return principal
        if self._verify_api_key is not None and credential.startswith(API_KEY_PREFIX):
            return await self._verify_api_key(credential)
        if self._verify_token is None:
            raise self._refused()
        return await self._verify_token(credential)


def _key_refused() -> Unauthenticated:
    return Unauthenticated("The API key is not valid.", reason="API_KEY_INVALID")


class AnyOf:
    """Accepts what one of several authenticators accepts.

    A call that brings an invalid credential is refused even if another one of it is valid.
    """

    def __init__(self, *authenticators: Authenticator) -> None:
        self._authenticators = authenticators

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        """The first principal found; see :class:`Authenticator`."""
        found: Principal | None = None
        for authenticator in self._authenticators:
            principal = await authenticator.authenticate(metadata)
            found = found or principal
        return found


def authenticator_from(
    settings: AuthSettings,
    audience: str,
    accepts: Accepts = "step",
    telemetry: Telemetry | None = None,
) -> Authenticator | None:
    """The authenticator that ``settings`` describe; None if nothing is configured.

    Args:
        settings: Who may call.
        audience: Name of the service, as run tokens have it.
        accepts: Which run tokens it takes.
        telemetry: Of the service.

    Raises:
        ConfigurationError: A key is not usable.
    """
    found: list[Authenticator] = []
    sources = key_sources(settings, telemetry)
    if sources:
        found.append(RunTokenVerifier(sources, audience, accepts))
    key = static_key_from(settings, telemetry)
    if key is not None:
        found.append(key)
    return AnyOf(*found) if found else None


def static_key_from(settings: AuthSettings, telemetry: Telemetry | None = None) -> StaticKey | None:
    """The static keys that ``settings`` hold, if any."""
    key, file = settings.static_key, settings.static_keys_file
    if key is None and file is None:
        return None
    return StaticKey(
        StaticKeys(
            None if key is None else key.get_secret_value(),
            file,
            telemetry,
            refresh_s=settings.files_refresh_s,
        ),
        settings.static_key_user,
        settings.static_key_roles,
        settings.static_key_groups,
    )
