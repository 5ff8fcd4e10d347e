import json
from typing import Any

import grpc
import pytest

from bos_chassis.auth.callers import run_token
from bos_chassis.channels import service_config, translate_rpc_errors
from bos_errors import DeadlineExceeded, Unavailable

SERVICE = "bos.test.v1.EchoService"


class Flaky:
    """Fails with UNAVAILABLE until it was called ``failures`` times."""

    def __init__(self, failures: int) -> None:
        self.calls = 0
        self._failures = failures

    async def unary(self, request: Any, context: Any) -> Any:
        self.calls += 1
        if self.calls <= self._failures:
            raise Unavailable("restarting")
        return request


def test_only_repeatable_methods_have_a_retry_policy(echo: Any) -> None:
    config = json.loads(service_config(SERVICE))
    assert config["loadBalancingConfig"] == [{"round_robin": {}}]
    (methods,) = config["methodConfig"]
    assert [each["method"] for each in methods["name"]] == ["Get", "Watch"]
    assert methods["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE", "CANCELLED"]
    assert "methodConfig" not in json.loads(service_config("bos.unknown.v1.UnknownService"))


async def test_calls_without_side_effects_are_retried(start: Any, echo: Any) -> None:
    flaky = Flaky(failures=2)
    running = await start(get=flaky.unary)
    assert (await running.stub.get(echo(text="hi"))).text == "hi"
    assert flaky.calls == 3


async def test_calls_with_side_effects_are_never_retried(start: Any, echo: Any) -> None:
    flaky = Flaky(failures=1)
    running = await start(put=flaky.unary)
    with pytest.raises(Unavailable, match="restarting"), translate_rpc_errors():
        await running.stub.put(echo())
    assert flaky.calls == 1


async def test_every_call_has_a_deadline(start: Any, echo: Any) -> None:
    seen: list[float] = []

    async def look(request: Any, context: Any) -> Any:
        seen.append(context.time_remaining())
        return request

    running = await start(get=look, default_timeout_s=3)
    await running.stub.get(echo())
    await running.stub.get(echo(), timeout=9)
    assert 0 < seen[0] < 3.1
    assert 8 < seen[1] < 9.1


async def test_no_time_left_fails_without_reaching_the_service(start: Any, echo: Any) -> None:
    reached: list[Any] = []

    async def note(request: Any, context: Any) -> Any:
        reached.append(request)
        return request

    running = await start(get=note)
    await running.stub.get(echo())  # the connection stands: nothing but the deadline is in the way
    for timeout in (0, -5):
        with pytest.raises(DeadlineExceeded), translate_rpc_errors():
            await running.stub.get(echo(), timeout=timeout)
    await running.stub.get(echo())
    assert len(reached) == 2


async def test_the_run_token_travels_on(start: Any, echo: Any) -> None:
    async def tell(request: Any, context: Any) -> Any:
        return echo(text=dict(context.invocation_metadata()).get("bos-run-token", ""))

    back = await start(get=tell)

    async def pass_on(request: Any, context: Any) -> Any:
        return await back.stub.get(request)

    front = await start(get=pass_on)
    with run_token("token-of-the-run"):
        assert (await front.stub.get(echo())).text == "token-of-the-run"
    assert (await front.stub.get(echo())).text == ""
    reply = await front.stub.get(echo(), metadata=(("bos-run-token", "given"),))
    assert reply.text == "given"


async def test_one_channel_per_target(start: Any) -> None:
    running = await start()
    target = running.server.address
    assert running.channels.get(target) is running.channels.get(target)
    assert running.channels.get("127.0.0.1:1") is not running.channels.get(target)


async def test_closing_cancels_calls_and_refuses_new_ones(start: Any, echo: Any) -> None:
    running = await start()
    call = running.stub.watch(echo(count=1000))
    await call.read()
    await running.channels.__aexit__(None, None, None)
    assert await call.code() is grpc.StatusCode.CANCELLED
    with pytest.raises(RuntimeError):
        running.channels.get(running.server.address)


async def test_unreachable_service_is_unavailable_without_addresses(
    start: Any, echo: Any, stub_of: Any
) -> None:
    running = await start()
    unreachable = stub_of(running.channels.get("127.0.0.1:1"))
    with pytest.raises(Unavailable) as caught, translate_rpc_errors():
        await unreachable.put(echo())
    assert "127.0.0.1" not in caught.value.message
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
