"""Concurrency limits of calls: of one caller, of unknown callers, of all."""

from __future__ import annotations

from collections.abc import Mapping

from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_errors import InvalidArgument, ResourceExhausted

_RETRY_AFTER_S = 1.0


def too_many_calls(whose: str) -> ResourceExhausted:
    """The refusal of a call that finds no place."""
    return ResourceExhausted(
        f"Too many calls {whose} are under way. Wait for one of them to end, then try again.",
        reason="TOO_MANY_CALLS",
        retry_after_s=_RETRY_AFTER_S,
    )


class _Network:
    """The calls of one network, by connection."""

    __slots__ = ("by_peer", "count")

    def __init__(self) -> None:
        self.by_peer: dict[str, dict[ServerCall, None]] = {}
        self.count = 0


class LoadShedder:
    """Limits concurrent calls of unknown callers; above the limit one of the busiest is ended.

    When all places are taken, a call of the network that has the most of them has to go: the
    oldest call of its connection that has the most. So one that floods drives out itself, over
    however many connections, and a caller with one call or two is let in.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._count = 0
        self._networks: dict[str, _Network] = {}

    def enter(self, call: ServerCall) -> None:
        """Take a place."""
        network = self._networks.get(call.network)
        if network is None:
            network = self._networks[call.network] = _Network()
        network.by_peer.setdefault(call.peer, {})[call] = None
        network.count += 1
        self._count += 1
        if self._count > self._size:
            busiest = max(self._networks.values(), key=lambda each: each.count)
            calls = max(busiest.by_peer.values(), key=len)
            oldest = next(iter(calls))
            self.leave(oldest)
            oldest.evict()

    def leave(self, call: ServerCall) -> None:
        """Give the place back; nothing if the call has none."""
        network = self._networks.get(call.network)
        calls = None if network is None else network.by_peer.get(call.peer)
        if network is None or calls is None or call not in calls:
            return
        del calls[call]
        network.count -= 1
        self._count -= 1
        if not calls:
            del network.by_peer[call.peer]
        if not network.count:
            del self._networks[call.network]


class MethodShedder(Concern):
    """Limits concurrent calls of one method by a load shedder of its own."""

    def __init__(self, size: int) -> None:
        self._shedder = LoadShedder(size)

    async def begin(self, call: ServerCall) -> None:
        """Take a place; another call may have to go for that."""
        self._shedder.enter(call)

    def end(self, call: ServerCall) -> None:
        """Give the place back."""
        self._shedder.leave(call)


class _Held:
    """What one caller has under way."""

    __slots__ = ("calls", "size")

    def __init__(self) -> None:
        self.calls: dict[ServerCall, int] = {}
        self.size = 0


class ConcurrencyLimiter(Concern):
    """Limits concurrent calls and request bytes per caller, and concurrent calls in all.

    Each known caller has places of its own, so it can use up none but these. Calls of
    open methods, whose callers are unknown, have a load shedder of their own per method.

    Args:
        per_caller: Calls of one caller at once.
        bytes_per_caller: Bytes of requests of one caller under way at once. Unpacked they take up
            to 25 times as much memory.
        total: Calls of all callers at once, beside those of open methods.
        per_open_method: Calls of one open method at once.
    """

    def __init__(
        self, *, per_caller: int, bytes_per_caller: int, total: int, per_open_method: int
    ) -> None:
        self._per_caller = per_caller
        self._bytes_per_caller = bytes_per_caller
        self._total = total
        self._per_open_method = per_open_method
        self._count = 0
        self._held: dict[str, _Held] = {}
        # By method; only methods with a handler get here.
        self._shedders: dict[tuple[str, str], LoadShedder] = {}

    async def begin(self, call: ServerCall) -> None:
        """Take a place, once it is known who calls.

        Raises:
            ResourceExhausted: The caller has none left, or the server has none.
        """
        if call.open:
            key = (call.service, call.method)
            shedder = self._shedders.get(key) or self._shedders.setdefault(
                key, LoadShedder(self._per_open_method)
            )
            shedder.enter(call)
            return
        if self._count >= self._total:
            raise too_many_calls("of all callers")
        held = self._held.setdefault(_caller(call), _Held())
        if len(held.calls) >= self._per_caller:
            raise too_many_calls("of this caller")
        held.calls[call] = 0
        self._count += 1

    def arrived(self, call: ServerCall, size: int) -> None:
        """Count the bytes of a request as long as its call lasts; of a stream, of the last one.

        Raises:
            ResourceExhausted: The caller has too many under way.
        """
        held = self._held.get(_caller(call))
        if held is None or call not in held.calls:
            return
        total = held.size - held.calls[call] + size
        # One request alone is never too large here: what a request may be has its own bound.
        if total > self._bytes_per_caller and len(held.calls) > 1:
            raise too_many_calls("with large requests of this caller")
        held.calls[call] = size
        held.size = total

    def end(self, call: ServerCall) -> None:
        """Give the place back."""
        if call.open:
            shedder = self._shedders.get((call.service, call.method))
            if shedder is not None:
                shedder.leave(call)
            return
        key = _caller(call)
        held = self._held.get(key)
        if held is None:
            return
        size = held.calls.pop(call, None)
        if size is not None:
            held.size -= size
            self._count -= 1
        if not held.calls:
            del self._held[key]


class RequestSizes(Concern):
    """Bounds the bytes of one request, before it is unpacked.

    Args:
        by_service: Largest request of each service, in bytes.
    """

    def __init__(self, by_service: Mapping[str, int]) -> None:
        self._by_service = dict(by_service)

    def arrived(self, call: ServerCall, size: int) -> None:
        """Refuse what is too large.

        Raises:
            InvalidArgument: It is.
        """
        largest = self._by_service.get(call.service)
        if largest is not None and size > largest:
            raise InvalidArgument(
                f"The request has {size} bytes; {call.service} takes {largest}. Send less at once.",
                reason="REQUEST_TOO_LARGE",
            )


def _caller(call: ServerCall) -> str:
    """Who has the places: a user, over all connections and services, or else a connection."""
    principal = call.principal
    return f"peer {call.peer}" if principal is None else f"user {principal.user_id}"
