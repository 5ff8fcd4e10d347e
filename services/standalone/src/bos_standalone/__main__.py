"""Entry point of ``python -m bos_standalone``, the same as ``bos serve all``."""

import bos_chassis  # noqa: F401  # before anything imports gRPC: see there
from bos_standalone.cli import ALL, serve

if __name__ == "__main__":
    serve([ALL])
