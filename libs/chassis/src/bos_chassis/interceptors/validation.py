from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import protovalidate
from google.protobuf.message import Message

from bos_chassis.interceptors.concern import Concern, ServerCall
from bos_errors import FieldViolation, InvalidArgument

_NAMED_IN_MESSAGE = 3


class Validation(Concern):
    """Checks requests against the rules written on their schema (``buf.validate``)."""

    def request(self, call: ServerCall, message: Any) -> None:
        """Check one request.

        Raises:
            InvalidArgument: Names every field that breaks a rule.
        """
        if not isinstance(message, Message):
            return
        # The library's own validator: rules are compiled once a process, not once a server.
        found = protovalidate.collect_violations(message)
        if found:
            raise invalid([_violation(one.proto) for one in found])


def invalid(violations: Iterable[FieldViolation]) -> InvalidArgument:
    """The error for a request with these violations; its text names the first few."""
    listed = tuple(violations)
    named = "; ".join(f"{v.field}: {v.description}" for v in listed[:_NAMED_IN_MESSAGE])
    more = len(listed) - _NAMED_IN_MESSAGE
    return InvalidArgument(named + (f"; and {more} more" if more > 0 else ""), listed)


def _violation(proto: Any) -> FieldViolation:
    elements = proto.field.elements if proto.field is not None else ()
    path = "".join(_step(element) for element in elements).removeprefix(".")
    return FieldViolation(path or "request", proto.message or f"breaks rule {proto.rule_id}")


def _step(element: Any) -> str:
    """One step of a path, ``.steps[2]`` or ``.cells["a"]``."""
    subscript = element.subscript
    if subscript is None:
        return f".{element.field_name}"
    key = f'"{subscript.value}"' if subscript.field == "string_key" else str(subscript.value)
    return f".{element.field_name}[{key}]"
