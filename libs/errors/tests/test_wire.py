import pickle
from typing import Any

import grpc
import pytest

import bos_errors as errors
from bos_errors import (
    BosError,
    FieldViolation,
    InvalidArgument,
    abort_with,
    from_rpc_error,
    to_status,
)


async def _over_the_wire(error: Exception) -> BosError:
    """The error as the caller of a server sees it that ends the call with it."""

    async def fail(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await abort_with(context, error)

    server = grpc.aio.server()
    handlers = {"Call": grpc.unary_unary_rpc_method_handler(fail)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/test/Call")(b"", timeout=60)
    finally:
        await server.stop(None)
    return from_rpc_error(caught.value)


@pytest.mark.parametrize("cls", [errors.NotFound, errors.ConfigurationError, errors.Internal])
async def test_every_class_survives_the_wire(cls: type[BosError]) -> None:
    sent = cls("Grüße: it broke", metadata={"run_id": "r1"})
    got = await _over_the_wire(sent)
    assert type(got) is cls
    assert (got.message, got.reason, got.metadata) == (sent.message, sent.reason, sent.metadata)
    assert got.code is cls.code


@pytest.mark.parametrize("cls", [errors.ResourceExhausted, errors.Unavailable])
async def test_retry_after_survives_the_wire(cls: Any) -> None:
    got = await _over_the_wire(cls("busy", retry_after_s=1.25))
    assert type(got) is cls
    assert got.retry_after_s == 1.25


class StepLost(errors.Aborted):
    default_reason = "STEP_LOST"

    def __init__(self, step: str, attempt: int) -> None:
        super().__init__(f"{step} was lost", metadata={"attempt": str(attempt)})


async def test_subclass_is_restored_by_its_reason() -> None:
    got = await _over_the_wire(StepLost("s1", 2))
    assert type(got) is StepLost
    assert got.metadata == {"attempt": "2"}


async def test_text_of_unknown_exceptions_does_not_leave() -> None:
    got = await _over_the_wire(RuntimeError("password=hunter2"))
    assert type(got) is errors.Internal
    assert "hunter2" not in got.message


async def test_many_violations_stay_within_what_peers_accept() -> None:
    violations = [FieldViolation("plan", "has a cycle")]
    violations += [FieldViolation(f"items[{n}]", "é" * 500) for n in range(500)]
    got = await _over_the_wire(InvalidArgument("x" * 50_000, violations, reason="PLAN_CYCLE"))
    assert type(got) is InvalidArgument
    assert got.reason == "PLAN_CYCLE"
    assert got.violations[0] == violations[0]
    assert 1 < len(got.violations) < 500
    assert got.violations[-1].description.endswith("more")


def _downstream(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, empty, empty, details="10.0.0.1 said no")


def test_a_downstream_outage_is_passed_on() -> None:
    status = to_status(_downstream(grpc.StatusCode.UNAVAILABLE))
    assert status.code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert "10.0.0.1" not in status.message


def test_a_call_dropped_by_a_stopping_server_is_unavailable() -> None:
    dropped = from_rpc_error(_downstream(grpc.StatusCode.CANCELLED))
    assert type(dropped) is errors.Unavailable


def test_a_downstream_refusal_of_our_call_is_our_defect() -> None:
    status = to_status(_downstream(grpc.StatusCode.INVALID_ARGUMENT))
    assert status.code == grpc.StatusCode.INTERNAL.value[0]


def test_field_names_the_field_in_message_and_violation() -> None:
    error = InvalidArgument.field("question", "must not be empty")
    assert error.message == "question: must not be empty"
    assert error.violations == (FieldViolation("question", "must not be empty"),)


def test_errors_survive_pickling() -> None:
    error = errors.Unavailable("away", retry_after_s=2, metadata={"a": "b"})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.Unavailable
    assert vars(again) == vars(error)
