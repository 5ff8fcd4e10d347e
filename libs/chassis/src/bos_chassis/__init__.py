"""Chassis of every service: server, channels, authentication, settings, telemetry."""

import os
import sys

# gRPC reads this when it is first imported. uvloop starts programs by fork and exec; gRPC would
# prepare every fork for a child that goes on using it: its threads start in the child, and now and
# then one of them ends the child with a segmentation fault before the program begins.
PREPARES_FORKS = "grpc" in sys.modules and "GRPC_ENABLE_FORK_SUPPORT" not in os.environ
"""Whether gRPC was imported before this package, which must not be; a process refuses to start."""
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
