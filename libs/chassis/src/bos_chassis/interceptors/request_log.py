from __future__ import annotations

import grpc

from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_chassis.interceptors.sampled import Sampled
from bos_chassis.telemetry import Telemetry

# The server is at fault; everything else is the client's doing or ordinary life.
_SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DATA_LOSS,
    }
)


class RequestLog(Concern):
    """One line per call: method, code, duration and sizes, never a value of a message.

    Of calls without a credential, those refused at the door and those of open methods, there are
    samples: the first of each code per interval, and one line with the number of the others.
    """

    def __init__(self, telemetry: Telemetry, slow_s: float) -> None:
        self._log = telemetry.logger("bos.rpc")
        self._sampled = Sampled(self._log, "call")
        self._slow_s = slow_s

    def end(self, call: ServerCall) -> None:
        """Write the line; slow unary calls and server faults rise above info."""
        if (call.open or not call.admitted) and not self._sampled.admits(call.code.name):
            return
        duration = call.duration_s
        slow = duration >= self._slow_s and not call.streaming
        if call.code in _SERVER_FAULTS:
            # The traceback goes here and nowhere else: the client gets neutral text.
            write = self._log.error
        elif slow:
            write = self._log.warning
        else:
            write = self._log.info
        write(
            "slow call" if slow else "call",
            grpc_service=call.service,
            grpc_method=call.method,
            grpc_code=call.code.name,
            duration_ms=round(duration * 1000, 2),
            received_bytes=call.received_bytes,
            sent_bytes=call.sent_bytes,
            sent_messages=call.sent_messages,
            **({"exc_info": call.error} if call.code in _SERVER_FAULTS and call.error else {}),
        )

    def close(self) -> None:
        """Say what was left out."""
        self._sampled.close()
