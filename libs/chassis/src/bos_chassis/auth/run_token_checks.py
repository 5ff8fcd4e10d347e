"""Run tokens that end with their step: a service asks the gateway whether the step is under way.

What a token says holds until it expires; whether its step has ended is known to the gateway alone.
So services that act for steps ask it, where ``BOS_AUTH_RUN_TOKEN_CHECK_TARGET`` says where it is,
and remember the answer: a good one shortly, a bad one for good.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from bos.gateway.v1 import CheckRunTokenRequest, RunTokenServiceStub
from bos_chassis.auth.callers import (
    RUN_TOKEN_KEY,
    Accepts,
    AnyOf,
    Authenticator,
    Principal,
    RunTokenVerifier,
    static_key_from,
)
from bos_chassis.auth.run_token_keys import key_sources
from bos_chassis.channels import Channels, translate_rpc_errors
from bos_chassis.concurrency.joining import Joined
from bos_chassis.settings import AuthSettings, TlsSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, Unauthenticated, Unavailable

REMEMBERED_S = 2.0
"""How long a step is taken to go on once the gateway has said so."""
_TIMEOUT_S = 2.0
_MAX_REMEMBERED = 4096
# What a verifier still accepts of a token that has expired.
_SKEW_S = 5.0


class RunTokenChecks:
    """Asks the gateway about tokens, and remembers what it says of the latest ones.

    Args:
        channels: Of this service.
        target: Where the gateway is; looked up with every question.
        refuse_unchecked: Whether tokens are refused while the gateway does not answer.
        telemetry: Of this service.
    """

    def __init__(
        self,
        channels: Channels,
        target: Callable[[], str],
        *,
        refuse_unchecked: bool,
        telemetry: Telemetry,
    ) -> None:
        self._channels = channels
        self._target = target
        self._refuse_unchecked = refuse_unchecked
        self._log = telemetry.logger("bos.auth")
        self._known: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()
        self._joined: Joined[bool] = Joined()

    async def require(self, token: str, expires: float) -> None:
        """Return if the step of ``token``, which is valid until ``expires``, is under way.

        Raises:
            Unauthenticated: It has ended.
            Unavailable: The gateway does not say, and may not be done without.
        """
        digest = hashlib.sha256(token.encode()).digest()
        under_way, until = self._known.get(digest, (False, 0.0))
        if time.monotonic() >= until:
            under_way = await self._joined.ask(digest, partial(self._ask, token))
            lasts_s = REMEMBERED_S if under_way else max(0.0, expires - time.time()) + _SKEW_S
            self._known[digest] = under_way, time.monotonic() + lasts_s
            while len(self._known) > _MAX_REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(digest)
        if not under_way:
            raise Unauthenticated(
                "The step of this run token has ended.", reason="RUN_TOKEN_STEP_ENDED"
            )

    async def _ask(self, token: str) -> bool:
        try:
            stub = RunTokenServiceStub(self._channels.get(self._target()))
            with translate_rpc_errors():
                answer = await stub.CheckRunToken(
                    CheckRunTokenRequest(), timeout=_TIMEOUT_S, metadata=((RUN_TOKEN_KEY, token),)
                )
        except Unauthenticated:
            return False  # which it will say again, until the token expires
        except BosError as error:
            self._log.warning("run token not checked", reason=error.reason, error=error.message)
            if not self._refuse_unchecked:
                return True
            raise Unavailable(
                "The gateway does not say whether the step of this run token is under way.",
                reason="RUN_TOKEN_NOT_CHECKED",
                retry_after_s=1.0,
            ) from None
        return answer.under_way


class CheckedRunTokens:
    """Accepts run tokens whose step, if they are of one, is under way.

    Args:
        verifier: Looks at the token itself.
        checks: Asks the gateway about it.
    """

    def __init__(self, verifier: RunTokenVerifier, checks: RunTokenChecks) -> None:
        self._verifier = verifier
        self._checks = checks

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        """The principal of the token under ``bos-run-token``; see ``bos_chassis.auth.callers``."""
        token = metadata.get(RUN_TOKEN_KEY)
        if token is None:
            return None
        principal, expires = self._verifier.verified(token)
        if principal.attempt is not None:
            await self._checks.require(token, expires)
        return principal


@asynccontextmanager
async def open_run_tokens(
    settings: AuthSettings,
    audience: str,
    telemetry: Telemetry,
    *,
    accepts: Accepts = "step",
    check_target: Callable[[], str] | None = None,
    tls: TlsSettings | None = None,
) -> AsyncIterator[Authenticator | None]:
    """The authenticator of a service that works for steps; None if nothing is configured.

    It accepts what :func:`bos_chassis.auth.callers.authenticator_from` does, but no run token
    whose step
    has ended, if ``BOS_AUTH_RUN_TOKEN_CHECK_TARGET`` is set. Connections end with the block.

    Args:
        settings: Who may call, and where the gateway is.
        audience: Name of the service, as run tokens have it.
        telemetry: Of the service.
        accepts: Which run tokens it takes.
        check_target: In place of the setting, where the gateway's address is not known yet.
        tls: Certificates of the service, for the way to the gateway; None for plain text.

    Raises:
        ConfigurationError: A key is not usable.
    """
    found: list[Authenticator] = []
    key = static_key_from(settings, telemetry)
    async with Channels(telemetry, tls=tls) as channels:
        if sources := key_sources(settings, telemetry):
            verifier = RunTokenVerifier(sources, audience, accepts)
            target = check_target or _target_of(settings)
            checks = target and RunTokenChecks(
                channels,
                target,
                refuse_unchecked=settings.run_token_check_required,
                telemetry=telemetry,
            )
            found.append(CheckedRunTokens(verifier, checks) if checks else verifier)
            if not checks and accepts == "step":
                telemetry.logger("bos.auth").warning(
                    "run tokens are good until they expire, whether or not their step has ended",
                    remedy="set BOS_AUTH_RUN_TOKEN_CHECK_TARGET to where the gateway is",
                )
        if key is not None:
            found.append(key)
        yield AnyOf(*found) if found else None


def _target_of(settings: AuthSettings) -> Callable[[], str] | None:
    target = settings.run_token_check_target
    return None if target is None else lambda: target
