"""Asks the demo questions of a real model and says how it did."""

import bos_chassis  # noqa: F401  # before anything imports gRPC: see there
