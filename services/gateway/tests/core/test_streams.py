"""Calls that follow runs are bounded, for everybody together and for each account."""

from contextlib import ExitStack

import pytest
from prometheus_client import CollectorRegistry

from bos_chassis.auth.callers import LOCAL_USER
from bos_errors import ResourceExhausted
from bos_gateway.api import StreamLimiter
from bos_gateway.metrics import GatewayMetrics


def refused(streams: StreamLimiter, user_id: str) -> str:
    with pytest.raises(ResourceExhausted) as caught, streams.slot(user_id):
        pass
    return caught.value.reason


def test_account_above_its_stream_limit_is_refused_alone() -> None:
    registry = CollectorRegistry()
    streams = StreamLimiter(5, 2, GatewayMetrics(registry))
    with ExitStack() as calls:
        for _ in range(2):
            calls.enter_context(streams.slot("ada"))
        assert refused(streams, "ada") == "USER_STREAM_LIMIT"
        calls.enter_context(streams.slot("eve"))
        # With authentication off, all callers are one user.
        for _ in range(2):
            calls.enter_context(streams.slot(LOCAL_USER))
        assert refused(streams, LOCAL_USER) == refused(streams, "eve") == "REPLICA_FULL"
        assert streams.open == 5
    assert streams.open == 0
    with streams.slot("ada"):
        assert streams.open == 1
    assert registry.get_sample_value("bos_runs_refused_total", {"reason": "user_stream_limit"}) == 1


def test_account_without_a_limit_may_use_all_streams() -> None:
    streams = StreamLimiter(2, 0, GatewayMetrics(CollectorRegistry()))
    with streams.slot("ada"), streams.slot("ada"):
        assert refused(streams, "ada") == "REPLICA_FULL"
