"""Chassis of every service: server, channels, authentication, settings, telemetry."""

import os

# gRPC reads this when it is first imported. uvloop starts programs by fork and exec; gRPC would
# prepare every fork for a child that goes on using it, and say on stderr that it cannot.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
