"""`make bench NAME=paths`: measures hot paths here; see docs/operations/performance.md."""

from __future__ import annotations

import sys

from bos_bench.command import main

if __name__ == "__main__":
    sys.exit(main())
