"""How calls of the isolation suite end, in the same words for gRPC and REST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    import grpc

_STATUS = "grpc-status-details-bin"


@dataclass(frozen=True)
class Answer:
    """How a call ended, in the same words for gRPC and REST."""

    code: str
    """Name of the gRPC code."""
    reason: str = ""
    message: str = ""
    content: str = ""
    """What came back, as text."""

    @property
    def shape(self) -> tuple[str, str, str]:
        return self.code, self.reason, self.message


def answer_of(error: grpc.aio.AioRpcError) -> Answer:
    """The answer that a failed call is."""
    info = error_details_pb2.ErrorInfo()
    for key, value in error.trailing_metadata() or ():
        if key == _STATUS and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                detail.Unpack(info)
    return Answer(error.code().name, info.reason, error.details() or "", str(info))
