from __future__ import annotations

import pickle
from typing import Any

import grpc
import pytest

import bos_errors as errors
from bos_chassis.channels import translate_rpc_errors
from bos_errors import BosError, FieldViolation, InvalidArgument, from_rpc_error, to_status

PUBLIC = [
    errors.NotFound,
    errors.AlreadyExists,
    errors.PermissionDenied,
    errors.Unauthenticated,
    errors.FailedPrecondition,
    errors.ConfigurationError,
    errors.DeadlineExceeded,
    errors.Cancelled,
    errors.Aborted,
    errors.Unimplemented,
    errors.Internal,
]


async def _over_the_wire(start: Any, echo: Any, error: Exception) -> BosError:
    async def fail(request: Any, context: Any) -> Any:
        raise error

    running = await start(put=fail)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.stub.put(echo())
    return from_rpc_error(caught.value)


@pytest.mark.parametrize("cls", PUBLIC)
async def test_every_class_survives_the_wire(start: Any, echo: Any, cls: type[BosError]) -> None:
    sent = cls("Grüße: it broke", metadata={"run_id": "r1"})
    got = await _over_the_wire(start, echo, sent)
    assert type(got) is cls
    assert (got.message, got.reason, got.metadata) == (sent.message, sent.reason, sent.metadata)
    assert got.code is cls.code


@pytest.mark.parametrize("cls", [errors.ResourceExhausted, errors.Unavailable])
async def test_retry_after_survives_the_wire(start: Any, echo: Any, cls: Any) -> None:
    got = await _over_the_wire(start, echo, cls("busy", retry_after_s=1.25))
    assert type(got) is cls
    assert got.retry_after_s == 1.25


async def test_violations_and_an_own_reason_survive_the_wire(start: Any, echo: Any) -> None:
    sent = InvalidArgument("bad plan", [FieldViolation("plan", "has a cycle")], reason="PLAN_CYCLE")
    got = await _over_the_wire(start, echo, sent)
    assert type(got) is InvalidArgument
    assert got.reason == "PLAN_CYCLE"
    assert got.violations == (FieldViolation("plan", "has a cycle"),)


class StepLost(errors.Aborted):
    default_reason = "STEP_LOST"

    def __init__(self, step: str, attempt: int) -> None:
        super().__init__(f"{step} was lost", metadata={"attempt": str(attempt)})


async def test_a_subclass_is_restored_by_its_reason_without_its_constructor(
    start: Any, echo: Any
) -> None:
    got = await _over_the_wire(start, echo, StepLost("s1", 2))
    assert type(got) is StepLost
    assert got.metadata == {"attempt": "2"}


async def test_text_of_unknown_exceptions_does_not_leave(start: Any, echo: Any) -> None:
    got = await _over_the_wire(start, echo, RuntimeError("password=hunter2"))
    assert type(got) is errors.Internal
    assert "hunter2" not in got.message


async def test_many_violations_stay_within_what_peers_accept(start: Any, echo: Any) -> None:
    sent = InvalidArgument(
        "x" * 50_000, [FieldViolation(f"items[{n}]", "é" * 500) for n in range(500)]
    )
    got = await _over_the_wire(start, echo, sent)
    assert type(got) is InvalidArgument
    assert 1 < len(got.violations) < 500
    assert got.violations[-1].description.endswith("more")


async def test_an_unreachable_service_is_unavailable_without_addresses(
    start: Any, echo: Any, stub_of: Any
) -> None:
    running = await start()
    nobody = stub_of(running.channels.get("127.0.0.1:1"))
    with pytest.raises(errors.Unavailable) as caught, translate_rpc_errors():
        await nobody.put(echo())
    assert "127.0.0.1" not in caught.value.message
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)


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
