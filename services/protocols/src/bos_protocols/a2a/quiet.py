"""The SDK's own log: what callers send wrongly is theirs to know, and no matter for ours."""

from __future__ import annotations

import logging

from a2a.utils.errors import A2AError
from google.protobuf.json_format import ParseError
from jsonrpc.exceptions import JSONRPCInvalidRequestException  # type: ignore[import-untyped]

_LOGGERS = (
    "a2a.server.routes.jsonrpc_dispatcher",
    "a2a.server.routes.rest_dispatcher",
    "a2a.utils.error_handlers",
    "a2a.utils.version_validator",
)
_OF_CALLERS = (A2AError, ParseError, JSONRPCInvalidRequestException)


class _Defects(logging.Filter):
    """Lets exceptions through that no caller causes; refusals repeat what a caller sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is about a defect."""
        error = record.exc_info[1] if record.exc_info else None
        return error is not None and not isinstance(error, _OF_CALLERS)


def quiet_sdk() -> None:
    """Have the SDK write of defects alone."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, _Defects) for one in logger.filters):
            logger.addFilter(_Defects())
