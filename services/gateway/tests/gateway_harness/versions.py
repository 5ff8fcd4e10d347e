"""Messages of two versions compared: the later one may have fields that the earlier one lacks."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def agrees(one: Message, other: Message) -> bool:
    """Whether each field that is set in both is the same, and one message sets all that either has.

    An event that was shown by an earlier version lacks what a later one adds to it, at any depth;
    what both know must not differ.
    """
    return contains(one, other) or contains(other, one)


def contains(whole: Message, part: Message) -> bool:
    """Whether all that is set in ``part`` is the same in ``whole``."""
    return all(
        _same(field, getattr(whole, field.name), value) for field, value in part.ListFields()
    )


def _same(field: FieldDescriptor, whole: Any, part: Any) -> bool:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        return part.keys() == whole.keys() and all(
            _one(value, whole[key], part[key]) for key in part
        )
    if field.is_repeated:
        return len(part) == len(whole) and all(
            _one(field, *pair) for pair in zip(whole, part, strict=True)
        )
    return _one(field, whole, part)


def _one(field: FieldDescriptor, whole: Any, part: Any) -> bool:
    return contains(whole, part) if field.message_type is not None else bool(whole == part)
