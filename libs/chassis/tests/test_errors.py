from typing import Any

import grpc
import pytest

from bos_chassis.channels import translate_rpc_errors
from bos_errors import Internal, Unavailable, from_rpc_error


async def test_text_of_unknown_exceptions_does_not_leave_a_service(start: Any, echo: Any) -> None:
    async def fail(request: Any, context: Any) -> Any:
        raise RuntimeError("password=hunter2")

    running = await start(put=fail)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.put(echo())
    got = from_rpc_error(caught.value)
    assert type(got) is Internal
    assert "hunter2" not in got.message


async def test_an_unreachable_service_is_unavailable_without_addresses(
    start: Any, echo: Any, stub_of: Any
) -> None:
    running = await start()
    unreachable = stub_of(running.channels.get("127.0.0.1:1"))
    with pytest.raises(Unavailable) as caught, translate_rpc_errors():
        await unreachable.put(echo())
    assert "127.0.0.1" not in caught.value.message
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
