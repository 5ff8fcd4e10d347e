"""Measurements of the hot paths. Figures compare within one run only; the machine is not ours."""

import bos_chassis  # noqa: F401  # before anything imports gRPC: see there
