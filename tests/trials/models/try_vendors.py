"""`make trial NAME=vendors`: what LiteLLM makes of our requests for each vendor."""

from __future__ import annotations

import sys

from bos_try.vendors import main

if __name__ == "__main__":
    sys.exit(main())
