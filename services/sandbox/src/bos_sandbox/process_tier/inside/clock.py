"""Stops the clocks that a program reads, as in the interpreter tier.

A run has one "today"; a program that read the machine's clock would disagree with it, and give
another result tomorrow. Clocks that only measure (``perf_counter``, ``monotonic``) go on.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import time
from collections.abc import Callable
from typing import Any


class ClockUnavailable(Exception):
    """The program asked for the time, and was given no input ``today``."""

    def __init__(self) -> None:
        super().__init__("the program has no clock; pass the date as the input today")


def stop_clocks(today: Any) -> None:
    """Stop all clocks at ``today``: a date, a datetime, or text in ISO format.

    Anything else means that there is no clock: reading it raises ``ClockUnavailable``.
    """
    moment = _moment(today)

    def instant() -> datetime.datetime:
        if moment is None:
            raise ClockUnavailable
        return moment

    def now(cls: Any, tz: Any = None) -> Any:
        shown = instant().astimezone(tz) if tz else instant().replace(tzinfo=None)
        return cls.combine(shown.date(), shown.timetz())

    def utcnow(cls: Any) -> Any:
        return now(cls)

    def today_of(cls: Any) -> Any:
        if issubclass(cls, datetime.datetime):
            return now(cls)
        return cls(instant().year, instant().month, instant().day)

    _replace(datetime.date, "today", classmethod(today_of))
    _replace(datetime.datetime, "now", classmethod(now))
    _replace(datetime.datetime, "utcnow", classmethod(utcnow))
    _stop_time_module(lambda: instant().timestamp())


def _stop_time_module(seconds: Callable[[], float]) -> None:
    def at_stopped(convert: Any) -> Any:
        return lambda at=None: convert(seconds() if at is None else at)

    asctime, strftime = time.asctime, time.strftime
    gmtime = at_stopped(time.gmtime)
    replacements = {
        "time": seconds,
        "time_ns": lambda: int(seconds() * 1_000_000) * 1_000,
        "gmtime": gmtime,
        "localtime": at_stopped(time.localtime),
        "ctime": at_stopped(time.ctime),
        "asctime": lambda at=None: asctime(gmtime() if at is None else at),
        "strftime": lambda form, at=None: strftime(form, gmtime() if at is None else at),
    }
    for name, function in replacements.items():
        setattr(time, name, function)


def _replace(kind: type, name: str, attribute: Any) -> None:
    """Set an attribute of a type that is written in C, which Python itself does not allow."""
    (attributes,) = (one for one in gc.get_referents(kind.__dict__) if isinstance(one, dict))
    attributes[name] = attribute
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _moment(today: Any) -> datetime.datetime | None:
    if isinstance(today, str):
        try:
            today = datetime.datetime.fromisoformat(today)
        except ValueError:
            return None
    if isinstance(today, datetime.datetime):
        return (
            today.astimezone(datetime.UTC) if today.tzinfo else today.replace(tzinfo=datetime.UTC)
        )
    if isinstance(today, datetime.date):
        return datetime.datetime(today.year, today.month, today.day, tzinfo=datetime.UTC)
    return None
