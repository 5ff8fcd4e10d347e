"""``python skewed_gateway.py SECONDS``: a gateway on a host whose wall clock is off by so much.

The clock is moved for the whole process before anything of ours is imported. Only gRPC keeps the
real one: its core asks the machine itself, and both halves of a real host would agree.
"""

import datetime
import runpy
import sys
import time
from types import SimpleNamespace

import grpc.aio  # noqa: F401 - its modules are looked up below


def skew(seconds: float) -> None:
    """Move what this process takes for the time of day; monotonic clocks stay as they are."""
    real_time, real_time_ns, real = time.time, time.time_ns, datetime.datetime
    off = datetime.timedelta(seconds=seconds)

    class Whole(type(real)):
        """What was made before, or by C code, counts as one of these as well."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, real)

    class Skewed(real, metaclass=Whole):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return real.now(tz) + off

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return cls.now(datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> datetime.datetime:
            return cls.now()

    unmoved = SimpleNamespace(**vars(time))
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "grpc" and getattr(module, "time", None) is time:
            module.time = unmoved
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + round(seconds * 1e9)
    datetime.datetime = Skewed


if __name__ == "__main__":
    skew(float(sys.argv[1]))
    runpy.run_module("bos_gateway", run_name="__main__", alter_sys=True)
